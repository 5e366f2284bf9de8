"""Draw coefficient curves as an SVG, by hand: this room has no plotting library, and equal curves give equal bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from textwrap import wrap

from eval.method_pages.curve import Curve

# Okabe and Ito's palette without yellow and black, told apart with any common colour blindness; dashes repeat the cue.
COLOURS = ("#D55E00", "#E69F00", "#009E73", "#56B4E9", "#0072B2")
DASHES = ("none", "9 2", "5 2", "2 2", "9 2 2 2")
INK, MUTED, GRID = "#1a1a1a", "#5c5c5c", "#e4e4e4"
TICKS = (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999)
WIDTH, HEIGHT, LEFT, TOP, GAP, LEGEND = 300, 230, 52, 58, 52, 86
LINE = 16
# Beyond this a curve leaves the frame: an uncapped ratio reaches 100, and the rest would be flat beside it.
LIMIT = 6.0


def draw(title: str, curves: Sequence[Curve], caption: str) -> str:
    """The text of an SVG: one panel for each sign of the advantage, a line for each mu, a dot where pi = mu."""
    panels = [[curve for curve in curves if curve.advantage == sign] for sign in (1.0, -1.0)]
    if any(abs(g) > LIMIT for curve in curves for g in curve.g):
        caption += f" Lines leave the frame beyond ±{LIMIT:g}."
    lines = wrap(caption, 126)
    width = LEFT + 2 * WIDTH + GAP + LEGEND
    height = TOP + HEIGHT + 62 + LINE * len(lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(caption)}</desc>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(LEFT, 22, title, size=15, weight="bold"),
    ]
    for number, (panel, sign) in enumerate(zip(panels, ("+1", "−1"), strict=True)):
        parts += _panel(panel, LEFT + number * (WIDTH + GAP), f"advantage A = {sign}", number)
    parts += _legend([curve.mu for curve in panels[0]], LEFT + 2 * WIDTH + GAP + 14)
    bottom = TOP + HEIGHT + 58
    parts += [_text(LEFT, bottom + LINE * row, line, colour=MUTED) for row, line in enumerate(lines)]
    return "\n".join([*parts, "</svg>\n"])


def _panel(curves: Sequence[Curve], left: float, heading: str, number: int) -> list[str]:
    values = [min(max(g, -LIMIT), LIMIT) for curve in curves for g in (*curve.g, curve.start)]
    ticks = _ticks(min(0.0, *values), max(0.0, *values))
    room = 0.03 * (ticks[-1] - ticks[0])  # a line along the edge, such as a cap, stays visible
    low, high = ticks[0] - room, ticks[-1] + room

    def y(g: float) -> float:
        # Far outside values are drawn just outside the frame, where the clip path hides them.
        g = min(max(g, low - (high - low)), high + (high - low))
        return TOP + HEIGHT * (high - g) / (high - low)

    def x(pi: float) -> float:
        logit = math.log(pi / (1 - pi))
        return left + WIDTH * (logit + 7) / 14

    parts = [
        f'<clipPath id="panel{number}"><rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}"/></clipPath>',
        _text(left, TOP - 10, heading, weight="bold"),
    ]
    for tick in ticks:
        shade = MUTED if tick == 0 else GRID
        parts.append(_line(left, y(tick), left + WIDTH, y(tick), shade))
        parts.append(_text(left - 7, y(tick) + 4, f"{tick:g}".replace("-", "−"), anchor="end", colour=MUTED))
    for tick in TICKS:
        parts.append(_line(x(tick), TOP + HEIGHT, x(tick), TOP + HEIGHT + 4, MUTED))
        label = f"{tick:g}".removeprefix("0")
        parts.append(_text(x(tick), TOP + HEIGHT + 17, label, anchor="middle", colour=MUTED))
    parts.append(_line(left, TOP + HEIGHT, left + WIDTH, TOP + HEIGHT, MUTED))
    middle = left + WIDTH / 2
    parts.append(_text(middle, TOP + HEIGHT + 35, "π of the sampled token (logit scale)", anchor="middle"))
    if number == 0:
        parts.append(_text(left - 40, TOP - 10, "g", weight="bold"))
    parts.append(f'<g clip-path="url(#panel{number})" fill="none" stroke-width="2" stroke-linejoin="round">')
    for curve, colour, dash in zip(curves, COLOURS, DASHES, strict=True):
        points = " ".join(f"{x(pi):.1f},{y(g):.1f}" for pi, g in zip(curve.pi, curve.g, strict=True))
        parts.append(f'<polyline points="{points}" stroke="{colour}" stroke-dasharray="{dash}"/>')
    for curve, colour in zip(curves, COLOURS, strict=True):
        dot = f'cx="{x(curve.mu):.1f}" cy="{y(curve.start):.1f}" r="4" fill="{colour}" stroke="white"'
        parts.append(f"<circle {dot}/>")
    parts.append("</g>")
    return parts


def _legend(mus: Sequence[float], left: float) -> list[str]:
    parts = [_text(left, TOP + 4, "μ", weight="bold")]
    for row, (mu, colour, dash) in enumerate(zip(mus, COLOURS, DASHES, strict=True)):
        y = TOP + 24 + 20 * row
        parts.append(
            f'<line x1="{left}" y1="{y}" x2="{left + 30}" y2="{y}" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{dash}"/>'
        )
        parts.append(_text(left + 38, y + 4, f"{mu:g}".removeprefix("0")))
    y = TOP + 24 + 20 * len(mus)
    parts.append(f'<circle cx="{left + 15}" cy="{y}" r="4" fill="{MUTED}"/>')
    parts.append(_text(left + 38, y + 4, "π = μ"))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers that cover [low, high], at most eight."""
    span = max(high - low, 1e-9)
    raw = span / 6
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw * (1 - 1e-9))
    # A value that rounding lifts over a tick by 1e-9 needs no further tick.
    first, last = math.floor(low / step + 1e-6), math.ceil(high / step - 1e-6)
    return [step * n for n in range(first, max(last, first + 1) + 1)]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(
    x: float, y: float, text: str, size: int = 12, weight: str = "normal", anchor: str = "start", colour: str = INK
) -> str:
    style = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
