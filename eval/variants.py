"""What methods are called in tables and figures: titles that no two variants share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Options named in a title; more than these are unreadable, so the variant stands there instead.
MOST = 2


def distinct_titles(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """{variant: title} of entries {title, options}; a title of its own stays as it is.

    Variants of one title are told apart by the options that differ among them (`DRPO, delta 0.15`), where these are at
    most `MOST` and tell all of them apart, else by the variant (`DRPO (drpo_a)`).
    """
    groups: dict[str, list[str]] = {}
    for variant, entry in entries.items():
        groups.setdefault(str(entry.get("title", variant)), []).append(variant)
    titles = {}
    for title, variants in groups.items():
        told = _by_options(variants, entries) if len(variants) > 1 else {}
        for variant in variants:
            titles[variant] = title if len(variants) == 1 else f"{title}{told.get(variant) or f' ({variant})'}"
    # A made title may be another entry's own.
    taken = list(titles.values())
    return {
        variant: t if taken.count(t) == 1 else f"{t} ({variant})" for variant, t in ((k, titles[k]) for k in entries)
    }


def _by_options(variants: list[str], entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    options = {variant: entries[variant].get("options") or {} for variant in variants}
    keys = list(dict.fromkeys(key for found in options.values() for key in found))
    differ = [key for key in keys if len({repr(found.get(key)) for found in options.values()}) > 1]
    texts = {
        variant: "".join(f", {key} {_text(found[key])}" for key in differ if key in found)
        for variant, found in options.items()
    }
    return texts if 0 < len(differ) <= MOST and len(set(texts.values())) == len(variants) else {}


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
