"""A user's own divergence: `python -m derivations --new "sum(mu*log(mu/pi))"`.

parser (text to tree), divergence (tree to numbers and to SymPy), study (what the step does to it), certify (finite
differences, exceptions), torch_code and show (what is printed).
"""

from __future__ import annotations

from derivations.new.certify import certify, look, refuse_unless_zero_at_equality, threshold_tokens
from derivations.new.divergence import divergence
from derivations.new.show import report
from derivations.new.study import study
from derivations.new.torch_code import NAME as NAME
from derivations.numeric import Certificate, CertificateError


def code_in(text: str) -> str:
    """The torch code that ends a report without a refutation: what is kept in a file is what was shown."""
    return text[text.index('"""') :]


def derive(source: str, dps: int = 50, seed: int = 0, name: str = "my_measure") -> tuple[str, bool]:
    """(report, whether every formula passed its check). Raises ExpressionError for what is no divergence."""
    given = divergence(source)
    refuse_unless_zero_at_equality(given, dps, seed)
    found = study(given)
    certificate: Certificate | None = None
    error: str | None = None
    for digits in (dps, 2 * dps, 4 * dps):  # near-certain policies cost digits; what is false stays so with more
        try:
            certificate, error = certify(found, digits, seed), None
            break
        except CertificateError as refused:
            error = str(refused)
    seen = threshold_tokens(found, dps, seed)
    return report(found, look(found, dps, seed), seen, certificate, error, name), error is None
