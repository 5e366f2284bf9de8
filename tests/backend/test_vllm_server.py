"""definition: what surrounds verl's vLLM server: whose weights it is sent, what its worker does with them, seeds, K.

Ray is replaced by an object that keeps what it is sent. Not covered here: the server itself (test_ray.py trains so).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load, save
from transformers import AutoConfig, AutoModelForCausalLM

from methods.backend.ray.protocol import Request
from methods.backend.rollout.sampling import SamplingParameters
from methods.backend.rollout.staleness import checksum

pytestmark = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed: make vllm")
HEAD = "lm_head.weight"


class Server:
    """Stands for the actor's handle."""

    def __init__(self) -> None:
        self.versions: list[int] = []
        self.held: dict[str, torch.Tensor] = {}
        self.damage = 0
        self.load = SimpleNamespace(remote=self._load)

    async def _load(self, payload: bytes, version: int) -> int:
        self.held = load(payload)
        self.versions.append(version)
        return checksum(self.held) + self.damage


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    from methods.backend.ray import vllm_server

    standing = Server()
    monkeypatch.setattr(vllm_server.ray, "get_actor", lambda name: standing if name == "tether_vllm_0" else None)
    monkeypatch.setenv("RANK", "0")
    return standing


def rollout(tiny_world: Any, staleness: int, quantization: str = "none", dtype: str = "float32") -> Any:
    from methods.backend.ray.vllm_server import VLLMServerRollout

    custom = {"staleness": staleness, "seed": 0, "top_k": 5, "quantization": quantization}
    config = SimpleNamespace(custom=custom, seed=0, dtype=dtype, get={}.get)
    hf_config = AutoConfig.from_pretrained(tiny_world.model)
    generation = SimpleNamespace(eos_token_id=2)
    model = SimpleNamespace(hf_config=hf_config, generation_config=generation, local_path=str(tiny_world.model))
    return VLLMServerRollout(config, model, None)


def trained(tiny_world: Any, version: int) -> dict[str, torch.Tensor]:
    """As the trainer names them: the tied head has no name of its own."""
    state = AutoModelForCausalLM.from_pretrained(tiny_world.model, dtype=torch.float32).state_dict()
    return {name: tensor + version for name, tensor in state.items() if name != HEAD}


def sync(own: Any, tiny_world: Any, version: int) -> None:
    asyncio.run(own.update_weights(trained(tiny_world, version).items(), global_steps=version))


def test_the_server_is_sent_the_stale_weights_and_the_current_ones_to_validate(server: Any, tiny_world: Any) -> None:
    """Staleness 2; nothing is sent that is there already."""
    own = rollout(tiny_world, staleness=2)
    for version in range(4):
        sync(own, tiny_world, version)
    assert server.versions == [0, 1]
    assert own.sampled["weights/sampled_version"] == 1 and own.sampled["weights/synced_version"] == 3
    asyncio.run(own.serve(validate=True))
    assert server.versions == [0, 1, 3] and own.sampled["weights/sampled_version"] == 1
    expected = trained(tiny_world, 3)
    assert all(torch.equal(server.held[name], tensor) for name, tensor in expected.items())
    assert torch.equal(server.held[HEAD], expected["model.embed_tokens.weight"])
    asyncio.run(own.serve(validate=False))
    assert server.versions == [0, 1, 3, 1]


def test_int8_is_made_of_the_rollouts_dtype_before_it_is_sent(server: Any, tiny_world: Any) -> None:
    sync(rollout(tiny_world, staleness=0, quantization="int8_w8a8", dtype="bfloat16"), tiny_world, 0)
    name = "model.layers.0.mlp.up_proj.weight"
    assert server.held[name].dtype == torch.int8 and server.held[HEAD].dtype == torch.bfloat16
    weight = trained(tiny_world, 0)[name].bfloat16().float()
    assert ((server.held[name] * server.held[f"{name}_scale"] - weight).abs() <= server.held[f"{name}_scale"]).all()


def test_weights_that_arrive_changed_stop_the_training_and_are_sent_again(server: Any, tiny_world: Any) -> None:
    own = rollout(tiny_world, staleness=0)
    server.damage = 1
    with pytest.raises(RuntimeError, match="the vLLM server loaded weights of checksum .*, it was sent"):
        sync(own, tiny_world, 0)
    server.damage = 0
    asyncio.run(own.serve(validate=False))
    assert server.versions == [0, 0]


