"""How wrong each tail rule is against the full-vocabulary derivative, by the number of retained candidates K.

python -m eval.figures.tail_rules --output tail_rules.svg
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from eval.figures.command import run, small_print
from eval.figures.rows import Rows, describe, synthetic_rows
from eval.figures.style import DASHES, PALETTE, new_figure, save
from methods.directions import TAIL_RULES, TailRule, full_direction, reduced_direction, sampled_slot
from methods.measures import FORWARD_KL, reduced_value
from methods.provenance import MARKS
from methods.signals import Support
from methods.support import masses, with_sampled

CANDIDATES = (1, 2, 3, 5, 10, 20, 50, 100)
ROWS, VOCAB = 3000, 2000
OUTSIDE = 0.05
TITLES: Mapping[TailRule, str] = {
    "none": "none [N]",
    "aggregated": "aggregated, Eq. 10 [S]",
    "uniform": "uniform, Eq. 11 [S]",
    "collision": "collision, exact c2 [N]",
}


def errors(rows: Rows, top_k: int) -> tuple[dict[TailRule, tuple[float, float]], int]:
    """({rule: (share of wrong signs, mean absolute error)}, rows) over rows whose reduced KL is above OUTSIDE."""
    logp_mu, logp_pi = rows.mu.log(), rows.pi.log()
    ids, valid = with_sampled(rows.mu.topk(top_k, dim=-1).indices, rows.sampled)
    support = Support(ids, logp_mu.gather(-1, ids), logp_pi.gather(-1, ids), valid)
    classes = masses(support, rows.mu.shape[-1])
    exact = full_direction(FORWARD_KL, rows.mu, rows.pi, rows.sampled)
    chosen = reduced_value(FORWARD_KL, classes.mu, classes.pi, classes.mu_tail, classes.pi_tail) > OUTSIDE

    def compare(rule: TailRule) -> tuple[float, float]:
        slot, squares = sampled_slot(support), rows.pi.square().sum(-1)
        predicted: Tensor = reduced_direction(FORWARD_KL, classes, slot, rule, squares)
        wrong = (predicted > 0) != (exact > 0)
        return float(wrong[chosen].double().mean()), float((predicted - exact).abs()[chosen].mean())

    return {rule: compare(rule) for rule in TAIL_RULES}, int(chosen.sum())


def draw(output: Path, seed: int) -> None:
    """Left: wrong signs. Right: mean absolute error."""
    rows = synthetic_rows(ROWS, VOCAB, seed)
    found = {top_k: errors(rows, top_k) for top_k in CANDIDATES}
    kept = [number for _, number in found.values()]
    note = (
        f"{describe(ROWS, VOCAB, seed)}; forward KL; for each K the {min(kept):,} to {max(kept):,} rows whose reduced "
        f"KL is above {OUTSIDE}. A tail rule is a value of c2, the tail's sum of pi^2 [N]; the error of 'collision' is "
        f"that of reducing at all. [S] {MARKS['S']} (arXiv 2607.10848), [N] {MARKS['N']}."
    )
    figure, grid = new_figure(1, 2, (11.4, 4.8), small_print(note, 11.4))
    for place, (axes, what) in enumerate(zip(grid[0], ("share of wrong signs", "mean absolute error"), strict=True)):
        for number, rule in enumerate(TAIL_RULES):
            values = [found[top_k][0][rule][place] for top_k in CANDIDATES]
            # Wide and pale where two rules may lie on each other.
            wide = {"linewidth": 5.0, "alpha": 0.35} if rule == "none" else {"linewidth": 1.9}
            style = {"color": PALETTE[number], "linestyle": DASHES[number], "marker": "o", **wide}
            axes.plot(CANDIDATES, values, label=TITLES[rule], markersize=3.5, **style)
        axes.set_xscale("log")
        axes.set_xticks(CANDIDATES, [str(top_k) for top_k in CANDIDATES])
        axes.minorticks_off()
        axes.set(xlabel="candidates K", ylabel=what)
    grid[0][1].set_yscale("log")
    grid[0][0].set_ylim(bottom=0)
    grid[0][0].legend(frameon=False)
    save(figure, output, {"Title": "Tail rules against the full vocabulary", "Description": note})


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw; 0, or 2 after one line that says what is wrong."""
    return run("tail_rules", __doc__.splitlines()[0], draw, arguments)


if __name__ == "__main__":
    sys.exit(main())
