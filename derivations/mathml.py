"""LaTeX, as far as this room writes it, to MathML: what a browser shows as mathematics without network or script.

The LaTeX of `render.latex` and of the statements is the one source of both the document and the page. A macro that is
not listed here is an error, not a gap in the page.
"""

from __future__ import annotations

import re
from html import escape

_SYMBOLS = {
    r"\alpha": "α", r"\beta": "β", r"\gamma": "γ", r"\delta": "δ", r"\Delta": "Δ", r"\epsilon": "ϵ", r"\eta": "η",
    r"\theta": "θ", r"\lambda": "λ", r"\mu": "μ", r"\nu": "ν", r"\xi": "ξ", r"\pi": "π", r"\rho": "ρ", r"\sigma": "σ",
    r"\tau": "τ", r"\phi": "φ", r"\varphi": "φ", r"\varepsilon": "ε", r"\ell": "ℓ", r"\infty": "∞", r"\emptyset": "∅",
    r"\ldots": "…", r"\dots": "…", r"\cdots": "⋯",
}  # fmt: skip
_OPERATORS = {
    r"\|": "‖", r"\partial": "∂", r"\nabla": "∇", r"\cdot": "·", r"\times": "×", r"\in": "∈", r"\notin": "∉",
    r"\cup": "∪", r"\cap": "∩", r"\setminus": "∖", r"\subset": "⊂", r"\subseteq": "⊆", r"\le": "≤", r"\leq": "≤",
    r"\ge": "≥", r"\geq": "≥", r"\neq": "≠", r"\ne": "≠", r"\to": "→", r"\mapsto": "↦", r"\approx": "≈", r"\sim": "∼",
    r"\equiv": "≡", r"\pm": "±", r"\wedge": "∧", r"\vee": "∨", r"\neg": "¬", r"\forall": "∀", r"\exists": "∃",
    r"\Rightarrow": "⇒", r"\Leftrightarrow": "⇔", r"\iff": "⇔", r"\mid": "|", r"\ll": "≪", r"\gg": "≫", r"\%": "%",
    r"\{": "{", r"\}": "}", r"\langle": "⟨", r"\rangle": "⟩", r"\lfloor": "⌊", r"\rfloor": "⌋", r"\lceil": "⌈",
    r"\rceil": "⌉", r"\_": "_", r"\vert": "|", r"\Vert": "‖", r"\lvert": "|", r"\rvert": "|",
}  # fmt: skip
_LIMITS = {r"\sum": "∑", r"\prod": "∏"}
_NAMED = (r"\log", r"\exp", r"\ln", r"\sin", r"\cos")
_NAMED_LIMITS = (r"\min", r"\max", r"\sup", r"\inf", r"\lim")
_ACCENTS = {r"\tilde": "~", r"\dot": "˙", r"\bar": "¯", r"\hat": "^", r"\overline": "¯"}
_SPACES = {r"\,": "0.17em", r"\:": "0.22em", r"\;": "0.28em", r"\ ": "0.3em", r"\quad": "1em", r"\qquad": "2em"}
_WORDS = (r"\mathrm", r"\operatorname", r"\text", r"\mathbb", r"\mathcal")
_BOLD = {str(digit): chr(0x1D7CE + digit) for digit in range(10)}
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\S")


class MathError(ValueError):
    """LaTeX that this file cannot show; the message has the piece and the whole."""


def mathml(latex: str, display: bool = False) -> str:
    """A <math> element of an HTML page. Raises MathError for a macro not listed, or for unmatched braces."""
    body = _Reader(latex).whole()
    kind = ' display="block"' if display else ""
    return f"<math{kind}>{body}</math>"


def prose(source: str) -> str:
    """HTML of English with LaTeX mathematics between dollar signs."""
    parts = source.split("$")
    if len(parts) % 2 == 0:
        raise MathError(f"an odd number of dollar signs in {source!r}")
    return "".join(mathml(part) if place % 2 else escape(part, quote=False) for place, part in enumerate(parts))


