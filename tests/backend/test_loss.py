"""definition and agreement: the registered losses in verl's own hands, without our launcher or worker.

Not covered: a whole main_ppo run (Ray).
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
import verl  # noqa: F401
from omegaconf import OmegaConf
from tensordict import TensorDict
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, get_policy_loss_fn
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import FSDPActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

from eval.method_checks import synthetic
from methods import registry
from methods.backend import plugin  # noqa: F401
from methods.backend.loss import Carried, TetherPolicyLossConfig, _policy_loss, carry, loss_name
from methods.backend.metrics import TokenMetrics
from methods.backend.support_loss import SupportLoss
from methods.config import MethodConfigError
from methods.contract import MethodError
from methods.registry import Needs, UnknownMethodError
from methods.signals import Scope, Signals, Support, sanitise
from methods.support import with_sampled
from tests.backend.verl_config import actor_config


def requirement(name: str) -> Needs:
    """What the method needs with the paper's defaults."""
    method = registry.get(name)
    return method.requires(method.configure())


# In these tests a call holds the whole mini-batch.
SAMPLED_ONLY = [name for name in registry.names() if not requirement(name) & ~Needs.MINI_BATCH]


def micro_batch(dp_size: int = 1) -> tuple[TensorDict, torch.Tensor]:
    """Two sequences of 2 prompt and 3, 2 response tokens in verl's layout; log_probs [2 * 5 - 1] with gradient."""
    from verl.utils import tensordict_utils as tu

    def jagged(*rows: list[float]) -> torch.Tensor:
        return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)

    data = TensorDict(
        {
            "prompts": jagged([1, 2], [1, 2]),
            "responses": jagged([3, 4, 5], [3, 4]),
            "response_mask": jagged([1, 1, 1], [1, 1]),
            "old_log_probs": jagged([math.log(0.2), math.log(0.5), math.log(0.3)], [math.log(0.4), math.log(0.1)]),
            "advantages": jagged([0.5, 0.5, 0.5], [-0.5, -0.5]),
        },
        batch_size=[2],
    )
    tu.assign_non_tensor(data, dp_size=dp_size, batch_num_tokens=5, global_batch_size=2)
    probabilities = [0.0, 0.45, 0.5, 0.1, 0.0, 0.0, 0.1, 0.3, 0.0]  # row j predicts token j + 1
    log_probs = torch.tensor([math.log(p) if p else -1.0 for p in probabilities], requires_grad=True)
    return data, log_probs


def gradient(config: FSDPActorConfig) -> list[float]:
    data, log_probs = micro_batch()
    offsets = torch.tensor([0, 5, 9])
    output = {"log_probs": torch.nested.nested_tensor_from_jagged(log_probs, offsets, min_seqlen=4, max_seqlen=5)}
    loss, metrics = ppo_loss(config, output, data)
    loss.backward()
    assert all(math.isfinite(float(m.aggregate())) for m in metrics.values())
    assert log_probs.grad is not None
    rows = [1, 2, 3, 6, 7]
    assert all(g == 0 for i, g in enumerate(log_probs.grad.tolist()) if i not in rows)
    return [log_probs.grad[i].item() for i in rows]


# (pi, mu, A) of the five response tokens above
TOKENS = [(0.45, 0.2, 0.5), (0.5, 0.5, 0.5), (0.1, 0.3, 0.5), (0.1, 0.4, -0.5), (0.3, 0.1, -0.5)]


@pytest.mark.parametrize("name", SAMPLED_ONLY)
def test_a_loss_works_by_its_name_in_a_users_own_run(name: str) -> None:
    """verl's stock PolicyLossConfig and its own ppo_loss: the paper's defaults apply, the gradient is -g / tokens."""
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]], dtype=torch.bool)
    pi, mu, advantages = (torch.ones(2, 3).masked_scatter(mask, torch.tensor(c)) for c in zip(*TOKENS, strict=True))
    method = registry.get(name)
    signals = sanitise(Signals(pi.log(), mu.log(), advantages, mask, scope=Scope.MINI_BATCH))
    g = method.coefficient(signals, method.configure())
    expected = pytest.approx((-g[mask] / 5).tolist())
    assert gradient(actor_config(PolicyLossConfig(loss_mode=loss_name(name)))) == expected


