"""Every stated claim, corrupted by a sign or a factor, is refuted twice: by its proof and by its certificate.

The whole right-hand side is negated, doubled and halved; every term of every sum of terms within it, also under an
absolute value, a sign or a summation, is negated and doubled. Not covered: changed exponents, indices and ranges.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet
from sympy import Add, Expr, Indexed, Integer, KroneckerDelta, Sum

import derivations.theorems  # noqa: F401  (registers them, also where this file runs alone)
from derivations import theorem
from derivations.numeric import CertificateError
from derivations.proof import ProofError

FACTORS = {"sign": Integer(-1), "double": Integer(2), "half": Integer(1) / 2}
OF_ONE_TERM = ("sign", "double")


def with_one_term_scaled(expr: Expr, scale: Expr) -> Iterator[Expr]:
    """All expressions that differ from `expr` by `scale` on one term of one sum of terms."""
    if expr.is_Atom or isinstance(expr, Indexed | KroneckerDelta):
        return
    for place, argument in enumerate(expr.args):
        if isinstance(expr, Sum) and place > 0:
            break  # the limits
        changed = list(with_one_term_scaled(argument, scale))
        if isinstance(expr, Add):
            changed.append(scale * argument)
        for other in changed:
            yield expr.func(*expr.args[:place], other, *expr.args[place + 1 :])


def corruptions() -> Iterator[ParameterSet]:
    for name in theorem.names():
        for claim in theorem.get(name).claims:
            for kind, scale in FACTORS.items():
                terms = with_one_term_scaled(claim.right, scale) if kind in OF_ONE_TERM else ()
                variants = [scale * claim.right, *terms]
                for number, wrong in enumerate(dict.fromkeys(variants)):
                    yield pytest.param(name, claim.label, wrong, id=f"{name}-{claim.label}-{kind}-{number}")


CORRUPTIONS = list(corruptions())


@pytest.mark.parametrize(("name", "label", "wrong"), CORRUPTIONS)
def test_corrupted_claim_is_refuted(name, label, wrong):
    changed = theorem.get(name).with_claim(label, wrong)
    assert wrong != theorem.get(name).claim(label)
    with pytest.raises(ProofError, match=f"theorem {name}"):
        changed.prove()
    with pytest.raises(CertificateError, match=f"theorem {name}"):
        changed.certify()


def test_every_claim_is_corrupted_in_each_way():
    seen = {(p.values[0], p.values[1]) for p in CORRUPTIONS}
    assert seen == {(name, claim.label) for name in theorem.names() for claim in theorem.get(name).claims}
    whole = [p for p in CORRUPTIONS if p.id.endswith("-0")]
    assert len(whole) == len(FACTORS) * len(seen)
    assert len(CORRUPTIONS) > 4 * len(seen), "terms within the claims were not reached"