@pytest.fixture
def default_stance() -> Iterator[None]:
    """The extension has a process of its own, where nothing is to be compiled; here others share it."""
    yield
    torch.compiler.set_stance("default")


@pytest.mark.usefixtures("default_stance")
@pytest.mark.parametrize("quantization", ["none", "int8_w8a8"])
def test_the_engines_worker_loads_what_it_is_sent(quantization: str, tiny_world: Any) -> None:
    """The extension in an engine of this process, with weights it has not seen: log-probs are those of the payload."""
    from methods.backend.rollout.engines import QUANTIZATIONS
    from methods.backend.rollout.vllm_engine import EngineSettings, InProcessEngine, request_seeds, unchanged_process

    extra = {
        **QUANTIZATIONS[quantization],
        "worker_extension_cls": "methods.backend.rollout.vllm_worker.CPUWorkerExtension",
    }
    engine = InProcessEngine(EngineSettings(str(tiny_world.model), "float32", 9, 8, 5, extra))
    model = AutoModelForCausalLM.from_pretrained(tiny_world.model, dtype=torch.float32).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * parameter.std() * 0.3)
    tensors = engine.format(model.state_dict())
    payload = save({name: tensor.clone() for name, tensor in tensors.items()})
    with unchanged_process():
        assert engine.llm.collective_rpc("load", args=(payload,)) == [checksum(tensors)]
    prompts = [[1, 12, 10, 14, 3]] * 8
    out = engine.sample(prompts, SamplingParameters(1.0, 4, 5), set(), 0, request_seeds(0, 0, 0, 0, 8))
    with torch.no_grad():
        logits = model(input_ids=torch.cat([torch.tensor(prompts), out.tokens], 1)).logits[:, 4:-1].float()
    logp = torch.log_softmax(logits, -1).gather(-1, out.tokens.unsqueeze(-1)).squeeze(-1)
    gap = float((logp - out.logp).abs().mean())
    assert gap <= 1e-5 if quantization == "none" else 1e-3 < gap < 0.05


def test_requests_of_one_prompt_never_share_a_seed() -> None:
    """property: they fit 32 bits, differ within a group and between steps, purposes, prompts and trainings' seeds."""
    from methods.backend.ray.vllm_http import request_seed

    group = [request_seed(0, Request(3, 7, sample, False)) for sample in range(64)]
    assert len(set(group)) == 64 and all(0 <= seed < 1 << 32 for seed in group)
    one = Request(3, 7, 0, False)
    others = [Request(4, 7, 0, False), Request(3, 8, 0, False), Request(3, 7, 0, True)]
    assert request_seed(0, one) not in {request_seed(0, other) for other in others}
    assert request_seed(1, one) != request_seed(0, one) == request_seed(0, Request(3, 7, 0, False))
    many = [request_seed(0, Request(1, index, sample, False)) for index in range(500) for sample in range(8)]
    assert len(set(many)) == len(many)


def test_the_engine_is_asked_for_top_k_and_its_answer_is_kept() -> None:
    """verl's own request says 0 log-probs; what is kept is the last, whole output."""
    from vllm.sampling_params import SamplingParams

    from methods.backend.ray.vllm_http import TOP_K, TopKEngine

    asked: list[Any] = []

    async def generate(*, sampling_params: Any, request_id: str, prompt: Any) -> Any:
        asked.append(sampling_params.logprobs)
        for part in ("half", "whole"):
            yield part

    engine = TopKEngine(SimpleNamespace(generate=generate, name="vllm"))
    parameters = SamplingParams(logprobs=0, extra_args={TOP_K: 20})

    async def run() -> list[Any]:
        return [part async for part in engine.generate(sampling_params=parameters, request_id="a", prompt=None)]

    assert asyncio.run(run()) == ["half", "whole"] and asked == [20]
    assert engine.finished == {"a": "whole"} and engine.name == "vllm" and TOP_K not in parameters.extra_args


PARENT = """
import multiprocessing, time
from methods.backend.rollout.vllm_worker import end_with_parent

def child():
    end_with_parent()
    print("ready", flush=True)
    time.sleep(60)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=child)
    process.start()
    print(process.pid, flush=True)
    process.join()
"""


def test_the_engines_process_ends_with_a_killed_parent(tmp_path: Path) -> None:
    """Started as vLLM starts its engine; without the call the child would sleep on."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    assert parent.stdout.readline() == "ready\n"
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    with contextlib.suppress(psutil.NoSuchProcess):
        while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.05)
