"""Training on Ray: verl's own main_ppo, servers that sample, and a watch over their processes."""
