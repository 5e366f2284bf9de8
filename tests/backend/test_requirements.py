"""definition and property: a method gets what it declares to need, and a run that can't give it stops before training.

A probe method that needs everything records the signals of whole trainings. Not covered: two ranks of verl.main_ppo
(tests/backend/test_ray.py), and vLLM, whose support has the same columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transfer_queue
from tensordict import TensorDict
from transformers import AutoModelForCausalLM
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, get_policy_loss_fn
from verl.workers.config import PolicyLossConfig

from methods import registry
from methods.backend import launch, support_loss
from methods.backend import loss as policy_loss
from methods.backend import requirements as needs
from methods.backend.compose import compose
from methods.backend.local_queue import LocalQueue
from methods.backend.loss import TetherPolicyLossConfig
from methods.backend.rollout.batch import to_jagged
from methods.backend.run.checks import check
from methods.backend.setting import ConfigError
from methods.backend.trainer import TetherTrainer, rank_order
from methods.config import MethodConfig
from methods.contract import MethodError
from methods.registry import Needs
from methods.signals import Scope, Signals
from tests.backend.verl_config import actor_config

NAME, LOGITS = "needs_probe", "needs_probe_logits"
EVERYTHING = Needs.TOP_K | Needs.SUM_PI_SQUARED | Needs.FULL | Needs.RECOMPUTED_ANCHOR | Needs.RANDOM
VOCABULARY, MINI_BATCHES, STEPS = 45, 4, 3
ROWS = 8 * 4 // MINI_BATCHES


@dataclass
class Probe:
    """Signals of all loss calls, in order, and training rollouts, of the latest run."""

    world: Any
    folder: Path
    signals: list[Signals] = field(default_factory=list)
    rollouts: list[Any] = field(default_factory=list)

    def train(self, name: str, method: str = NAME, **changes: Any) -> list[Signals]:
        self.signals.clear()
        self.rollouts.clear()
        changes = {"top_k": VOCABULARY, "mini_batches": MINI_BATCHES, "steps": STEPS, **changes}
        launch.train(self.world.run_config(self.folder / name, method=method, **changes))
        return list(self.signals)


@pytest.fixture(scope="module")
def probe(tiny_world: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    from methods.backend.rollout import base as rollout

    seen = Probe(tiny_world, tmp_path_factory.mktemp("needs"))

    def coefficient(signals: Signals, config: MethodConfig) -> torch.Tensor:
        seen.signals.append(signals)
        return signals.ratio() * signals.advantages

    generate = rollout.HFRollout.generate

    def spy(self: Any, prompts: Any, step: int, validate: bool, *rest: Any, **named: Any) -> Any:
        out = generate(self, prompts, step, validate, *rest, **named)
        if not validate:
            seen.rollouts.append((prompts, out))
        return out

    with pytest.MonkeyPatch.context() as patch:
        registry.load_catalogue()
        patch.setattr(registry, "_METHODS", dict(registry._METHODS))
        for name, wanted in ((NAME, EVERYTHING), (LOGITS, Needs.SUM_PI_SQUARED)):
            registry.register(name, title=name, source="test", mark="N", needs=wanted)(coefficient)
            patch.setitem(POLICY_LOSS_REGISTRY, name, policy_loss._policy_loss(registry.get(name)))
        patch.setattr(rollout.HFRollout, "generate", spy)
        yield seen


@pytest.fixture(scope="module")
def whole(probe: Probe) -> tuple[list[Signals], list[Any]]:
    """One run at a learning rate that moves the policy, with every step's weights published."""
    return probe.train("whole", save_every=1, export_every=1, validate_every=STEPS), list(probe.rollouts)


def calls(signals: list[Signals]) -> Iterator[tuple[int, int, Signals]]:
    """(step from 0, mini-batch, signals)."""
    for place, each in enumerate(signals):
        yield *divmod(place, MINI_BATCHES), each


def forward(probe: Probe, version: int, rollout: Any) -> torch.Tensor:
    """Log-probs [N, T, V] of the weights after `version` steps, by an independent float32 forward."""
    folder = probe.world.model if version == 0 else probe.folder / "whole" / "checkpoints" / f"step_{version}"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    prompts, out = rollout
    ids = torch.cat([torch.tensor(prompts), out.tokens], dim=1)
    with torch.no_grad():
        return torch.log_softmax(model(input_ids=ids).logits[:, len(prompts[0]) - 1 : -1].float(), dim=-1)


