"""Shared look of the figures, and saving them so that the same data give the same bytes."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # before pyplot: no display is needed to write a file

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from eval.files import InputError, read_json, write_text
from eval.variants import distinct_titles
from methods.provenance import MARKS

# Okabe and Ito's palette, without its yellow (unreadable on white): told apart with any common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Colour is never the only cue: lines of one colour have other dashes, then other markers.
DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.6)), (0, (9, 1.4)), (0, (1.2, 1.2)))
MARKERS = ("", "s", "^", "D", "v")
# Chosen so that the toy tier's seven methods ask for seven colours.
SALT = "6040"
LOOKS = len(PALETTE) * len(DASHES) * len(MARKERS)
INK, MUTED, GRID = "#1a1a1a", "#5c5c5c", "#e4e4e4"
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")

SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "tether",  # element ids derive from it instead of a random one
    "svg.fonttype": "path",  # outlines: the same look whatever fonts the reader has
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "figure.facecolor": "white",
}


@dataclass(frozen=True)
class Look:
    """How one variant is shown. marker: empty for the first lines of a colour."""

    title: str
    mark: str
    colour: str
    dashes: Any
    marker: str = ""


def read_variants(path: Path, variants: Iterable[str]) -> dict[str, Look]:
    """{variant: Look} for `methods`, in the order of variants.json, which also decides the looks.

    variants.json is {variant: {"title": text, "mark": F | S | I | N, "options": {...}, "colour": "#rrggbb"}}, the
    last two optional. No two labels share a look (`looks`) or a title (`eval.variants`).
    """
    content, wanted = read_json(path, "variants"), set(variants)
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected an object of labels, got {type(content).__name__}")
    if wanted - content.keys():
        raise InputError(f"{path}: no entry for {sorted(wanted - content.keys())}; it has {sorted(content)}")
    for name, entry in content.items():
        where = f"{path}, variant {name}"
        title, mark = (entry.get("title"), entry.get("mark")) if isinstance(entry, dict) else (None, None)
        colour = entry.get("colour") or PALETTE[0] if isinstance(entry, dict) else ""
        if not isinstance(title, str) or not title or mark not in MARKS:
            raise InputError(f"{where}: needs a title and a mark of {list(MARKS)}, got {entry!r}")
        if not isinstance(colour, str) or not _COLOUR.fullmatch(colour):
            raise InputError(f"{where}: colour must look like #0072B2, got {colour!r}")
    try:
        chosen = looks({name: entry.get("colour") for name, entry in content.items()})
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    titles = distinct_titles(content)
    return {name: Look(titles[name], content[name]["mark"], *chosen[name]) for name in content if name in wanted}


def _wishes(name: str) -> list[str]:
    """The palette in the order in which a label asks for it, from its name alone."""
    return sorted(PALETTE, key=lambda colour: hashlib.sha256(f"{SALT}{name}{colour}".encode()).digest())


def looks(colours: Mapping[str, str | None]) -> dict[str, tuple[str, Any, str]]:
    """{variant: (colour, dashes, marker)}, no two alike; colours: of each variant, or None to have one chosen.

    A variant asks for the colour that its name stands for and gets it, or the next one, among those used least so far.
    So a variant added at the end changes no other, one added elsewhere few; a colour of its own pins a variant's.
    Raises ValueError for more variants of one colour than there are looks.
    """
    used: dict[str, int] = {}
    found = {}
    for name, own in colours.items():
        colour = own
        if colour is None:
            fewest = min(used.get(each, 0) for each in PALETTE)
            colour = next(each for each in _wishes(name) if used.get(each, 0) == fewest)
        place = used.get(colour, 0)
        if place >= len(DASHES) * len(MARKERS):
            raise ValueError(f"{name} is one label too many: a figure has {LOOKS} looks, {place} of them in {colour}")
        used[colour] = place + 1
        # Colours start at different dashes, so that the first lines differ in both.
        first = PALETTE.index(colour) if colour in PALETTE else 0
        found[name] = (colour, DASHES[(first + place) % len(DASHES)], MARKERS[place // len(DASHES)])
    return found


def spread(targets: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions as near to `targets` as can be with `gap` between neighbours, inside [low, high] if they fit.

    Keeps the order. Used for labels at line ends.
    """
    order = sorted(range(len(targets)), key=lambda i: (targets[i], i))
    gap = min(gap, (high - low) / max(len(targets) - 1, 1))
    placed: list[list[Any]] = []  # blocks [mean position of the block's first label, members]
    for i in order:
        placed.append([min(max(targets[i], low), high), [i]])
        while len(placed) > 1 and placed[-1][0] < placed[-2][0] + gap * len(placed[-2][1]):
            start, members = placed.pop()
            before, head = placed[-1]
            joined = head + members
            centre = (before * len(head) + (start - gap * len(head)) * len(members)) / len(joined)
            placed[-1] = [min(max(centre, low), high - gap * (len(joined) - 1)), joined]
    result = [0.0] * len(targets)
    for start, members in placed:
        for rank, i in enumerate(members):
            result[i] = start + gap * rank
    return result


def new_figure(rows: int, columns: int, size: tuple[float, float], footnote: str) -> tuple[Figure, Any]:
    """A figure in our style with small print of one or more lines below, and its axes as a [rows, columns] array."""
    plt.rcParams.update(matplotlib.rcParamsDefault)
    plt.rcParams.update(SETTINGS)
    # In inches, whatever the figure's height: a line of 9 points takes 0.15.
    room = (0.12 + 0.15 * (footnote.count("\n") + 1)) / size[1]
    layout = ConstrainedLayoutEngine(rect=(0.0, room, 1.0, 1.0 - room))
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout=layout)
    figure.text(0.004, 0.04 / size[1], footnote, color=MUTED, fontsize=9, ha="left", va="bottom", parse_math=False)
    return figure, axes


def save(figure: Figure, output: Path, texts: Mapping[str, str]) -> None:
    """Write the SVG (and, for looking at it, a PNG if `output` ends so) atomically, then close the figure.

    `texts` may give Title and Description, which readers for the blind use.
    """
    try:
        if output.suffix == ".png":
            figure.savefig(output, dpi=160)
        elif output.suffix == ".svg":
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, **texts})
            write_text(output, buffer.getvalue())
        else:
            raise InputError(f"{output}: a figure must end in .svg (or .png)")
    finally:
        plt.close(figure)
