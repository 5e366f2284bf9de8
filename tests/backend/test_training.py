"""definition: what a training through verl really does, seen from inside the loss and from the files it leaves.

Not covered here: several ranks, other engines than FSDP on the CPU.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from methods.backend import launch
from methods.backend.rollout.sampling import Generation
from methods.backend.rollout.staleness import checksum
from methods.signals import Signals

STALENESS, STEPS, MINI_BATCHES, TOP_K = 2, 5, 2, 5


@dataclass
class Observed:
    """Everything a spy saw: signals per loss call, generations per rollout call, and the published folder."""

    output: Path
    signals: list[Signals] = field(default_factory=list)
    coefficients: list[torch.Tensor] = field(default_factory=list)
    generations: list[tuple[int, bool, list[list[int]], Generation]] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.output / "metrics.jsonl").read_text().splitlines()]

    def model(self, version: int, start: Path, dtype: torch.dtype) -> Any:
        folder = start if version == 0 else self.output / "checkpoints" / f"step_{version}"
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()


@pytest.fixture(scope="module")
def run(tiny_world: Any, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    from methods.backend import metrics
    from methods.backend.rollout import base as rollout

    config = tiny_world.run_config(
        tmp_path_factory.mktemp("run") / "out",
        staleness=STALENESS,
        steps=STEPS,
        mini_batches=MINI_BATCHES,
        top_k=TOP_K,
        save_every=1,
        export_every=1,
        validate_every=2,
    )
    seen = Observed(Path(config.output))
    patch = pytest.MonkeyPatch()
    observe, generate = metrics.TokenMetrics.observe, rollout.HFRollout.generate

    def spy_observe(self: Any, signals: Signals, coefficient: torch.Tensor) -> None:
        seen.signals.append(signals)
        seen.coefficients.append(coefficient)
        observe(self, signals, coefficient)

    def spy_generate(self: Any, prompts: Any, step: int, validate: bool, temperature: float) -> Generation:
        out = generate(self, prompts, step, validate, temperature)
        seen.generations.append((step, validate, prompts, out))
        return out

    patch.setattr(metrics.TokenMetrics, "observe", spy_observe)
    patch.setattr(rollout.HFRollout, "generate", spy_generate)
    try:
        launch.train(config)
    finally:
        patch.undo()
    return seen


def teacher_forced(model: Any, prompts: list[list[int]], out: Generation) -> torch.Tensor:
    """Log-probs [N, T, V] of an independent forward pass without cache over prompt and response."""
    ids = torch.cat([torch.tensor(prompts), out.tokens], dim=1)
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, len(prompts[0]) - 1 : -1].float()
    return torch.log_softmax(logits, dim=-1)


def training_rollouts(run: Observed) -> list[tuple[int, list[list[int]], Generation]]:
    return [(step, prompts, out) for step, validate, prompts, out in run.generations if not validate]


def test_one_row_per_step_and_a_first_row_before_training(run: Observed) -> None:
    rows = run.rows()
    assert [row["step"] for row in rows] == list(range(STEPS + 1))
    assert [row["step"] for row in rows if "val/accuracy" in row["data"]] == [0, 2, 4, 5]


def test_every_mini_batch_is_an_optimiser_step(run: Observed) -> None:
    assert all(row["data"]["updates/optimizer_steps"] == MINI_BATCHES for row in run.rows()[1:])
    assert len(run.signals) == STEPS * MINI_BATCHES


def test_rollouts_for_training_sample_the_weights_of_staleness_syncs_ago(run: Observed, tiny_world: Any) -> None:
    """Planted fault: current weights in place of stale ones. The checksum is of the weights that were sampled from."""
    for row in run.rows()[1:]:
        version = max(0, row["step"] - 1 - STALENESS)
        folder = tiny_world.model if version == 0 else run.output / "checkpoints" / f"step_{version}"
        tensors = {name: t.to(torch.bfloat16) for name, t in load_file(folder / "model.safetensors").items()}
        head = {"lm_head.weight": tensors["model.embed_tokens.weight"]}
        assert row["data"]["weights/sampled_version"] == version
        assert row["data"]["weights/sampled_checksum"] in (checksum(tensors), checksum({**tensors, **head}))
    late = run.rows()[-1]["data"]
    assert late["weights/sampled_checksum"] != late["weights/synced_checksum"]


def test_validation_samples_the_current_weights(run: Observed) -> None:
    versions = {step: out.version for step, validate, _, out in run.generations if validate}
    assert versions == {0: 0, 2: 2, 4: 4, 5: 5}


def test_the_support_is_the_rollouts_own(run: Observed, tiny_world: Any) -> None:
    """Planted fault: top-K of the trainer in place of the rollout's. Ids and log-probs are the stale model's."""
    step, prompts, out = training_rollouts(run)[-1]
    assert out.version == STEPS - 1 - STALENESS
    stale = teacher_forced(run.model(out.version, tiny_world.model, torch.bfloat16), prompts, out)
    newest = teacher_forced(run.model(STEPS - 1, tiny_world.model, torch.bfloat16), prompts, out)
    assert out.support_ids is not None and out.support_logp is not None
    mask = torch.arange(out.tokens.shape[1]) < out.lengths.unsqueeze(1)
    error = (stale.gather(-1, out.support_ids) - out.support_logp).abs().amax(-1)[mask]
    other = (newest.gather(-1, out.support_ids) - out.support_logp).abs().amax(-1)[mask]
    assert error.median() < 0.01 < other.median()
    assert (out.support_logp[..., : TOP_K - 1] >= out.support_logp[..., 1:TOP_K]).all()
    # Near-ties may swap in bf16; mass cannot.
    best = stale.topk(TOP_K, dim=-1).values.exp().sum(-1)[mask]
    assert (best - out.support_logp[..., :TOP_K].exp().sum(-1)[mask]).abs().max() < 0.02


def test_the_loss_sees_what_the_rollout_recorded(run: Observed) -> None:
    """mu's log-probs and ids arrive unchanged in the loss, aligned with the sampled tokens, in float32."""
    rows = 8 * 4 // MINI_BATCHES
    for i, (_, _, out) in enumerate(training_rollouts(run)):
        for j in range(MINI_BATCHES):
            signals = run.signals[i * MINI_BATCHES + j]
            part = slice(j * rows, (j + 1) * rows)
            mask, width = signals.response_mask, signals.response_mask.shape[1]
            assert signals.logp_mu.dtype == torch.float32 and signals.support is not None
            assert mask.sum(1).tolist() == out.lengths[part].tolist()
            assert torch.equal(signals.logp_mu[mask], out.logp[part, :width][mask])
            assert out.support_ids is not None and out.support_logp is not None
            assert torch.equal(signals.support.ids[mask], out.support_ids[part, :width][mask])
            valid = signals.support.valid & mask.unsqueeze(-1)
            assert torch.equal(signals.support.logp_mu[valid], out.support_logp[part, :width][valid])
            sampled = signals.support.ids[..., -1][mask]
            assert torch.equal(sampled, out.tokens[part, :width][mask])