def test_the_anchor_is_the_policy_before_the_rollouts_first_update(
    probe: Probe, whole: tuple[list[Signals], list[Any]]
) -> None:
    """Equal to pi at the first mini-batch, apart from it at the others; always the published weights' own."""
    signals, rollouts = whole
    moved, compared = False, 0
    for step, mini_batch, each in calls(signals):
        mask, old = each.response_mask, each.logp_old
        assert old is not None and mask.any()
        gap = (old - each.logp_pi).abs()[mask].max()
        # A mini-batch whose groups agree on every reward has no gradient.
        moved = mini_batch > 0 and (
            moved or bool((signals[step * MINI_BATCHES + mini_batch - 1].advantages != 0).any())
        )
        assert gap > 1e-4 if moved else gap < 1e-6
        compared += moved
        part = slice(mini_batch * ROWS, (mini_batch + 1) * ROWS)
        expected = forward(probe, step, rollouts[step])[part, : mask.shape[1]]
        tokens = rollouts[step][1].tokens[part, : mask.shape[1]]
        assert torch.allclose(expected.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)[mask], old[mask], atol=2e-5)
        # With a stale bf16 rollout mu is another policy: the anchor is a column of its own.
        assert (old - each.logp_mu).abs()[mask].max() > 1e-4
    assert compared >= STEPS


def test_without_updates_the_anchor_never_leaves_the_policy(probe: Probe) -> None:
    """field case 12: at learning rate 0 every ratio is 1, to the anchor exactly and to a float32 rollout nearly."""
    overrides = ["actor_rollout_ref.actor.optim.lr=0.0"]
    signals = probe.train("still", overrides=overrides, rollout_precision="fp32")
    for each in signals:
        assert each.logp_old is not None
        assert torch.equal(each.logp_old, each.logp_pi)
        assert (each.ratio() - 1).abs().max() < 1e-5
    lines = (probe.folder / "still" / "metrics.jsonl").read_text().splitlines()[1:]
    for data in (json.loads(line)["data"] for line in lines):
        assert data["mask/fraction"] == 0 and abs(data["ratio/max"] - 1) < 1e-3 and abs(data["ratio/min"] - 1) < 1e-3
        assert data["gap/sampled_max"] < 1e-3  # beside the mask's share in every row
    assert len(lines) == STEPS
    # Smaller pieces take other kernels: then to rounding.
    for each in probe.train("still in pieces", overrides=overrides, rollout_precision="fp32", micro_batch=2):
        assert each.logp_old is not None
        assert (each.logp_old - each.logp_pi).abs().max() < 1e-6


def test_the_whole_vocabulary_of_both_policies(probe: Probe, whole: tuple[list[Signals], list[Any]]) -> None:
    """Rows are distributions, agree with the sampled tokens' log-probs, and pi's are the model's."""
    signals, rollouts = whole
    for step, mini_batch, each in calls(signals):
        assert each.full is not None and each.sampled is not None
        mask = each.response_mask
        tokens = rollouts[step][1].tokens[mini_batch * ROWS : (mini_batch + 1) * ROWS, : mask.shape[1]]
        assert torch.equal(each.sampled[mask], tokens[mask])
        for logp, sampled in zip(each.full, (each.logp_mu, each.logp_pi), strict=True):
            assert logp.shape == (*mask.shape, VOCABULARY)
            assert torch.allclose(logp.exp().sum(-1)[mask], torch.ones(int(mask.sum())), atol=1e-5)
            held = logp.gather(-1, each.sampled.unsqueeze(-1)).squeeze(-1)
            assert torch.allclose(held[mask], sampled[mask], atol=1e-6)
        if mini_batch == 0:
            expected = forward(probe, step, rollouts[step])[:ROWS, : mask.shape[1]]
            assert torch.allclose(expected[mask], each.full[1][mask], atol=5e-5)
    mu, pi = signals[0].full or ()
    assert (mu - pi).abs()[signals[0].response_mask].max() > 1e-3


