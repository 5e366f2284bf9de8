"""Any recorded metric against the training step: small multiples by setting, a line for each variant.

python -m eval plot results/toy grad_norm --output grad_norm.svg
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval.figures.curves import draw_lines, label_ends, read_series, seed_note
from eval.figures.style import Look, looks, new_figure, read_variants, save
from eval.files import InputError
from eval.results import rows

# Axes of the grid, so that a row of them is as wide as the report's text.
COLUMNS = 2


def draw_metric(results: Path, metric: str, output: Path, smooth: int = 1) -> None:
    """Draw it. Raises InputError for a metric that no run has, naming those there are."""
    if smooth < 1 or smooth % 2 == 0:
        raise InputError(f"--smooth = {smooth}: allowed is an odd number of steps")
    found = list(rows(results))
    tidy = [{**row, "metric": metric, "value": row[metric]} for row in found if metric in row]
    if not tidy:
        known = sorted({name for row in found for name, value in row.items() if isinstance(value, float)})
        raise InputError(f"METRIC = {metric!r}: no run of {results} has it; allowed is one of {', '.join(known)}")
    series = read_series(tidy, metric)
    variants = looks_of(results, {row["variant"] for row in tidy})
    counts = {len(values) for lines in series.values() for _, values in lines.values()}
    columns = min(COLUMNS, len(series))
    height = -(-len(series) // columns)
    smoothed = f" Moving mean of {smooth} steps." if smooth > 1 else ""
    note = f"{seed_note(counts)}{smoothed} From {len({_run(row) for row in tidy})} finished runs."
    figure, grid = new_figure(height, columns, (6.6 * columns, 0.5 + 3.9 * height), note)
    axes = [place for line in grid for place in line]
    for place, (setting, lines) in zip(axes, series.items(), strict=False):
        label_ends(place, draw_lines(place, lines, variants, smooth), variants)
        place.set_title(setting, parse_math=False)
        place.set_ylabel(metric, parse_math=False)
    for place in axes[len(series) :]:
        place.set_visible(False)
    save(figure, output, {"Title": f"{metric} against training step", "Description": note})


def _run(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["setting"], row["variant"], row["seed"]


def looks_of(results: Path, variants: set[str]) -> dict[str, Look]:
    """Those of the report where variants.json is there already and names them all, else by the variants' names."""
    path = results / "variants.json"
    if path.is_file() and variants <= json.loads(path.read_text()).keys():
        return read_variants(path, variants)
    try:
        chosen = looks(dict.fromkeys(sorted(variants)))
    except ValueError as error:
        raise InputError(str(error)) from error
    # No provenance is known without the catalogue.
    return {name: Look(name, "", *look) for name, look in chosen.items()}
