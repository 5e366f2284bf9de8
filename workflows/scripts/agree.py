"""Hold the shipped torch functions against the proved SymPy expressions on random policies.

python -m workflows.scripts.agree --output FILE [--rows N] [--seed N]
"""

from __future__ import annotations

from methods.backend import environment  # noqa: F401  # isort: skip  # before anything imports torch

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from derivations import formulas
from methods import finite_step
from methods.catalogue import drpo
from methods.directions import TAIL_RULES, full_direction, reduced_direction, sampled_slot
from methods.files import write_text
from methods.measures import MEASURES, Measure, reduced_value
from methods.signals import Support
from methods.support import Masses, masses, with_sampled

# Both sides are float64; a tail is one minus a sum, so a measure that divides by it loses a few digits.
TOLERANCE = 1e-12


@dataclass(frozen=True)
class Row:
    """One position: probabilities mu and pi [V], the sampled id, and the retained tokens."""

    mu: torch.Tensor
    pi: torch.Tensor
    sampled: int
    support: Support

    @property
    def classes(self) -> Masses:
        return masses(self.support, len(self.mu))

    @property
    def kept(self) -> list[int]:
        return self.support.ids[self.support.valid].tolist()

    @property
    def proved_classes(self) -> tuple[list[float], list[float], float, float]:
        """mu and pi on the support, then the tail masses, as the formulas want them."""
        outside = [i for i in range(len(self.mu)) if i not in self.kept]
        masses_kept = (table[self.kept].tolist() for table in (self.mu, self.pi))
        mu_tail, pi_tail = (float(table[outside].sum()) for table in (self.mu, self.pi))
        return *masses_kept, mu_tail, pi_tail  # type: ignore[return-value]


def positions(rows: int, seed: int) -> Iterator[Row]:
    """Vocabularies of 4 to 40, logits from flat to peaked, at least one token in the tail."""
    random = np.random.default_rng(seed)
    for _ in range(rows):
        size = int(random.integers(4, 41))
        logits = random.normal(size=size) * random.choice([0.3, 1.0, 2.0])
        moved = logits + random.normal(size=size) * random.choice([0.05, 0.5, 1.0])
        mu, pi = (torch.from_numpy(z).softmax(-1) for z in (logits, moved))
        sampled = int(random.choice(size, p=mu.numpy()))
        candidates = mu.topk(int(random.integers(1, size - 1))).indices
        ids, valid = with_sampled(candidates, torch.tensor(sampled))
        yield Row(mu, pi, sampled, Support(ids, mu[ids].log(), pi[ids].log(), valid))


def measure_pairs(measure: Measure, row: Row) -> Iterator[tuple[torch.Tensor, float]]:
    """(shipped, proved): value and direction over the vocabulary, value and four directions on the support."""
    name, mu, pi = measure.name, row.mu.tolist(), row.pi.tolist()
    yield measure.value(row.mu, row.pi), formulas.divergence(name, mu, pi)
    full = full_direction(measure, row.mu, row.pi, torch.tensor(row.sampled))
    yield full, formulas.direction_full(mu, pi, row.sampled, measure=name)
    classes, proved_classes, kept = row.classes, row.proved_classes, row.kept
    reduced = reduced_value(measure, classes.mu, classes.pi, classes.mu_tail, classes.pi_tail)
    yield reduced, formulas.divergence_topk(name, *proved_classes)
    squares = float(row.pi.square().sum())
    collision = squares - sum(p * p for p in proved_classes[1])
    slot = sampled_slot(row.support)
    for rule in TAIL_RULES:
        ours = reduced_direction(measure, classes, slot, rule, torch.tensor(squares, dtype=torch.float64))
        place, unseen = kept.index(row.sampled), len(mu) - len(kept)
        yield ours, formulas.direction_topk(*proved_classes, place, unseen, rule, collision, measure=name)


def token_pairs(row: Row) -> Iterator[tuple[str, torch.Tensor, float]]:
    """(name, shipped, proved) of the finite step and of DRPO's weight."""
    mu, pi, k = row.mu.tolist(), row.pi.tolist(), row.sampled
    move = -row.pi.clone()
    move[k] += 1
    for size in (-0.5, 2.0):
        ours = finite_step.finite_change(row.mu, row.pi, move, torch.tensor(size, dtype=torch.float64))
        yield "finite step, forward_kl", ours, formulas.finite_step_change(mu, pi, k, size)
    for advantage in (1.0, -1.0):
        ours = drpo.weight(torch.tensor(advantage), row.pi[k].log(), row.mu[k].log(), 0.15)
        yield "weight, DRPO", ours, formulas.drpo_weight(mu[k], pi[k], advantage, 0.15)


def differences(rows: int, seed: int) -> dict[str, float]:
    """Largest difference per function, relative to the value where that is above one."""
    worst: dict[str, float] = {}

    def compare(name: str, ours: torch.Tensor, proved: float) -> None:
        worst[name] = max(worst.get(name, 0.0), abs(float(ours) - float(proved)) / max(1.0, abs(float(proved))))

    for row in positions(rows, seed):
        for measure in MEASURES.values():
            for ours, proved in measure_pairs(measure, row):
                compare(f"values and directions, {measure.name}", ours, proved)
        for name, ours, proved in token_pairs(row):
            compare(name, ours, proved)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m workflows.scripts.agree", description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=100)
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
