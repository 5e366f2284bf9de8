"""A token's record: the names of its columns and the formulas behind them, for recorder and study."""