def test_options_reach_the_loss() -> None:
    """DRPO with delta 0.15 on the five tokens, by hand: g = r A (1 - sign(A) (pi - mu) / 0.15)."""
    expected = [-(p / m) * a * (1 - math.copysign(1, a) * (p - m) / 0.15) / 5 for p, m, a in TOKENS]
    config = TetherPolicyLossConfig(loss_mode="drpo", options={"delta": 0.15})
    assert gradient(actor_config(config)) == pytest.approx(expected, rel=1e-5)


def test_hydra_builds_the_typed_config() -> None:
    raw = OmegaConf.create(
        {
            "_target_": "methods.backend.loss.TetherPolicyLossConfig",
            "loss_mode": "drpo",
            "options": {"delta": 2.5},
        }
    )
    config = omega_conf_to_dataclass(raw)
    assert isinstance(config, TetherPolicyLossConfig) and config.options == {"delta": 2.5}


@pytest.mark.parametrize(
    ("loss_mode", "options", "error", "match"),
    [
        ("drpo", {"delta": 0}, MethodConfigError, "drpo: delta = 0"),
        ("drpo", {"dleta": 1}, MethodConfigError, "drpo: unknown option 'dleta'.*delta"),
        ("drop", {}, UnknownMethodError, "unknown method 'drop'.*drpo"),
    ],
)
def test_bad_options_are_refused_when_the_config_is_built(
    loss_mode: str, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        TetherPolicyLossConfig(loss_mode=loss_mode, options=options)


def test_a_recomputed_anchor_with_weights_is_refused() -> None:
    """verl's decoupled mode passes rollout_is_weights: its old log-probs are then not the rollout's."""
    loss = get_policy_loss_fn("pg_is")
    one = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="bypass_mode"):
        loss(one, one, one, torch.ones(1, 1), rollout_is_weights=one)


MODES = ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", registry.names())
def test_garbage_under_the_mask_changes_nothing(name: str, mode: str) -> None:
    """field case 3: NaN, inf, log-probs of +5 and wild ids outside the response mask, every method, every mode."""

    def run(garbage: bool) -> tuple[float, list[float]]:
        mask = torch.tensor([[1, 1, 0], [1, 0, 0]], dtype=torch.bool)
        sampled = torch.tensor([[0, 1, 0], [2, 0, 0]])
        mu = torch.log_softmax(torch.tensor([3.0, 2.0, 1.0, 0.0]).expand(2, 3, 4), -1)
        pi = torch.log_softmax(torch.tensor([1.0, 2.0, 2.0, 1.0]).expand(2, 3, 4), -1)
        ids, valid = with_sampled(torch.tensor([[[0, 1]] * 3] * 2), sampled)
        old, logp = (each.gather(-1, sampled.unsqueeze(-1)).squeeze(-1) for each in (mu, pi))
        values = {
            "logp": logp,
            "old": old,
            "advantages": torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]),
            "logp_old": (old + logp) / 2,
            "entropy": torch.ones(2, 3),
            "sum_pi_squared": torch.full((2, 3), 0.3),
            "uniforms": torch.full((2, 3), 0.5),
            "support_mu": mu.gather(-1, ids),
            "support_pi": pi.gather(-1, ids),
            "mu": mu,
            "pi": pi,
        }
        if garbage:
            bad = torch.tensor([math.nan, math.inf, 5.0])
            for value in values.values():
                value[~mask] = bad.view(3, *[1] * (value.ndim - 2)).expand(3, *value.shape[2:])
            sampled, ids = (torch.where(m, x, 10**9) for x, m in ((sampled, mask), (ids, mask.unsqueeze(-1))))
        logp = values["logp"].requires_grad_()
        carried = {
            "logp_old": values["logp_old"],
            "support": Support(ids, values["support_mu"], values["support_pi"], valid),
            "sum_pi_squared": values["sum_pi_squared"],
            "entropy": values["entropy"],
            "vocab_size": 4,
            "full": (values["mu"], values["pi"]),
            "sampled": sampled,
            "uniforms": values["uniforms"],
        }
        config = actor_config(PolicyLossConfig(loss_mode=loss_name(name)), mode, loss_scale_factor=3)
        with carry(Carried(carried)):
            loss, _ = get_policy_loss_fn(loss_name(name))(values["old"], logp, values["advantages"], mask, mode, config)
        loss.backward()
        assert logp.grad is not None
        return loss.item(), logp.grad.flatten().tolist()

    assert run(garbage=True) == run(garbage=False)
    assert all(map(math.isfinite, run(garbage=True)[1]))


