"""The estimate of a claim from a tier's tables: curves.csv for trainings, tokens_seeds.csv for the token study."""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from eval.claims.claims import POOLED, Claim, Estimand
from eval.claims.intervals import Estimate, from_table, mean_of_settings, nothing, rate
from eval.claims.outcomes import NotTestable, Record, outcome, read_records, same_versions
from eval.files import InputError
from eval.runs import RunKey
from eval.statistics import FEWEST, pooled_difference

# Rates, of runs or of tokens, take more seeds than a mean.
FEWEST_OF_RATES = 6
# The paper's radius and divergence; the truth is that of the divergence the mask uses.
TOKEN_ROWS = {"measure": "forward_kl", "delta": "0.15", "truth": "reduced", "subset": "all"}
TOKEN_COUNTS = ("corrective", "kept", "corrective_ratio", "kept_ratio")


@dataclass(frozen=True)
class Results:
    """Of one tier: a record for each run, and the token study's rows at the paper's radius."""

    records: Mapping[RunKey, Record] = field(default_factory=dict)
    tokens: Sequence[Mapping[str, str]] = ()


def read_results(folder: Path) -> Results:
    """From a tier's folder. Raises InputError where it has neither table, or one that cannot be read."""
    found = Results(read_records(folder), _token_rows(folder / "tables"))
    if not found.records and not found.tokens:
        raise InputError(
            f"--results = {folder}: neither tables/curves.csv nor tables/tokens_seeds.csv is there: allowed is a "
            "tier's folder, as results/toy"
        )
    return found


def estimate(claim: Claim, results: Results, generator: np.random.Generator) -> Estimate:
    """Of the claim's estimand over all its settings; without an interval, and with the reason, where it has none."""
    if claim.estimand is None:
        return nothing(claim.not_testable)
    try:
        return _estimate(claim, claim.estimand, results, generator)
    except NotTestable as reason:
        return nothing(str(reason))


def _estimate(claim: Claim, estimand: Estimand, results: Results, generator: np.random.Generator) -> Estimate:
    if estimand.outcome == POOLED:
        return _pooled(estimand, results.tokens)
    if estimand.of_tokens:
        return mean_of_settings(_token_groups(estimand, results.tokens), generator, FEWEST_OF_RATES)
    groups, notes = {}, []
    pairs: list[tuple[float, float]] = []
    for setting in estimand.settings:
        plus, minus = (
            [_runs(results.records, setting, name) for name in side] for side in (estimand.plus, estimand.minus)
        )
        seeds = sorted(set.intersection(*(set(runs) for runs in plus + minus)))
        left_out = len(set.union(*(set(runs) for runs in plus + minus))) - len(seeds)
        if left_out:
            notes.append(f"{left_out} seed(s) of {setting} without a partner left out")
        chosen = [runs[seed] for runs in plus + minus for seed in seeds]
        if estimand.outcome not in ("late_score", "metric") and chosen:
            same_versions(chosen)
            notes.append(f"{setting}: {chosen[0].coverage}")
        rows = [[outcome(runs[seed], estimand.outcome, estimand.metric) for runs in plus] for seed in seeds]
        others = [[outcome(runs[seed], estimand.outcome, estimand.metric) for runs in minus] for seed in seeds]
        if claim.kind == "rate":
            pairs += [(row[0], other[0]) for row, other in zip(rows, others, strict=True)]
        groups[setting] = [
            math.fsum(row) / len(row) - (math.fsum(other) / len(other) if other else 0.0)
            for row, other in zip(rows, others, strict=True)
        ]
    if claim.kind == "rate":
        counts = (int(sum(a for a, _ in pairs)), len(pairs), int(sum(b for _, b in pairs)), len(pairs))
        found = rate(counts, FEWEST_OF_RATES)
    else:
        found = mean_of_settings(groups, generator, FEWEST)
    return replace(found, note="; ".join(filter(None, [found.note, *notes])))


def _runs(records: Mapping[RunKey, Record], setting: str, variant: str) -> dict[int, Record]:
    """{seed: record} of a variant in a setting. Raises NotTestable where there is none."""
    if not any(key.setting == setting for key in records):
        raise NotTestable(f"setting {setting} is not in these results")
    found = {key.seed: record for key, record in records.items() if (key.setting, key.variant) == (setting, variant)}
    if not found:
        raise NotTestable(f"variant {variant} is not trained in setting {setting}")
    return found


def _token_groups(estimand: Estimand, rows: Sequence[Mapping[str, str]]) -> dict[str, list[float]]:
    """{setting: a value per seed}; a seed without a token that it needs has none, and is left out."""
    groups = {}
    for setting in estimand.settings:
        sides = [
            {seed: float(row[estimand.outcome]) for seed, row in _token_seeds(rows, setting, name).items()}
            for name in (*estimand.plus, *estimand.minus)
        ]
        plus, minus = len(estimand.plus), max(1, len(estimand.minus))
        groups[setting] = [
            value
            for seed in sorted(set.intersection(*map(set, sides)))
            if math.isfinite(
                value := math.fsum(side[seed] for side in sides[:plus]) / plus
                - math.fsum(side[seed] for side in sides[plus:]) / minus
            )
        ]
    return groups


def _pooled(estimand: Estimand, rows: Sequence[Mapping[str, str]]) -> Estimate:
    """Shares pooled over the seeds of the one setting, with the jackknife's t interval."""
    seeds = _token_seeds(rows, estimand.settings[0], estimand.plus[0])
    counts = [
        (int(a), int(b), int(c), int(d)) for a, b, c, d in ([row[n] for n in TOKEN_COUNTS] for row in seeds.values())
    ]
    found = pooled_difference(counts)
    return replace(from_table(found.mean, found.low, found.high, found.n, FEWEST_OF_RATES), kind="jackknife t")


def _token_seeds(rows: Sequence[Mapping[str, str]], setting: str, criterion: str) -> dict[int, Mapping[str, str]]:
    """{seed: row}. Raises NotTestable where a setting or criterion is not studied, or in more than one training."""
    found = [row for row in rows if (row["setting"], row["criterion"]) == (setting, criterion)]
    if not found:
        raise NotTestable(f"the token study has no {criterion} in setting {setting}")
    seeds = {int(row["seed"]): row for row in found}
    if len(seeds) < len(found):
        raise NotTestable(f"setting {setting} of the token study holds several trainings of a seed")
    return seeds


def _token_rows(tables: Path) -> list[dict[str, str]]:
    path = tables / "tokens_seeds.csv"
    packed = path.with_name("tokens_seeds.csv.gz")
    if not path.is_file() and not packed.is_file():
        return []
    text = path.read_text(encoding="utf-8") if path.is_file() else gzip.decompress(packed.read_bytes()).decode("utf-8")
    reader = csv.DictReader(io.StringIO(text))
    if missing := {"setting", "seed", "criterion", "gap", *TOKEN_ROWS, *TOKEN_COUNTS} - set(reader.fieldnames or ()):
        raise InputError(f"{path}: lacks column(s) {sorted(missing)}: remake the token study's tables")
    return [row for row in reader if all(row[name] == value for name, value in TOKEN_ROWS.items())]
