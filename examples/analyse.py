"""A tier's results in a few lines: one table of steps, one of runs, a contrast, a figure.

python examples/analyse.py results/toy OUTPUT_FOLDER; an editor that knows `# %%` runs it cell by cell.
"""

import sys
from pathlib import Path

import eval as evaluation
from eval.figures.metric import draw_metric

results, output = Path(sys.argv[1]), Path(sys.argv[2])
output.mkdir(parents=True, exist_ok=True)

# %% A row for each run and step; settings and metrics are columns.
frame = evaluation.load(results)
print(frame[["setting", "variant", "seed", "staleness", "step", "reward/mean"]].tail())

# %% A row for each run. Settings are data: a contrast across them is a groupby.
runs = evaluation.outcomes(results)
print(runs.groupby(["staleness", "variant"])["reward"].agg(["mean", "min", "max", "count"]).round(3))

# %% Paired by seed: each variant against the first.
wide = runs.pivot_table(index=["setting", "seed"], columns="variant", values="reward")
print(wide.sub(wide.iloc[:, 0], axis=0).groupby("setting").mean().round(3))

# %% Any recorded metric by its name, a line for each variant, axes for each setting.
draw_metric(results, "reward/mean", output / "reward.svg")
