"""Claim: the loss name that a method's page gives is the one under which verl finds it."""

from __future__ import annotations

from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

from eval.method_pages.facts import facts
from eval.method_pages.page import VERL_LOSSES, page
from methods import registry
from methods.backend import plugin  # noqa: F401  (registers ours)
from methods.backend.loss import loss_name


def test_pages_give_the_registered_names() -> None:
    own = {name for name, loss in POLICY_LOSS_REGISTRY.items() if not hasattr(loss, "tether_method")}
    assert own == VERL_LOSSES
    for name in registry.names():
        assert f"policy_loss.loss_mode={loss_name(name)}\n" in page(facts(registry.get(name)))