def test_an_empty_micro_batch_gives_a_connected_zero() -> None:
    """field case 4: no valid token, with verl's global token count: loss 0, gradient exactly 0."""
    for mode in MODES:
        config = actor_config(PolicyLossConfig(loss_mode="drpo"), mode, loss_scale_factor=2)
        config.global_batch_info.update(dp_size=1, batch_num_tokens=4, global_batch_size=2)
        logp = torch.full((2, 2), -1.0, requires_grad=True)
        mask = torch.zeros(2, 2, dtype=torch.bool)
        loss, metrics = get_policy_loss_fn("drpo")(logp.detach(), logp, torch.ones(2, 2), mask, mode, config)
        loss.backward()
        assert logp.grad is not None
        assert loss.item() == 0 and loss.requires_grad and (logp.grad == 0).all() and not metrics


def test_what_verl_averages_is_an_average() -> None:
    """A run without our worker: verl's own reduction of two micro-batches of one size gives what both together give.

    Not so for extremes, quantiles and counts, which are left out. Micro-batches of other sizes are not looked at.
    """
    from verl.utils.metric import Metric, reduce_metrics

    torch.manual_seed(0)
    old, logp = -torch.rand(4, 3), -torch.rand(4, 3)
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0]).unsqueeze(1).expand(4, 3)
    mask = torch.ones(4, 3, dtype=torch.bool)

    def metrics(rows: slice) -> dict[str, float]:
        loss = get_policy_loss_fn("ppo_clip_higher")
        return loss(old[rows], logp[rows].requires_grad_(), advantages[rows], mask[rows])[1]

    whole, parts = metrics(slice(None)), [Metric.from_dict(metrics(slice(i, i + 2)), "mean") for i in (0, 2)]
    reduced = {name: [Metric.aggregate_dp([part[name]]) for part in parts] for name in whole}
    assert reduce_metrics(reduced) == pytest.approx(whole, rel=1e-6)
    assert {"actor/ratio/mean", "actor/gap/sampled_mean", "actor/mask/fraction"} <= set(whole)
    assert not [name for name in whole if re.search(r"max|min|/q\d|tokens/", name)]


def test_a_dropped_token_may_be_impossible() -> None:
    """log pi = -inf with A < 0: DRPO's and PPO's coefficient is 0 there or the token has none; never NaN."""
    logp = torch.tensor([[-torch.inf, -1.0]], requires_grad=True)
    old, advantages = torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.0, 1.0]])
    loss, _ = get_policy_loss_fn("ppo_clip_higher")(old, logp, advantages, torch.ones(1, 2, dtype=torch.bool))
    loss.backward()
    assert logp.grad is not None
    assert loss.item() == pytest.approx(0.5) and logp.grad.tolist() == [[0.0, -0.5]]


def called(name: str, signals: Signals, mode: str = "token-mean", config: Any = None, **changes: Any) -> Any:
    """(loss, metrics, log pi) of a registered loss on a batch with everything carried; a call is the mini-batch."""
    carried = ("logp_old", "support", "sum_pi_squared", "entropy", "vocab_size", "full", "sampled", "uniforms")
    config = config or actor_config(PolicyLossConfig(loss_mode=loss_name(name)), mode)
    logp = signals.logp_pi.clone().requires_grad_()
    with carry(Carried({field: getattr(signals, field) for field in carried}, **changes)):
        loss, metrics = get_policy_loss_fn(config.policy_loss.loss_mode)(
            signals.logp_mu, logp, signals.advantages, signals.response_mask, mode, config
        )
    return loss, metrics, logp


