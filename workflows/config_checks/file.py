"""Configuration files as they were written: what Snakemake's own reading hides, a key given twice and a copied tier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from workflows.config_checks.values import GridError, place_of

# libyaml's, where PyYAML was built with it: ten times as fast.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def check_repeated_keys(path: Path) -> None:
    """Raises GridError naming the first key that one mapping of a YAML or JSON file gives twice, and its lines.

    A merge key (`<<`) may be overridden: the key beside it is given once.
    """
    # YAML takes no tabs between keys; JSON does.
    loader = LOADER(path.read_text().expandtabs())
    try:
        root = loader.get_single_node()
        if root is None:
            return
        for place, lines in _repeated(root, (), ()):
            numbers = ", ".join(str(line + 1) for line in lines)
            raise GridError(f"{path}: {place_of(place)} is given twice (lines {numbers})")
    except yaml.YAMLError as error:
        raise GridError(f"{path}: no readable YAML: {' '.join(str(error).split())}") from None


def check_tier(tier: str, files: Sequence[Path], named: bool) -> None:
    """A file's `tier` is its own name, so that a copy does not write over the results of what it was copied from.

    named: the command line says the tier itself (--config tier=..., or make TIER=...). Raises GridError.
    """
    stating = [path for path in files if _tier_of(path) is not None]
    if named or not stating or tier == stating[-1].stem:
        return
    path = stating[-1]
    raise GridError(
        f"{path}: tier = {tier!r}: allowed is the file's own name {path.stem!r} (results/{tier} is that of "
        f"{tier}.yaml), or say it on the command line: --config tier={tier}"
    )


def _tier_of(path: Path) -> str | None:
    value = yaml.load(path.read_text().expandtabs(), LOADER)
    return value.get("tier") if isinstance(value, dict) else None


def _repeated(
    node: yaml.Node, place: tuple[str | int, ...], above: tuple[yaml.Node, ...]
) -> Iterator[tuple[tuple[str | int, ...], list[int]]]:
    if node in above:
        return
    if isinstance(node, yaml.SequenceNode):
        for i, entry in enumerate(node.value):
            yield from _repeated(entry, (*place, i), (*above, node))
    elif isinstance(node, yaml.MappingNode):
        lines: dict[tuple[str, str], list[int]] = {}
        for key, entry in node.value:
            name = str(key.value)
            lines.setdefault((key.tag, name), []).append(key.start_mark.line)
            if len(lines[key.tag, name]) > 1:
                yield (*place, name), lines[key.tag, name]
            yield from _repeated(entry, (*place, name), (*above, node))
