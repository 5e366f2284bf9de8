"""The report on a user's divergence, for the terminal."""

from __future__ import annotations

from mpmath import nstr
from sympy import Expr

from derivations.new.certify import Findings
from derivations.new.divergence import p
from derivations.new.study import Study
from derivations.new.torch_code import torch_code
from derivations.numeric import Certificate
from derivations.render import text
from derivations.setting import k, mu
from derivations.tails import COLLISION

_RULE = {
    "none": "no tail term",
    "aggregated": "the tail moves as one logit",
    "uniform": "the tail is flat",
    "collision": "exact",
}
_C2 = {rule: text(value) for rule, value in COLLISION.items()} | {"collision": "Σ_j∈T(π_j^2)"}


def report(
    study: Study,
    findings: Findings,
    threshold_tokens: int,
    certificate: Certificate | None,
    error: str | None,
    name: str = "my_measure",
) -> str:
    """All there is to say, ending with the torch code. threshold_tokens: where the local term's threshold was
    seen to hold, 0 if it did not."""
    source = study.divergence.source
    lines = [f"Divergence  D = {text(study.full)}", "  zero at pi = mu: yes, on random policies"]
    if findings.negative is None:
        lines.append("  never negative: no exception found")
    else:
        lines.append(f"  WARNING: no divergence, it is negative somewhere: {findings.negative}")
    if findings.reduced_above is None:
        lines.append("  merging the tail never raises it, so that the Top-K form is a lower bound: no exception found")
    else:
        lines.append(f"  WARNING: merging the tail can raise it, the Top-K form is no bound: {findings.reduced_above}")
    if "abs" in source:
        lines.append("  abs has a kink: the formulas hold where its argument is not 0")
    if study.divergence.has_root_of_zero():
        lines.append("  a root of what is 0 at pi = mu has a kink there: the formulas hold elsewhere")
    lines += ["", "Step on token k: the logits move by c (e_k - pi); per unit of c, with g_i = dD/dpi_i,"]
    lines += _aligned(
        ("slope", "g_i", study.slope),
        ("mean", "gbar = Σ_i π_i g_i", study.mean),
        ("local term", "L_k = π_k (g_k - gbar)", study.local),
        ("global term", "-Σ_i π_i L_i", study.global_),
    )
    lines += [
        "  dD/dc = local term + global term",
        "",
        "Sign of the local term, which is all that a ratio criterion sees",
    ]
    lines += [f"  {line}" for line in _sign_lines(study, findings, threshold_tokens)]
    lines += ["", "Top-K: retained tokens S, the tail T as one class"]
    lines += _aligned(("reduced", "D~", study.reduced), ("tail form", "dD~/dc", study.tail))
    lines += [f"    {rule:<11} c2 = {_C2[rule]:<14} {why}" for rule, why in _RULE.items()]
    lines += ["", "Checks"]
    lines += [f"  proved by SymPy for every vocabulary size: {', '.join(study.proved) or 'nothing'}"]
    lines += [f"  not shown by SymPy, numbers only: {name} ({reason})" for name, reason in study.refused.items()]
    if missed := sorted(set(study.divergence.budget.missed)):
        lines.append(f"  not shown (out of time), the plainer form stands in its place: {', '.join(missed)}")
    if certificate is not None:
        lines.append(
            f"  {certificate.cases} comparisons with finite differences at {certificate.digits} digits, worst relative "
            f"error {nstr(certificate.worst, 2)}, tolerance {nstr(certificate.tolerance, 2)}"
        )
    if error is not None:
        lines.append(f"  REFUTED: {error}")
        return "\n".join(lines)
    heading = f"Torch: a measure for any mask method, as predictive_direction(signals, {name.upper()}, rule)"
    return "\n".join([*lines, "", heading, "", torch_code(study.divergence, name)])


def _aligned(*rows: tuple[str, str, Expr]) -> list[str]:
    return [f"  {name:<12} {left} = {text(right)}" for name, left, right in rows]


def _sign_lines(study: Study, findings: Findings, threshold_tokens: int) -> list[str]:
    exception = findings.ratio_exception
    if study.threshold is not None and threshold_tokens:
        place = study.threshold.value.xreplace({p: mu[k]})
        if study.threshold.is_ratio:
            return [f"sign(r - 1), exactly ({study.threshold.why})"]
        shifted = f"not that of r - 1; it is sign(r - r*), r* = {text(place)}"
        why = f"with G = gbar ({study.threshold.why}; checked on {threshold_tokens} tokens)"
        return [shifted, why, f"example: {exception}" if exception else "no random token shows the difference"]
    if exception is None:
        return [f"sign(r - 1) at all {findings.tokens} random tokens; no proof"]
    return [f"not that of r - 1: {exception}", "no threshold in closed form was found"]