@pytest.mark.parametrize("name", registry.names())
def test_a_sampled_token_of_log_prob_minus_infinity_is_refused(name: str) -> None:
    """mu cannot have sampled it, and its ratio would be the largest that there is; under the mask it is nothing."""
    signals = synthetic.batch()
    logp_mu = signals.logp_mu.clone()
    logp_mu[5, 2] = -math.inf
    with pytest.raises(
        ValueError, match=r"^logp_mu = -inf at sample 5 of a call of the loss with 12 samples, token 2: "
    ):
        called(name, replace(signals, logp_mu=logp_mu))
    logp_mu[5, 2], logp_mu[~signals.response_mask] = -1.0, -math.inf
    called(name, replace(signals, logp_mu=logp_mu))


@pytest.mark.parametrize("name", registry.names())
def test_a_mask_that_is_none_is_refused(name: str) -> None:
    """Weights in place of zeros and ones, and the mask and the advantages in each other's place."""
    signals = synthetic.batch()
    for mask, advantages in (
        (0.5 * signals.response_mask, signals.advantages),
        (signals.advantages, signals.response_mask),
    ):
        with pytest.raises(ValueError, match=r"^response_mask\[0, 0\] = .*: allowed are 0 and 1"):
            called(name, replace(signals, response_mask=mask, advantages=advantages))
    for dtype in (torch.int64, torch.float32):
        loss = called(name, replace(signals, response_mask=signals.response_mask.to(dtype)))[0]
        assert torch.equal(loss, called(name, signals)[0])


@pytest.mark.parametrize("name", registry.names())
def test_a_token_that_pi_holds_impossible_breaks_no_metric(name: str) -> None:
    """Without our worker and with it: a finite loss, gradient 0 at that token, finite metrics."""
    signals = synthetic.batch()
    logp_pi = signals.logp_pi.clone()
    logp_pi[5, 2] = -math.inf
    impossible = replace(signals, logp_pi=logp_pi)
    ours = TokenMetrics()
    for metrics in (None, ours):
        loss, plain, logp = called(name, impossible, metrics=metrics)
        loss.backward()
        assert logp.grad[5, 2] == 0 and logp.grad.isfinite().all() and loss.isfinite()
        assert all(map(math.isfinite, plain.values())) and bool(plain) == (metrics is None)
    assert all(map(math.isfinite, ours.summary().values()))


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Signals]:
    """Registers a coefficient as the loss `mine`, as a user's file would; returns a batch to call it on."""
    registry.load_catalogue()
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))

    def planted(coefficient: Any) -> Signals:
        registry.register("mine", title="Mine", source="none", mark="N")(coefficient)
        monkeypatch.setitem(POLICY_LOSS_REGISTRY, "mine", _policy_loss(registry.get("mine")))
        return synthetic.batch()

    return planted


def test_what_is_no_coefficient_never_becomes_a_loss(mine: Callable[[Any], Signals]) -> None:
    """A number would be broadcast to every token. All kinds: tests/methods/test_contract.py."""
    for wrong, shown in ((lambda s, _: 1.0, "1.0"), (lambda s, _: s.advantages[:, :1], r"a tensor of shape \[12, 1\]")):
        signals = mine(wrong)
        with pytest.raises(MethodError, match=rf"^method mine returned {shown}, expected a float tensor \[B, T\] = "):
            called("mine", signals)


def test_a_signal_that_was_not_asked_for_is_hidden_everywhere(mine: Callable[[Any], Signals]) -> None:
    """With our worker, where the signal is there, as in a foreign run, where it is not: the same words."""
    signals = mine(lambda s, _: s.advantages * s.support.logp_pi[..., 0])
    want = "^method mine reads signals.support, which it does not ask for: add needs=Needs.TOP_K$"
    with pytest.raises(MethodError, match=want):
        called("mine", signals)
    with pytest.raises(MethodError, match=want):
        get_policy_loss_fn("mine")(signals.logp_mu, signals.logp_pi, signals.advantages, signals.response_mask)


