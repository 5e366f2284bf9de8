"""Dropout, and whatever else a model does at random in training only, turned off: the rollout runs without it.

With it on the trainer's pi is another policy than the one that sampled, so that ratios and KL start as noise.
"""

from __future__ import annotations

from typing import Any

from torch import nn

# Names of transformers' settings and modules: attention_dropout, resid_pdrop, layerdrop, router_jitter_noise, ...
WORDS = ("drop", "jitter")


def is_noise(name: str, value: Any) -> bool:
    """Whether a setting or attribute of this name and value is a probability or width of noise that is on."""
    return isinstance(value, float) and value > 0 and any(word in name for word in WORDS)


def turn_off(model: nn.Module) -> dict[str, float]:
    """Set all such noise of a model to 0, in its modules and in the configurations that they read.

    Returns what was on: the largest value by the name of the setting or of the module's attribute.
    """
    found: dict[str, float] = {}
    for path, module in model.named_modules():
        for owner in (module, getattr(module, "config", None)):
            for name, value in list(getattr(owner, "__dict__", {}).items()):
                dropout = owner is module and isinstance(module, nn.modules.dropout._DropoutNd) and name == "p"
                if is_noise(name, value) or (dropout and value > 0):
                    known = path.split(".")[-1] if dropout else name
                    found[known] = max(value, found.get(known, 0.0))
                    setattr(owner, name, 0.0)
    return dict(sorted(found.items()))
