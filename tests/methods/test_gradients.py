"""Claim: a coefficient carries no gradient, and for methods that have an objective it is that objective's derivative.

Kinks of an objective (the edges of PPO's band) are left out by a margin: there only one-sided derivatives exist.
The slopes of the divergences along e_k - pi are the claim of test_directions.py.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from methods.aggregation import aggregate
from methods.masks import topk_divergence
from methods.measures import FORWARD_KL, MEASURES
from methods.signals import Signals, sanitise
from tests.methods.helpers import Line, changed, lines, random_rows

EXACT = {"rtol": 1e-10, "atol": 1e-12}
MARGIN = 1e-3


def with_leaves(signals: Signals) -> tuple[Signals, list[Tensor]]:
    """The same signals, every tensor of them asking for a gradient."""
    leaves: list[Tensor] = []

    def leaf(value: Tensor) -> Tensor:
        leaves.append(value.clone().requires_grad_())
        return leaves[-1]

    return changed(signals, leaf), leaves


@pytest.mark.parametrize("line", lines(), ids=lambda line: line.label)
def test_the_gradient_flows_through_log_pi_alone(line: Line) -> None:
    """Loss -g log pi: its derivative is -g at log pi and nothing anywhere else."""
    signals, leaves = with_leaves(random_rows(1).signals())
    g = line.coefficient(signals)
    assert not g.requires_grad
    aggregate(-g * signals.logp_pi, signals.response_mask, "token-sum").backward()
    torch.testing.assert_close(signals.logp_pi.grad, -g, **EXACT)
    assert all(leaf.grad is None for leaf in leaves if leaf is not signals.logp_pi)


def derivative(objective, signals: Signals) -> Tensor:
    """d objective / d log pi of each token."""
    logp_pi = signals.logp_pi.clone().requires_grad_()
    ratio = (logp_pi - signals.logp_mu).exp()
    (gradient,) = torch.autograd.grad(objective(ratio, logp_pi).sum(), logp_pi)
    return gradient


@pytest.mark.parametrize("delta", [12.5, 0.15])
@pytest.mark.parametrize("seed", range(3))
def test_drpo_is_the_derivative_of_its_objective(delta: float, seed: int) -> None:
    """Eq. 8 of arXiv 2606.09821, the ratio differentiable and mu constant."""
    signals = sanitise(random_rows(seed).signals())
    advantages, mu = signals.advantages, signals.logp_mu.exp()

    def objective(ratio: Tensor, _: Tensor) -> Tensor:
        return ratio * advantages - advantages.abs() / (2 * delta) * mu * (ratio - 1) ** 2

    g = Line("drpo", {"delta": delta}, float).coefficient(signals)
    torch.testing.assert_close(g, derivative(objective, signals), **EXACT)


@pytest.mark.parametrize("dual_clip", [None, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_ppo_is_the_derivative_of_its_objective(dual_clip: float | None, seed: int) -> None:
    """min(r A, clip(r) A), and max with c A for A < 0: Eq. 10 of the DPPO paper and the dual clip."""
    signals = sanitise(random_rows(seed).signals())
    advantages, ratio = signals.advantages, signals.ratio()
    low, high = 0.2, 0.28

    def objective(r: Tensor, _: Tensor) -> Tensor:
        clipped = torch.minimum(r * advantages, r.clamp(1 - low, 1 + high) * advantages)
        if dual_clip is None:
            return clipped
        return torch.where(advantages < 0, torch.maximum(clipped, dual_clip * advantages), clipped)

    options = {"eps_low": low, "eps_high": high, "dual_clip": dual_clip, "ratio_cap": None}
    g = Line("ppo_clip_higher", options, float).coefficient(signals)
    kinks = [1 - low, 1 + high] + ([dual_clip] if dual_clip else [])
    smooth = torch.stack([(ratio - kink).abs() > MARGIN for kink in kinks]).all(0)
    assert smooth.sum() > 0.8 * smooth.numel()
    torch.testing.assert_close(g[smooth], derivative(objective, signals)[smooth], **EXACT)
    flat = (g == 0) & (advantages != 0)
    assert flat.any() and (~flat).any()


def test_masks_are_the_derivative_of_the_masked_surrogate() -> None:
    """Eq. 12 of the DPPO paper: M constant, r differentiable; the cap is on the coefficient only."""
    signals = sanitise(random_rows(2).signals())
    for method in ("dppo_topk_kl", "predictive_aggregated", "predictive_uniform"):
        g = Line(method, {"ratio_cap": None}, float).coefficient(signals)
        keep = (g != 0).to(g.dtype)

        def objective(ratio: Tensor, _: Tensor, keep: Tensor = keep) -> Tensor:
            return keep * ratio * signals.advantages

        torch.testing.assert_close(g, derivative(objective, signals), **EXACT)


@pytest.mark.parametrize("name", sorted(MEASURES))
def test_logit_gradient_is_the_derivative_of_the_value(name: str) -> None:
    """dD/dz for pi = softmax(z), by autograd; ties of mu and pi (the kink of TV) do not occur in these rows."""
    rows = random_rows(3)
    logits = rows.logits_pi.clone().requires_grad_()
    mu = rows.logits_mu.softmax(-1)
    value = MEASURES[name].value(mu, logits.softmax(-1))
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    torch.testing.assert_close(MEASURES[name].logit_gradient(mu, logits.softmax(-1)), gradient, rtol=1e-8, atol=1e-12)


def test_aggregation_passes_gradcheck() -> None:
    mask = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 1]])
    losses = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for mode in ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"):
        assert torch.autograd.gradcheck(lambda x, mode=mode: aggregate(x, mask, mode), (losses,))


def test_divergence_of_sanitised_signals_is_a_constant() -> None:
    signals, _ = with_leaves(random_rows(1).signals())
    assert not topk_divergence(sanitise(signals), FORWARD_KL).requires_grad