class _Reader:
    def __init__(self, latex: str) -> None:
        self.latex = latex
        # A word's spaces are kept by reading it from the text, so tokens carry their end.
        self.tokens = [(found.group(), found.end()) for found in _TOKEN.finditer(latex)]
        self.place = 0

    def whole(self) -> str:
        body = self.row(())
        if self.place < len(self.tokens):
            raise self.error(f"{self.next!r} has no partner")
        return body

    @property
    def next(self) -> str:
        return self.tokens[self.place][0] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        if self.place >= len(self.tokens):
            raise self.error("it ends too early")
        self.place += 1
        return self.tokens[self.place - 1][0]

    def error(self, what: str) -> MathError:
        return MathError(f"{what} in the LaTeX {self.latex!r}")

    def row(self, ends: tuple[str, ...]) -> str:
        """Everything up to one of `ends`, or a token that closes an outer group; the end is left unread."""
        parts = []
        while self.next and self.next not in (*ends, "}", r"\right", r"\end", "&", r"\\"):
            parts.append(self.scripted())
        return "<mrow>" + "".join(parts) + "</mrow>"

    def scripted(self) -> str:
        limits = self.next in _LIMITS or self.next in _NAMED_LIMITS
        base, below, above = self.atom(), None, None
        while self.next in ("_", "^", "'"):
            mark = self.take()
            if mark == "_":
                below = self.argument()
            else:
                above = "<mo>′</mo>" if mark == "'" else self.argument()
        under, over = ("munder", "mover") if limits else ("msub", "msup")
        if below is not None and above is not None:
            both = "munderover" if limits else "msubsup"
            return f"<{both}>{base}{below}{above}</{both}>"
        if below is not None:
            return f"<{under}>{base}{below}</{under}>"
        return base if above is None else f"<{over}>{base}{above}</{over}>"

    def argument(self) -> str:
        """One token, or a group in braces."""
        return self.atom()

    def group(self) -> str:
        if self.take() != "{":
            raise self.error(f"{self.tokens[self.place - 1][0]!r} where a group in braces is expected")
        body = self.row(())
        if self.take() != "}":
            raise self.error("a brace without its partner")
        return body

    def words(self) -> str:
        """The raw text of a group in braces."""
        if self.take() != "{":
            raise self.error("a name needs braces")
        start = self.tokens[self.place - 1][1]
        while self.take() != "}":
            pass
        return self.latex[start : self.tokens[self.place - 1][1] - 1]

    def atom(self) -> str:
        token = self.next
        if token == "{":
            return self.group()
        self.take()
        if token in _SYMBOLS:
            return f"<mi>{_SYMBOLS[token]}</mi>"
        if token in _OPERATORS:
            return f"<mo>{_OPERATORS[token]}</mo>"
        if token in _LIMITS:
            return f"<mo>{_LIMITS[token]}</mo>"
        if token in _NAMED or token in _NAMED_LIMITS:
            tight = self.next in ("{", "(", r"\left", "_", "^", "")
            return f"<mi>{token[1:]}</mi>" + ("" if tight else '<mspace width="0.17em"/>')
        if token in _SPACES:
            return f'<mspace width="{_SPACES[token]}"/>'
        if token.startswith("\\"):
            return self.macro(token)
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{token}</mi>"
        if token in ("_", "^", "}", "&"):
            raise self.error(f"{token!r} where a value is expected")
        if token in "()[]|":  # only \left and \right ask for a bracket as high as what it holds
            return f'<mo stretchy="false" lspace="0" rspace="0">{token}</mo>'
        return f"<mo>{'−' if token == '-' else escape(token)}</mo>"

    def macro(self, token: str) -> str:
        if token == r"\frac":
            return f"<mfrac>{self.group()}{self.group()}</mfrac>"
        if token == r"\sqrt":
            if self.next != "[":
                return f"<msqrt>{self.group()}</msqrt>"
            self.take()
            order = self.row(("]",))
            self.take()
            return f"<mroot>{self.group()}{order}</mroot>"
        if token == r"\left":
            return self.fenced()
        if token in _ACCENTS:
            return f'<mover accent="true">{self.argument()}<mo>{_ACCENTS[token]}</mo></mover>'
        if token == r"\mathbf":
            return f"<mn>{''.join(_BOLD.get(letter, letter) for letter in self.words())}</mn>"
        if token in _WORDS:
            kind = "mtext" if token == r"\text" else "mi"
            return f"<{kind}>{escape(self.words(), quote=False).replace(' ', '&#160;')}</{kind}>"
        if token == r"\substack":
            return self.group()
        if token == r"\begin":
            return self.table(self.words())
        raise self.error(f"{token!r} is not among the macros of derivations/mathml.py")

    def fenced(self) -> str:
        opening = self.take()
        body = self.row(())
        if self.take() != r"\right":
            raise self.error(r"a \left without its \right")
        closing = self.take()
        fences = [
            "" if fence == "." else f'<mo stretchy="true">{escape(_OPERATORS.get(fence, fence))}</mo>'
            for fence in (opening, closing)
        ]
        return f"<mrow>{fences[0]}{body}{fences[1]}</mrow>"

    def table(self, name: str) -> str:
        if name != "cases":
            raise self.error(f"the environment {name!r} is not known")
        rows: list[list[str]] = [[]]
        while True:
            rows[-1].append(f"<mtd>{self.row(())}</mtd>")
            mark = self.take()
            if mark == r"\end":
                self.words()
                break
            if mark == r"\\":
                rows.append([])
            elif mark != "&":
                raise self.error(f"{mark!r} inside cases")
        lines = "".join(f"<mtr>{''.join(row)}</mtr>" for row in rows)
        return f'<mrow><mo stretchy="true">{{</mo><mtable columnalign="left left">{lines}</mtable></mrow>'
