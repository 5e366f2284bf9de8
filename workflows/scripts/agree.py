"""Hold the shipped torch functions against the proved SymPy expressions on random policies.

python -m workflows.scripts.agree --output FILE [--rows N] [--seed N]
"""

from __future__ import annotations

from methods.backend import environment  # noqa: F401  # isort: skip  # before anything imports torch

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from derivations import formulas
from methods.catalogue import drpo
from methods.directions import full_direction, reduced_direction, sampled_slot
from methods.measures import FORWARD_KL, reduced_value
from methods.signals import Support
from methods.support import masses, united
from workflows.files import write_text

# The torch side works in float32: differences of probabilities carry an absolute error of a few times 1e-7.
TOLERANCE = 2e-6


def policies(rows: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray, int, int]]:
    """(mu, pi, sampled, retained) with vocabularies of 4 to 40 and logits from flat to nearly certain."""
    random = np.random.default_rng(seed)
    for _ in range(rows):
        size = int(random.integers(4, 41))
        logits = random.normal(size=size) * random.choice([0.3, 1.0, 3.0])
        moved = logits + random.normal(size=size) * random.choice([0.05, 0.5, 2.0])
        mu, pi = (np.exp(z - z.max()) / np.exp(z - z.max()).sum() for z in (logits, moved))
        yield mu, pi, int(random.choice(size, p=mu)), int(random.integers(1, size - 1))


def differences(rows: int, seed: int) -> dict[str, float]:
    """Largest absolute difference per function."""
    worst: dict[str, float] = {}

    def compare(name: str, ours: torch.Tensor, proved: float) -> None:
        worst[name] = max(worst.get(name, 0.0), abs(float(ours) - float(proved)))

    for mu, pi, sampled, retained in policies(rows, seed):
        t_mu, t_pi = torch.tensor(mu), torch.tensor(pi)
        ours = full_direction(FORWARD_KL, t_mu, t_pi, torch.tensor(sampled))
        compare("direction, full vocabulary", ours, formulas.direction_full(mu.tolist(), pi.tolist(), sampled))
        ids, valid = united(torch.tensor(np.argsort(-mu, kind="stable")[:retained].copy()), torch.tensor(sampled))
        support = Support(ids, t_mu[ids].log(), t_pi[ids].log(), valid)
        cells = masses(support, len(mu))
        kept = ids[valid].tolist()
        outside = [i for i in range(len(mu)) if i not in kept]
        mu_tail, pi_tail = float(mu[outside].sum()), float(pi[outside].sum())
        proved = formulas.forward_kl_topk(mu[kept].tolist(), pi[kept].tolist(), mu_tail, pi_tail)
        compare("proximity, top-K", reduced_value(FORWARD_KL, cells.mu, cells.pi, cells.mu_tail, cells.pi_tail), proved)
        collision = float((pi[outside] ** 2).sum())
        for rule in ("none", "aggregated", "uniform", "collision"):
            ours = reduced_direction(FORWARD_KL, cells, sampled_slot(support), rule, (t_pi**2).sum())
            proved = formulas.direction_topk(
                mu[kept].tolist(),
                pi[kept].tolist(),
                mu_tail,
                pi_tail,
                kept.index(sampled),
                len(outside),
                rule,
                tail_collision=collision,
            )
            compare(f"direction, top-K, {rule} tail", ours, proved)
        for advantage in (1.0, -1.0):
            ours = drpo.weight(torch.tensor(advantage), t_pi[sampled].log(), t_mu[sampled].log(), 0.15)
            proved = formulas.drpo_weight(mu[sampled], pi[sampled], advantage, 0.15)
            compare("DRPO weight", ours, proved)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m workflows.scripts.agree", description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    worst = differences(args.rows, args.seed)
    for name, value in worst.items():
        print(f"{name}: largest difference {value:.1e} over {args.rows} policies (allowed {TOLERANCE:.0e})")
    if max(worst.values()) > TOLERANCE:
        print("error: the code and the proved formulas disagree", file=sys.stderr)
        return 1
    # The bound, not the digits: those depend on the processor, the claim does not.
    bounds = {name: f"<= {TOLERANCE:.0e}" for name in sorted(worst)}
    result = {"policies": args.rows, "seed": args.seed, "agreement": bounds}
    write_text(args.output, json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