def test_a_sum_over_a_horizon_needs_the_horizon() -> None:
    """Three token losses of 1, padded by 0, 3 and 9 columns: 3 / 3 each with it, refused without it."""
    mode = "seq-mean-token-sum-norm"
    for columns in (0, 3, 9):
        logp, mask = torch.full((1, 3 + columns), -1.0), torch.arange(3 + columns).unsqueeze(0) < 3
        arguments = (logp, logp.clone().requires_grad_(), torch.ones_like(logp), mask, mode)
        for given in (actor_config(PolicyLossConfig(loss_mode="pg_is"), mode), None):
            with pytest.raises(ValueError, match=r"^actor_rollout_ref.actor.loss_scale_factor = None: .*max_response_"):
                get_policy_loss_fn("pg_is")(*arguments, given)
        config = actor_config(PolicyLossConfig(loss_mode="pg_is"), mode, loss_scale_factor=3)
        assert get_policy_loss_fn("pg_is")(*arguments, config)[0].item() == pytest.approx(1.0)


ACTOR_KEYS = {"clip_ratio": 0.05, "clip_ratio_low": 0.05, "clip_ratio_high": 0.28, "clip_ratio_c": 10.0, "tau_pos": 2.0}


@pytest.mark.parametrize("key", [*ACTOR_KEYS, "dro_beta"])
@pytest.mark.parametrize("name", registry.names())
def test_a_key_of_verls_that_would_do_nothing_is_refused(name: str, key: str) -> None:
    """Once it differs from verl's default, whatever our own options are; the options that count are named."""
    theirs, keys = ({"dro_beta": 0.3}, {}) if key == "dro_beta" else ({}, {key: ACTOR_KEYS[key]})
    config = actor_config(PolicyLossConfig(loss_mode=loss_name(name), **theirs), **keys)
    with pytest.raises(ValueError, match=rf"^actor_rollout_ref[.]actor[.\w]*[.]{key} = .*: method {name} ") as error:
        called(name, synthetic.batch(), config=config)
    own = [field.name for field in fields(registry.get(name).config_type)]
    assert any(option in str(error.value) for option in own) or (not own and "no options" in str(error.value))


def test_the_refusal_names_the_option_that_counts() -> None:
    actor = actor_config(PolicyLossConfig(loss_mode="dppo_binary_tv"), clip_ratio_low=0.05, clip_ratio_c=10.0)
    with pytest.raises(ValueError) as error:
        called("dppo_binary_tv", synthetic.batch(), config=actor)
    assert str(error.value) == (
        "actor_rollout_ref.actor.clip_ratio_low = 0.05, actor_rollout_ref.actor.clip_ratio_c = 10.0: method "
        "dppo_binary_tv reads no such key; leave it at verl's default, set "
        "+actor_rollout_ref.actor.policy_loss.options.delta and "
        "+actor_rollout_ref.actor.policy_loss.options.ratio_cap in its place, with "
        "actor_rollout_ref.actor.policy_loss._target_=methods.backend.loss.TetherPolicyLossConfig"
    )
    with pytest.raises(ValueError, match="clip_ratio_low = 0.05"):
        SupportLoss(actor, 12)


@pytest.mark.parametrize("name", registry.names())
def test_verls_defaults_and_null_are_no_settings(name: str) -> None:
    for changes in ({}, {"clip_ratio_low": None, "clip_ratio_high": None}):
        config = actor_config(PolicyLossConfig(loss_mode=loss_name(name)), **changes)
        assert called(name, synthetic.batch(), config=config)[0].isfinite()


def test_a_fresh_worker_knows_every_loss() -> None:
    """field case 49: an interpreter with nothing but the environment that verl documents for its workers."""
    names = [loss_name(name) for name in registry.names()]
    program = (
        "import verl; from verl.trainer.ppo.core_algos import get_policy_loss_fn as g; "
        f"print([g(n).__module__ for n in {names!r}])"
    )
    environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "HOME": os.environ.get("HOME", "/")}
    by_entry_point = environment
    by_variable = environment | {
        "VERL_USE_EXTERNAL_PLUGINS": "none",
        "VERL_USE_EXTERNAL_MODULES": "methods.backend.plugin",
    }
    running = [
        subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for env in (by_entry_point, by_variable)
    ]
    for process in running:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err.decode()
        assert out.decode().count("methods.backend.loss") == len(names)
