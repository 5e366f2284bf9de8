"""What methods are called in tables and figures: titles that no two labels share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Options named in a title; more than these are unreadable, so the label stands there instead.
MOST = 2


def distinct_titles(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """{label: title} of entries {title, options}; a title of its own stays as it is.

    Labels of one title are told apart by the options that differ among them (`DRPO, delta 0.15`), where these are at
    most `MOST` and tell all of them apart, else by the label (`DRPO (drpo_a)`).
    """
    groups: dict[str, list[str]] = {}
    for label, entry in entries.items():
        groups.setdefault(str(entry.get("title", label)), []).append(label)
    titles = {}
    for title, labels in groups.items():
        told = _by_options(labels, entries) if len(labels) > 1 else {}
        for label in labels:
            titles[label] = title if len(labels) == 1 else f"{title}{told.get(label) or f' ({label})'}"
    # A made title may be another entry's own.
    taken = list(titles.values())
    return {label: t if taken.count(t) == 1 else f"{t} ({label})" for label, t in ((k, titles[k]) for k in entries)}


def _by_options(labels: list[str], entries: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    options = {label: entries[label].get("options") or {} for label in labels}
    keys = list(dict.fromkeys(key for found in options.values() for key in found))
    differ = [key for key in keys if len({repr(found.get(key)) for found in options.values()}) > 1]
    texts = {
        label: "".join(f", {key} {_text(found[key])}" for key in differ if key in found)
        for label, found in options.items()
    }
    return texts if 0 < len(differ) <= MOST and len(set(texts.values())) == len(labels) else {}


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
