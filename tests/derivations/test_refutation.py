"""Every stated claim, corrupted by a sign or a factor, is refuted twice: by its proof and by its certificate.

Corrupted are the whole right-hand side and every term of every sum of terms within it, also under an absolute value, a
sign or a summation. Not covered: changed exponents, indices and ranges of summation.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sympy import Add, Expr, Indexed, Integer, KroneckerDelta, Sum

from derivations import theorem
from derivations.numeric import CertificateError
from derivations.proof import ProofError

FACTORS = {"sign": Integer(-1), "double": Integer(2), "half": Integer(1) / 2}


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


def corruptions() -> Iterator[object]:
    for name in theorem.names():
        for claim in theorem.get(name).claims:
            for kind, scale in FACTORS.items():
                variants = [scale * claim.right, *with_one_term_scaled(claim.right, scale)]
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
    assert len(CORRUPTIONS) >= 6 * len(seen)
