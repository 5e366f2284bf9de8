"""Run theorems and write what came out: a table for the terminal, steps, JSON, text and LaTeX."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from mpmath import nstr

from derivations.numeric import Certificate, CertificateError
from derivations.proof import ProofError, Step
from derivations.render import latex, plain, text
from derivations.theorem import MARKS, Theorem

_MARKS = f"marks: {', '.join(f'{mark} {text}' for mark, text in MARKS.items())}"
_RELATION = {"=": "=", ">": r">", ">=": r"\ge"}
_NOTATION = (
    r"$\mu$: rollout policy. $\pi$: current policy, the softmax of its logits $z$. Tokens are numbered from 0; "
    r"$k$ is the sampled one; sums run over all $n$ tokens unless they name the retained support $S$ or the tail $T$. "
    r"$[i=k]$ is 1 if $i$ is $k$, else 0."
)


@dataclass(frozen=True)
class Result:
    """What became of one theorem. `error` is None exactly if it was proved and certified. seconds: of CPU, so that
    a busy machine changes nothing."""

    theorem: Theorem
    steps: tuple[Step, ...]
    certificate: Certificate | None
    error: str | None
    seconds: float

    @property
    def ok(self) -> bool:
        return self.error is None


def run(theorem: Theorem, dps: int = 50, seed: int = 0) -> Result:
    """Prove and certify one theorem; a refusal becomes `Result.error`, other exceptions propagate."""
    start = time.process_time()
    steps: tuple[Step, ...] = ()
    certificate, error = None, None
    try:
        steps = tuple(theorem.prove())
        certificate = theorem.certify(dps, seed)
    except (ProofError, CertificateError) as refused:
        error = str(refused)
    return Result(theorem, steps, certificate, error, time.process_time() - start)


def table(results: Sequence[Result], with_seconds: bool = True) -> str:
    """One row per theorem. Without seconds the text is the same on every run."""
    rows = [["theorem", "source", "mark", "proved", "steps", "cases", "worst error", "seconds"]]
    for result in results:
        certificate = result.certificate
        rows.append(
            [
                result.theorem.name, result.theorem.source, result.theorem.mark, _proved(result),
                str(len(result.steps)), str(certificate.cases) if certificate else "-",
                nstr(certificate.worst, 2) if certificate else "-", f"{result.seconds:.2f}",
            ]
        )  # fmt: skip
    if not with_seconds:
        rows = [row[:-1] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    noted = [result.theorem for result in results if result.theorem.unproved]
    lines += [f"* {theorem.name}: {plain(theorem.unproved)}" for theorem in noted]
    return "\n".join([*lines, _MARKS])


def _proved(result: Result) -> str:
    if not result.ok:
        return "NO"
    return "yes *" if result.theorem.unproved else "yes"


def steps_text(result: Result) -> str:
    """Statement, assumptions, claims, every step and the certificate of one theorem, for the terminal."""
    theorem = result.theorem
    lines = [f"{theorem.name}: {theorem.title}", f"Source: {theorem.source} [{theorem.mark}]", ""]
    lines += [fill(plain(theorem.statement), 100), "", fill(plain(_NOTATION), 100), "", "Assumptions"]
    lines += [f"  - {plain(assumption)}" for assumption in theorem.assumptions]
    lines += ["", "Claims", *(f"  {claim.text}" for claim in theorem.claims), "", "Proof"]
    for number, step in enumerate(result.steps, 1):
        lines += [f"  {number}. {plain(step.reason)}", f"       {text(step.left)}"]
        lines += [f"     {step.relation} {text(step.right)}"]
    if result.error is not None:
        lines += ["", f"REFUTED: {result.error}"]
    elif result.certificate is not None:
        certificate = result.certificate
        lines += [
            "",
            f"Certificate: {certificate.cases} comparisons with finite differences at {certificate.digits} digits, "
            f"worst relative error {nstr(certificate.worst, 2)}, tolerance {nstr(certificate.tolerance, 2)}",
        ]
    return "\n".join(lines)


def as_json(results: Sequence[Result]) -> str:
    """Everything but the timings, as JSON with one object per theorem."""
    theorems = []
    for result in results:
        theorem, certificate = result.theorem, result.certificate
        theorems.append(
            {
                "name": theorem.name,
                "title": theorem.title,
                "source": theorem.source,
                "mark": theorem.mark,
                "statement": plain(theorem.statement),
                "assumptions": [plain(assumption) for assumption in theorem.assumptions],
                "claims": [{"label": c.label, "text": c.text, "latex": c.latex} for c in theorem.claims],
                "proved": result.ok,
                "error": result.error,
                "steps": [
                    {"reason": plain(s.reason), "left": text(s.left), "relation": s.relation, "right": text(s.right)}
                    for s in result.steps
                ],
                "certificate": certificate
                and {
                    "cases": certificate.cases,
                    "digits": certificate.digits,
                    "worst_relative_error": nstr(certificate.worst, 3),
                    "tolerance": nstr(certificate.tolerance, 3),
                },
            }
        )
    return json.dumps({"theorems": theorems}, indent=1, ensure_ascii=False) + "\n"


def as_text(results: Sequence[Result]) -> str:
    """The table without timings, then every theorem with its steps."""
    parts = [table(results, with_seconds=False), *(steps_text(result) for result in results)]
    return ("\n\n" + "=" * 80 + "\n\n").join(parts) + "\n"


def as_tex(results: Sequence[Result]) -> str:
    """A complete LaTeX document: statements, claims and proof steps."""
    lines = [r"\documentclass{article}", r"\usepackage{amsmath,amssymb}", r"\allowdisplaybreaks", r"\begin{document}"]
    lines += [r"\section*{Notation}", _NOTATION]
    for result in results:
        theorem = result.theorem
        lines += ["", rf"\section*{{{theorem.title}}}", rf"\textit{{{_prose(theorem.source)} [{theorem.mark}]}}", ""]
        lines += [_prose(theorem.statement), "", r"\begin{itemize}"]
        lines += [rf"\item {_prose(assumption)}" for assumption in theorem.assumptions]
        lines += [r"\end{itemize}", r"\begin{align*}", theorem.latex, r"\end{align*}"]
        if not result.ok:
            lines.append(r"\textbf{Not proved.}")
            continue
        lines.append(r"\begin{enumerate}")
        for step in result.steps:
            lines.append(rf"\item {_prose(step.reason)}")
            lines.append(rf"\begin{{multline*}} {latex(step.left)} \\ {_RELATION[step.relation]} {latex(step.right)}")
            lines.append(r"\end{multline*}")
        lines.append(r"\end{enumerate}")
    return "\n".join([*lines, r"\end{document}"]) + "\n"


def _prose(source: str) -> str:
    """Escape the underscores of names outside mathematics."""
    parts = source.split("$")
    return "$".join(part if place % 2 else part.replace("_", r"\_") for place, part in enumerate(parts))


def write_atomically(path: Path, content: str) -> None:
    """Write UTF-8 to `path` so that a reader sees the old file or the whole new one.

    Raises FileNotFoundError if the folder does not exist.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # mkstemp's 0600 would keep the file from other readers
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_new(path: Path, content: str) -> None:
    """Write UTF-8 to `path`, whole or not at all. Raises FileExistsError where there is such a file, which stays."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        complete = Path(folder) / path.name
        complete.write_text(content, encoding="utf-8")
        os.link(complete, path)