def test_pi_at_the_support_is_the_current_policy(run: Observed, tiny_world: Any) -> None:
    """First mini-batch of the last step: pi is the model after STEPS - 1 steps, at the rollout's ids."""
    _, prompts, out = training_rollouts(run)[-1]
    signals = run.signals[(STEPS - 1) * MINI_BATCHES]
    rows = 8 * 4 // MINI_BATCHES
    logp = teacher_forced(run.model(STEPS - 1, tiny_world.model, torch.float32), prompts, out)[:rows]
    logp = logp[:, : signals.response_mask.shape[1]]
    assert signals.support is not None and signals.sum_pi_squared is not None and signals.entropy is not None
    valid = signals.support.valid
    assert torch.allclose(logp.gather(-1, signals.support.ids)[valid], signals.support.logp_pi[valid], atol=2e-5)
    mask = signals.response_mask
    assert torch.allclose(logp.exp().square().sum(-1)[mask], signals.sum_pi_squared[mask], atol=1e-5)
    assert torch.allclose(-(logp.exp() * logp).sum(-1)[mask], signals.entropy[mask], atol=1e-4)


def test_advantages_are_centred_rewards_without_std(run: Observed) -> None:
    signals = run.signals[:MINI_BATCHES]
    advantages = torch.cat([s.advantages[:, 0] for s in signals]).view(-1, 4)
    assert torch.allclose(advantages.sum(1), torch.zeros(8), atol=1e-6)
    steps_of_quarter = advantages * 4
    assert torch.allclose(steps_of_quarter, steps_of_quarter.round(), atol=1e-5)


def test_published_checkpoints_say_what_they_hold(run: Observed) -> None:
    """verl writes float32 tensors beside a config that says bfloat16; lm-eval would round the weights."""
    for step in range(1, STEPS + 1):
        config = json.loads((run.output / "checkpoints" / f"step_{step}" / "config.json").read_text())
        assert config["dtype"] == "float32" and "torch_dtype" not in config


def test_the_manifest_tells_what_the_worker_ran(run: Observed) -> None:
    manifest = json.loads((run.output / "manifest.json").read_text())
    assert manifest["worker"]["method"] == "dppo_topk_kl"
    assert manifest["worker"]["options"] == {"delta": 0.15, "ratio_cap": 5.0, "support": "added"}
    assert manifest["worker"]["loss_function"] == "methods.backend.loss.dppo_topk_kl_policy_loss"
    assert manifest["worker"]["staleness"] == STALENESS


def test_metrics_are_weighted_by_tokens(run: Observed) -> None:
    """Recomputed from the signals of the last step, over all its tokens at once."""
    signals, coefficients = run.signals[-MINI_BATCHES:], run.coefficients[-MINI_BATCHES:]
    data = run.rows()[-1]["data"]
    active = dropped = tokens = gap = 0.0
    for s, g in zip(signals, coefficients, strict=True):
        moving = s.response_mask & (s.advantages != 0)
        active += float(moving.sum())
        dropped += float((moving & (g == 0)).sum())
        tokens += float(s.response_mask.sum())
        gap += float((s.logp_pi - s.logp_mu).abs()[s.response_mask].sum(dtype=torch.float64))
    assert data["tokens/response"] == tokens and data["tokens/active"] == active
    assert data["mask/fraction"] == pytest.approx(dropped / active if active else 0.0)
    assert data["gap/sampled_mean"] == pytest.approx(gap / tokens, rel=1e-6)