def test_random_numbers_belong_to_seed_step_response_and_token(
    probe: Probe, whole: tuple[list[Signals], list[Any]]
) -> None:
    """The same in pieces of two responses as in whole mini-batches; another seed has others."""

    def numbers(signals: list[Signals]) -> list[torch.Tensor]:
        per_step = len(signals) // STEPS
        rows = [each.uniforms[i][each.response_mask[i]] for each in signals for i in range(len(each.response_mask))]
        assert len(rows) == STEPS * 32 and per_step in (MINI_BATCHES, 16)
        return rows

    expected = [needs.uniforms(0, step, 32, 4) for step in (1, 2, 3)]
    ours = numbers(whole[0])
    for place, row in enumerate(ours):
        assert torch.equal(row, expected[place // 32][place % 32, : len(row)])
    drawn = torch.cat(ours)
    assert drawn.min() >= 0 and drawn.max() < 1 and len(drawn.unique()) > 0.99 * len(drawn)
    pieces = numbers(probe.train("pieces", micro_batch=2))
    # The tokens differ from the second step on: sums in another order move the weights by rounding.
    assert all(torch.equal(a, b) for a, b in zip(ours[:32], pieces[:32], strict=True))
    assert all(torch.equal(row, expected[i // 32][i % 32, : len(row)]) for i, row in enumerate(pieces))
    assert all(each.scope is Scope.MICRO_BATCH for each in probe.signals)
    assert not torch.equal(needs.uniforms(1, 1, 32, 4), expected[0])


def test_random_numbers_follow_a_response_to_its_rank(
    probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks: the trainer reorders the batch, and each response keeps the numbers of its submitted place."""
    config = compose(probe.world.run_config(tmp_path / "run", method=NAME, top_k=VOCABULARY, runner="ray", ranks=2))
    trainer = object.__new__(TetherTrainer)
    trainer.config, trainer.global_steps, trainer.use_critic = config, 7, False
    queue = LocalQueue()
    for function in ("kv_batch_put", "kv_batch_get"):
        monkeypatch.setattr(transfer_queue, function, getattr(queue, function))
    keys, lengths = [f"response {i}" for i in range(32)], torch.tensor([1, 2, 3, 4] * 8)
    mask = TensorDict({"response_mask": to_jagged(torch.ones(32, 4), lengths)}, batch_size=[32])
    batch = queue.kv_batch_put(keys, "train", mask, [{"seq_len": 9}] * 32)
    batch = trainer._balance_batch(batch, {})
    assert sorted(batch.keys) == sorted(keys) and list(batch.keys) != keys
    column = queue.kv_batch_get(list(batch.keys), "train", [needs.UNIFORMS])[needs.UNIFORMS].unbind()
    for key, row in zip(batch.keys, column, strict=True):
        place = keys.index(key)
        assert torch.equal(row, needs.uniforms(0, 7, 32, 4)[place, : lengths[place]])


def test_scope_is_the_mini_batch_where_a_call_holds_all_of_it(whole: tuple[list[Signals], list[Any]]) -> None:
    assert all(each.scope is Scope.MINI_BATCH for each in whole[0])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert needs.scope_of(mask, 3) is needs.scope_of(mask, None) is Scope.MINI_BATCH
    assert needs.scope_of(mask, 4) is Scope.MICRO_BATCH


def test_statistics_of_the_vocabulary_without_a_support(probe: Probe, whole: tuple[list[Signals], list[Any]]) -> None:
    """A method that needs sum pi^2 and no candidates runs with top_k = 0, and sees the same numbers."""
    signals = probe.train("no support", method=LOGITS, top_k=0)
    assert len(signals) == STEPS * MINI_BATCHES
    with pytest.raises(MethodError, match="reads signals.support"):
        _ = signals[0].support
    first = whole[0][0]
    for name in ("sum_pi_squared", "entropy"):
        mine, theirs = getattr(signals[0], name), getattr(first, name)
        assert torch.allclose(mine, theirs, atol=1e-6) and (theirs[first.response_mask] > 0).all()


# need -> (settings of a run that can't meet it, what the refusal must name)
BROKEN: dict[Needs, tuple[dict[str, Any], str]] = {
    Needs.TOP_K: ({"top_k": 0}, r"setting.top_k = 0: method \w+ needs the rollout's top-K log-probs, allowed is >= 1"),
    Needs.FULL: ({"top_k": 5}, r"setting.top_k = 5: method \w+ needs both policies .*, allowed is its size 45"),
    Needs.RECOMPUTED_ANCHOR: (
        {"mini_batches": 1},
        r"setting.mini_batches = 1: .* recomputed anchor.*data.train_batch_size.*actor.ppo_mini_batch_size.*ppo_epochs",
    ),
    Needs.MINI_BATCH: (
        {"micro_batch": 4},
        r"setting.micro_batch = 4, setting.ranks = 1: .* whole mini-batch of 16 .* allowed is null and 1",
    ),
}


def probing(patch: pytest.MonkeyPatch, wanted: Needs) -> None:
    """Put a method with these needs into the catalogue for one test."""
    registry.load_catalogue()
    patch.setattr(registry, "_METHODS", dict(registry._METHODS))
    registry.register(NAME, title=NAME, source="test", mark="N", needs=wanted)(lambda signals, _: signals.advantages)
    patch.setitem(POLICY_LOSS_REGISTRY, NAME, policy_loss._policy_loss(registry.get(NAME)))


@pytest.mark.parametrize("need", BROKEN)
def test_a_setting_that_cannot_meet_a_need_is_refused(
    need: Needs, tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """field cases 19 and 55: before any job, naming the settings; the same run without the fault is accepted."""
    probing(monkeypatch, need)
    changes, message = BROKEN[need]
    with pytest.raises(ConfigError, match=message):
        check(tiny_world.run_config(tmp_path / "run", method=NAME, **changes))
    check(tiny_world.run_config(tmp_path / "run", method=NAME, top_k=VOCABULARY))


@pytest.mark.parametrize("name", registry.names())
def test_every_method_names_the_settings_it_lacks(name: str, tiny_world: Any, tmp_path: Path) -> None:
    """field case 55, over the catalogue: in a run, and in a user's own verl run without our worker."""
    method = registry.get(name)
    wanted = method.requires(method.configure())
    for need, (changes, message) in BROKEN.items():
        if need in wanted:
            with pytest.raises(ConfigError, match=message):
                check(tiny_world.run_config(tmp_path / "run", method=name, **{"top_k": VOCABULARY, **changes}))
    check(tiny_world.run_config(tmp_path / "run", method=name, top_k=VOCABULARY))
    if wanted & ~Needs.MINI_BATCH:
        one = torch.zeros(1, 1)
        with pytest.raises(ValueError, match=rf"{name} needs .*: .*(tether worker|tether_inprocess)"):
            get_policy_loss_fn(policy_loss.loss_name(name))(one, one, one, torch.ones(1, 1))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Needs.TOP_K, "needs the rollout's top-K log-probs: set actor_rollout_ref.rollout.custom.top_k >= 1"),
        (Needs.FULL, "needs both policies .*: set actor_rollout_ref.rollout.custom.top_k to the vocabulary size"),
        (Needs.SUM_PI_SQUARED, "needs the collision mass .*: train with the tether worker"),
        (Needs.RECOMPUTED_ANCHOR, "needs log-probs of the weights before .*: train with the tether worker"),
        (Needs.RANDOM, "needs seeded random numbers: set trainer.v1.trainer_mode"),
        (Needs.MINI_BATCH, "needs all tokens of a mini-batch .*: set actor.ppo_micro_batch_size_per_gpu to .*one rank"),
    ],
)
def test_the_loss_says_what_to_set(wanted: Needs, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In verl's own hands: a micro-batch of 1 of 2 tokens, and nothing carried."""
    probing(monkeypatch, wanted)
    config = actor_config(PolicyLossConfig(loss_mode=NAME))
    config.global_batch_info.update(dp_size=1, batch_num_tokens=2, global_batch_size=2)
    one = torch.zeros(1, 1)
    with pytest.raises(ValueError, match=f"{NAME} {message}"):
        get_policy_loss_fn(NAME)(one, one, one, torch.ones(1, 1), config=config)


def test_two_epochs_are_two_updates(tiny_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second pass starts away from the anchor, so its trust region can act."""
    probing(monkeypatch, Needs.RECOMPUTED_ANCHOR)
    for override in ("actor_rollout_ref.actor.ppo_epochs=2", "++actor_rollout_ref.actor.ppo_epochs=2"):
        tiny_world.run_config(tmp_path / "run", method=NAME, mini_batches=1, overrides=[override])


def test_the_worker_refuses_a_degenerate_region_that_an_override_made(probe: Probe) -> None:
    """field case 19 behind the setting's back: one mini-batch by verl's own key."""
    with pytest.raises(ValueError, match=r"recomputed anchor.*actor.ppo_mini_batch_size.*ppo_epochs"):
        probe.train("degenerate", overrides=["actor_rollout_ref.actor.ppo_mini_batch_size=8"])


@pytest.mark.parametrize("name", ["vanilla", "dppo_tv", "cispo", "gspo", "sapo", "geo_mean"])
def test_a_loss_of_verls_own_takes_no_options_of_ours(name: str) -> None:
    """Planted: verl's loss of that name would run, and our options would be read by nobody."""
    with pytest.raises(ValueError, match=rf"policy_loss.loss_mode = '{name}' is a loss of verl's own"):
        TetherPolicyLossConfig(loss_mode=name, options={})
    assert policy_loss.requirements(PolicyLossConfig(loss_mode=name)) == Needs.SAMPLED


def test_an_impossible_sample_stops_a_run_before_any_step(
    tiny_world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stands in the last mini-batch; one line names the sample, not its row there, and the weights are untouched."""
    from methods.backend.engine import CPUEngine
    from methods.backend.rollout import base as rollout

    generate, sample, steps = rollout.HFRollout.generate, 30, []

    def spoilt(self: Any, prompts: Any, step: int, validate: bool, *rest: Any, **named: Any) -> Any:
        out = generate(self, prompts, step, validate, *rest, **named)
        if validate:
            return out
        logp = out.logp.clone()
        logp[sample, 0] = -torch.inf
        return replace(out, logp=logp)

    run = tiny_world.run_config(tmp_path / "run", method="drpo", mini_batches=MINI_BATCHES, steps=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout.HFRollout, "generate", spoilt)
        patch.setattr(CPUEngine, "optimizer_step", steps.append)
        assert launch.main(["--json", json.dumps(run.dump())]) == 1
    assert not steps and not (tmp_path / "run").exists()
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and f"logp_mu = -inf at sample {sample} of the training batch, token 0: " in errors[0]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_sample_is_the_one_that_was_sampled(ranks: int) -> None:
    """Whatever rank trains it; a token outside the response mask may be impossible."""
    rows, mini_batch = 32, 8
    lengths = torch.tensor([1, 2, 3, 4] * 8)
    for sample, token in ((0, 0), (13, 1), (31, 3)):
        logp, mask = torch.full((rows, 4), -1.0), torch.ones(rows, 4)
        logp[sample, token] = -torch.inf
        logp[2, 2], mask[2, 2] = -torch.inf, 0.0
        order, share = rank_order(rows, mini_batch, ranks), rows // ranks
        messages = []
        for rank in range(ranks):
            own = order[rank * share : (rank + 1) * share]
            data = {
                "old_log_probs": to_jagged(logp[own], lengths[own]),
                "response_mask": to_jagged(mask[own], lengths[own]),
            }
            try:
                needs.refuse_impossible_batch(data, mini_batch, rank, ranks)
            except ValueError as error:
                messages.append(str(error))
        assert len(messages) == 1, (sample, messages)
        assert messages[0].startswith(f"logp_mu = -inf at sample {sample} of the training batch, token {token}: ")


def test_a_repeated_candidate_is_no_whole_vocabulary() -> None:
    """Id 2 is named by no candidate: what mu gives it would be missing from mu, here 0.5 or 0.2 of it."""
    padded = support_loss._Padder(torch.tensor([2]))
    logits, ids = torch.zeros(2, 3), torch.tensor([[0, 1, 2, 1], [2, 0, 1, 0]])
    logp = torch.tensor([[0.5, 0.3, 0.2, 0.3], [0.5, 0.3, 0.2, 0.3]]).log()
    mu, _ = support_loss._full(logits, ids, logp, padded)
    assert torch.allclose(mu.exp().sum(-1), torch.ones(1, 2))
    for wrong in (1, -1, 3):
        repeated = ids.clone()
        repeated[1, 0] = wrong
        with pytest.raises(ValueError, match=r"candidates of token 1 .* do not name id 2: .* each of the 3 ids"):
            support_loss._full(logits, repeated, logp, padded)
