"""Verdicts of a tier.

    python -m eval.claims --results results/toy --claims eval/claims/claims.yaml --output DIR

writes DIR/verdicts.csv, DIR/verdicts_by_setting.csv and DIR/verdicts.html.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eval.claims.claims import Claim, read_claims
from eval.claims.measure import Results, estimate, read_results
from eval.claims.page import write
from eval.claims.verdicts import Verdict, judge
from eval.files import InputError


def verdicts_of(claims: Sequence[Claim], results: Results, seed: int = 0) -> list[Verdict]:
    """One for each claim. seed: of the bootstrap that checks an interval; each claim draws anew."""
    return judge(claims, [estimate(claim, results, np.random.default_rng(seed)) for claim in claims])


def rows_by_setting(claims: Sequence[Claim], results: Results, seed: int = 0) -> list[dict[str, Any]]:
    """The estimate in each setting of a claim that has several: they explore, and have no word."""
    rows = []
    for claim in claims:
        if claim.estimand is None or len(claim.estimand.settings) < 2:
            continue
        for setting in claim.estimand.settings:
            alone = replace(claim, estimand=replace(claim.estimand, settings=(setting,)))
            found = estimate(alone, results, np.random.default_rng(seed))
            rows.append(
                {
                    "claim": claim.id,
                    "setting": setting,
                    "ours": found.value,
                    "low": found.low,
                    "high": found.high,
                    "interval_kind": found.kind,
                    "n": found.n,
                    "note": found.note,
                }
            )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m eval.claims", description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, required=True, help="a tier's folder, as results/toy")
    parser.add_argument("--claims", type=Path, required=True, help="the list of claims")
    parser.add_argument("--output", type=Path, required=True, help="a folder for the tables and the page")
    options = parser.parse_args(arguments)
    try:
        claims, results = read_claims(options.claims), read_results(options.results)
        title = f"Verdicts: {options.results.name}"
        write(verdicts_of(claims, results), rows_by_setting(claims, results), options.output, title)
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
