"""The list of claims: what a paper says, the one number of ours that tests it, and the margin, fixed before a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from eval.claims.outcomes import OUTCOMES
from eval.files import InputError, require_file

KINDS = ("difference", "equivalence", "at_least_as_good", "rate", "ratio")
MARKS = ("F", "S", "I", "N")
RATES = ("collapse", "dip")
# Columns of tokens_seeds.csv; POOLED: share of kept tokens that lower D over all seeds, the prediction less the ratio.
POOLED = "corrective_gap_pooled"
TOKENS = ("gap", "disagreement_share", "accuracy_gain", "top_mass", POOLED)
FIELDS = {"id", "paper", "figure", "sentence", "quantity", "mark", "kind"}
OPTIONAL = {"estimand", "paper_value", "paper_error", "margin", "primary", "not_testable"}
ESTIMAND = {"outcome", "settings", "plus", "minus", "metric"}


@dataclass(frozen=True)
class Estimand:
    """Mean over the settings of the paired difference: mean outcome of `plus` less that of `minus`.

    outcome: one of OUTCOMES, with `metric` for a recorded one; or a quantity of the token study, one of TOKENS, where
    plus and minus name criteria.
    """

    outcome: str
    settings: tuple[str, ...]
    plus: tuple[str, ...]
    minus: tuple[str, ...] = ()
    metric: str = ""

    @property
    def of_tokens(self) -> bool:
        return self.outcome in TOKENS


@dataclass(frozen=True)
class Claim:
    """A row of the table. mark: where the claim is from, as in docs/glossary.md; N is a hypothesis of ours.

    paper_value, paper_error: the paper's number and its standard error, nan where it has none. margin: what matters.
    estimand: None where `not_testable` gives the reason.
    """

    id: str
    paper: str
    figure: str
    sentence: str
    quantity: str
    mark: str
    kind: str
    estimand: Estimand | None = None
    paper_value: float = math.nan
    paper_error: float = math.nan
    margin: float = math.nan
    primary: bool = True
    not_testable: str = ""

    @property
    def own(self) -> bool:
        return self.mark == "N"

    @property
    def side(self) -> int:
        """Of 0 on which the claim lies: that of the paper's number, else above."""
        return -1 if self.paper_value < 0 else 1


def read_claims(path: Path) -> list[Claim]:
    """All claims of a YAML file {claims: [...]}. Raises InputError naming the row, the field and what is allowed."""
    try:
        content = yaml.safe_load(require_file(path, "--claims").read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"--claims: {path} is not YAML: {error}") from error
    rows = content.get("claims") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{path}: claims = {rows!r}: allowed is a list of at least one claim")
    claims: list[Claim] = []
    for number, row in enumerate(rows, start=1):
        claim = parse(row, f"{path}, claim {number}")
        if claim.id in {other.id for other in claims}:
            raise InputError(f"{path}, claim {number}: id = {claim.id!r}: allowed is an id that no other claim has")
        claims.append(claim)
    return claims


def parse(row: Any, where: str) -> Claim:
    """One claim of the file. Raises InputError as `read_claims` says."""
    if not isinstance(row, Mapping):
        raise InputError(f"{where} = {row!r}: allowed is a mapping with {', '.join(sorted(FIELDS))}")
    where = f"{where} ({row['id']})" if isinstance(row.get("id"), str) else where
    _known(row, FIELDS | OPTIONAL, where)
    for name in sorted(FIELDS):
        if not isinstance(row.get(name), str) or not row[name]:
            raise InputError(f"{where}: {name} = {row.get(name)!r}: allowed is a text")
    _one_of(row, "mark", MARKS, where)
    _one_of(row, "kind", KINDS, where)
    primary, reason = row.get("primary", True), row.get("not_testable", "")
    if not isinstance(primary, bool):
        raise InputError(f"{where}: primary = {primary!r}: allowed is true or false")
    if not isinstance(reason, str) or bool(reason) == ("estimand" in row):
        raise InputError(f"{where}: not_testable = {reason!r}: allowed is a reason, or else an estimand")
    estimand = None if reason else _estimand(row["estimand"], f"{where}: estimand")
    claim = Claim(
        id=row["id"],
        paper=row["paper"],
        figure=row["figure"],
        sentence=row["sentence"],
        quantity=row["quantity"],
        mark=row["mark"],
        kind=row["kind"],
        estimand=estimand,
        paper_value=_number(row, "paper_value", where),
        paper_error=_number(row, "paper_error", where),
        margin=_number(row, "margin", where),
        primary=primary,
        not_testable=reason,
    )
    if estimand is not None:
        _check(claim, estimand, where)
    return claim


def _estimand(row: Any, where: str) -> Estimand:
    if not isinstance(row, Mapping):
        raise InputError(f"{where} = {row!r}: allowed is a mapping with outcome, settings and plus")
    _known(row, ESTIMAND, where)
    _one_of(row, "outcome", (*OUTCOMES, *TOKENS), where)
    lists = {}
    for name in ("settings", "plus", "minus"):
        value = row.get(name, [])
        good = isinstance(value, list) and all(isinstance(item, str) and item for item in value)
        if not good or len(set(value)) < len(value) or (name != "minus" and not value):
            raise InputError(f"{where}.{name} = {value!r}: allowed is a list of different names")
        lists[name] = tuple(value)
    metric = row.get("metric", "")
    if not isinstance(metric, str) or bool(metric) != (row["outcome"] == "metric"):
        raise InputError(f"{where}.metric = {metric!r}: allowed is a recorded name, with outcome = metric alone")
    return Estimand(row["outcome"], **lists, metric=metric)


def _check(claim: Claim, estimand: Estimand, where: str) -> None:
    """What a kind needs."""
    if (claim.kind == "rate") != (estimand.outcome in RATES):
        raise InputError(
            f"{where}: estimand.outcome = {estimand.outcome!r}: allowed is one of {RATES} with kind = rate"
        )
    if claim.kind == "rate" and not len(estimand.plus) == len(estimand.minus) == 1:
        raise InputError(
            f"{where}: estimand.plus, minus = {estimand.plus}, {estimand.minus}: allowed is one variant each"
        )
    if claim.kind == "ratio":
        if not claim.paper_value > 0:
            raise InputError(
                f"{where}: paper_value = {claim.paper_value}: allowed with kind = ratio is a number above 0"
            )
        return
    if not claim.margin > 0:
        raise InputError(f"{where}: margin = {claim.margin}: allowed is a number above 0")
    if claim.kind == "difference" and claim.margin > abs(claim.paper_value) / 2 * (1 + 1e-9):
        # Or the paper's own size could be "no effect that matters".
        raise InputError(f"{where}: margin = {claim.margin}: allowed is at most half of |paper_value|")
    if not estimand.minus and estimand.outcome not in ("gap", "accuracy_gain", POOLED):
        raise InputError(f"{where}: estimand.minus = []: allowed is a variant; {estimand.outcome} has no natural 0")


def _known(row: Mapping[str, Any], allowed: set[str], where: str) -> None:
    for name in row:
        if name not in allowed:
            raise InputError(f"{where}: {name}: no such field: allowed is {', '.join(sorted(allowed))}")


def _one_of(row: Mapping[str, Any], name: str, allowed: tuple[str, ...], where: str) -> None:
    if row.get(name) not in allowed:
        raise InputError(f"{where}: {name} = {row.get(name)!r}: allowed is {', '.join(allowed)}")


def _number(row: Mapping[str, Any], name: str, where: str) -> float:
    value = row.get(name)
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{where}: {name} = {value!r}: allowed is a finite number")
    return float(value)
