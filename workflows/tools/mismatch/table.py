"""The table of mismatches as text."""

from __future__ import annotations

from typing import Any

HEADINGS = {
    "train": "train",
    "engine": "engine",
    "rollout": "rollout",
    "tokens": "tokens",
    "logp_sampled_mean": "|dlogp|",
    "logp_sampled_p99": "p99",
    "logp_sampled_max": "max",
    "logp_topk_mean": "top-K",
    "logp_topk_max": "max",
    "prob_sampled_mean": "|pi-mu|",
    "reduced_kl_mean": "KL",
    "topk_shared": "shared",
    "routing_differences": "routing",
}


def render(rows: list[dict[str, Any]]) -> str:
    """The table as text. |dlogp|: of the sampled token; top-K: the largest over a token's support, mean over tokens."""
    shown = [name for name in HEADINGS if any(row[name] is not None for row in rows)]
    lines = [[HEADINGS[name] for name in shown]]
    lines += [[_text(row[name]) for name in shown] for row in rows]
    return "".join("".join(f"{text:>10}" for text in line).rstrip() + "\n" for line in lines)


def _text(value: str | float | None) -> str:
    """Three digits; whole numbers whole. Empty where an engine does not tell."""
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
