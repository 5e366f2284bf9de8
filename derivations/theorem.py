"""What a theorem is here: a statement whose right-hand sides are data, a proof and a numeric certificate.

The claims are the only place where a formula is typed in. `prover` and `certifier` receive them as an argument and
must reach them from the divergence or objective itself, so a corrupted claim has to be refuted twice, once by algebra
and once by finite differences (tests/derivations/test_refutation.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sympy import Expr

from derivations.numeric import Certificate, CertificateError
from derivations.proof import ProofError, Step
from derivations.render import latex, plain, text
from derivations.sums import SumError

Claims = Mapping[str, Expr]
_RELATION = {"=": "=", "<=": r"\le"}
# Provenance, in the words of methods.provenance (this room imports no torch, and a test holds the two together).
MARKS = {
    "F": "exact from the paper or its authors' code",
    "S": "from a secondary source that read the paper",
    "I": "inferred: plausible, not seen in a source",
    "N": "ours",
}


@dataclass(frozen=True)
class Claim:
    """`left = right`, or `left <= right`; left is LaTeX for the reader, right a SymPy expression for the machine."""

    label: str
    left: str
    right: Expr
    relation: str = "="

    @property
    def latex(self) -> str:
        return self.aligned("")

    @property
    def text(self) -> str:
        return f"{plain(self.left)} {self.relation} {text(self.right)}"

    def aligned(self, mark: str = "&") -> str:
        """As LaTeX, with an alignment mark before the relation."""
        return f"{self.left} {mark}{_RELATION[self.relation]} {latex(self.right)}"


@dataclass(frozen=True)
class Theorem:
    """One proved formula.

    statement, assumptions: English with $...$ for mathematics. source: paper and equation. mark: one of MARKS.
    prover(claims) returns checked steps or raises ProofError; certifier(claims, dps, seed) compares the claims with
    finite differences of the divergence or objective and returns a Certificate or raises CertificateError.
    unproved: which parts of the argument stand in words, or in numbers alone.
    """

    name: str
    title: str
    statement: str
    source: str
    mark: str
    assumptions: tuple[str, ...]
    claims: tuple[Claim, ...]
    prover: Callable[[Claims], list[Step]]
    certifier: Callable[[Claims, int, int], Certificate]
    unproved: str = ""

    def __post_init__(self) -> None:
        if self.mark not in MARKS:
            raise ValueError(f"theorem {self.name}: mark is {self.mark!r}, allowed are {', '.join(MARKS)}")
        labels = [claim.label for claim in self.claims]
        if not labels or len(set(labels)) != len(labels):
            raise ValueError(f"theorem {self.name}: claims need distinct labels and at least one, got {labels}")

    @property
    def latex(self) -> str:
        """The claims as lines of an aligned display."""
        return " \\\\\n".join(claim.aligned() for claim in self.claims)

    def claim(self, label: str) -> Expr:
        """The stated right-hand side with this label; KeyError lists the labels there are."""
        return self._by_label()[label]

    def with_claim(self, label: str, right: Expr) -> Theorem:
        """The same theorem claiming something else; proof and certificate then decide about that."""
        self.claim(label)
        changed = tuple(dataclasses.replace(old, right=right) if old.label == label else old for old in self.claims)
        return dataclasses.replace(self, claims=changed)

    def prove(self) -> list[Step]:
        """Run the proof. Raises ProofError, naming the theorem, at the first step that does not hold."""
        try:
            steps = self.prover(self._by_label())
        except (ProofError, SumError) as error:
            raise ProofError(f"theorem {self.name}: {error}") from error
        if not steps:
            raise ProofError(f"theorem {self.name}: the proof has no steps")
        return steps

    def certify(self, dps: int = 50, seed: int = 0) -> Certificate:
        """Check the claims numerically with `dps` decimal digits. Raises CertificateError naming the theorem."""
        try:
            certificate = self.certifier(self._by_label(), dps, seed)
        except CertificateError as error:
            raise CertificateError(f"theorem {self.name}: {error}") from error
        except ZeroDivisionError as error:
            raise CertificateError(f"theorem {self.name}: a claim divides by zero at a random policy") from error
        if certificate.cases == 0:
            raise CertificateError(f"theorem {self.name}: the certificate compared nothing")
        return certificate

    def _by_label(self) -> _Labels:
        return _Labels((claim.label, claim.right) for claim in self.claims)


class _Labels(dict[str, Expr]):
    def __missing__(self, label: str) -> Expr:
        raise KeyError(f"no claim {label!r}; known: {', '.join(self)}")


class UnknownTheoremError(KeyError):
    """Asked for a theorem that is not registered."""

    def __str__(self) -> str:
        return str(self.args[0])


_REGISTRY: dict[str, Theorem] = {}


def register(theorem: Theorem) -> Theorem:
    """Enter a theorem under its name; the order of registration is the order of the table."""
    if theorem.name in _REGISTRY:
        raise ValueError(f"theorem {theorem.name} is registered twice")
    _REGISTRY[theorem.name] = theorem
    return theorem


def names() -> tuple[str, ...]:
    """Names of all theorems, in reading order."""
    return tuple(_REGISTRY)


def get(name: str) -> Theorem:
    """The theorem of this name. Raises UnknownTheoremError listing the known names."""
    if name not in _REGISTRY:
        raise UnknownTheoremError(f"unknown theorem {name!r}; known: {', '.join(_REGISTRY)}")
    return _REGISTRY[name]
