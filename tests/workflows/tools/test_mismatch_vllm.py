"""definition: vLLM as one more rollout in the table of mismatches, on tokens that it sampled itself.

Not covered: which kernels compute in low precision (tests/backend/test_vllm_precision.py); models with experts, which
vLLM on a CPU reloads wrongly and `preflight` refuses.
"""

from __future__ import annotations

import gc
import importlib.util
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from eval.files import read_csv
from eval.tokens.figures import mismatch
from methods.backend.precisions import TRAIN_PRECISIONS
from methods.backend.rollout.vllm_engine import EngineSettings, InProcessEngine
from workflows import __main__ as command
from workflows.tools.mismatch.pairs import VLLM

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed here: make vllm"
)


@pytest.fixture(scope="module")
def folder(tiny_world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the command with both engines."""
    output = tmp_path_factory.mktemp("mismatch")
    given = {"model": tiny_world.model, "data": tiny_world.test, "prompts": 16, "samples": 4, "top_k": 5}
    given |= {"prompt_length": 5, "response_length": 4, "output": output}
    options = [str(item) for name, value in given.items() for item in (f"--{name.replace('_', '-')}", value)]
    assert command.main(["mismatch", *options, "--engines", "hf", "vllm"]) == 0
    return output


@pytest.fixture(scope="module")
def table(folder: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    """Rows by trainer, engine and rollout."""
    rows = read_csv(folder / "mismatch.csv", "mismatch.csv")
    return {(row["train"], row["engine"], row["rollout"]): row for row in rows}


def number(table: Any, train: str, engine: str, rollout: str, name: str = "logp_sampled_mean") -> float:
    return float(table[train, engine, rollout][name])


def test_every_trainer_meets_every_precision(table: Any, folder: Path) -> None:
    """vLLM's rows come after Hugging Face's of the same trainer; what no engine tells is empty, not a number."""
    keys = [key for key in table if key[1] == "vllm"]
    assert keys == [(train, "vllm", rollout) for train in TRAIN_PRECISIONS for rollout in VLLM]
    assert list(table)[:5] == [("fp32", "hf", name) for name in ("fp32", "bf16", "fp16", "fp8", "int8")]
    assert {table[key]["routing_differences"] for key in table} == {""}
    # Each precision has its own tokens, the same for all trainers.
    for rollout in VLLM:
        assert len({table[train, "vllm", rollout]["tokens"] for train in TRAIN_PRECISIONS}) == 1


def test_the_engine_alone_makes_a_gap_and_precision_a_larger_one(table: Any) -> None:
    """The same nominal bfloat16 on both sides: Hugging Face agrees, vLLM does not, in the size of bf16's own error."""
    same = number(table, "bf16", "hf", "bf16")
    engine = number(table, "bf16", "vllm", "bf16")
    against_fp32 = number(table, "fp32", "hf", "bf16")
    assert same <= 1e-5 and 0.1 * against_fp32 < engine < 3 * against_fp32
    for precision in ("fp8", "fp8_cache"):
        assert number(table, "fp32", "vllm", precision) > 2 * number(table, "fp32", "vllm", "bf16")
    # Agreement of two independent kernels of W8A8 with the trainer of the same scheme, and with none.
    assert number(table, "fp8_bf16", "vllm", "fp8") < 0.75 * number(table, "fp32", "vllm", "fp8")


def test_the_profile_holds_every_token_once(table: Any, folder: Path) -> None:
    rows = read_csv(folder / "mismatch_profile.csv", "mismatch_profile.csv")
    for key, whole in table.items():
        own = [row for row in rows if (row["train"], row["engine"], row["rollout"]) == key]
        assert sum(int(row["tokens"]) for row in own) == int(whole["tokens"]) > 100
        mean = sum(int(row["tokens"]) * float(row["shift_mean"]) for row in own) / int(whole["tokens"])
        assert mean == pytest.approx(float(whole["prob_sampled_mean"]), rel=1e-5, abs=1e-7)


def test_the_figure_names_both_engines(folder: Path, tmp_path: Path) -> None:
    """Same data, same bytes; without vLLM's rows nothing is said of it."""
    profile = folder / "mismatch_profile.csv"
    for name in ("a.svg", "b.svg"):
        assert mismatch.main(["--table", str(profile), "--output", str(tmp_path / name)]) == 0
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text() and "vLLM: in each precision the tokens that it sampled" in text
    alone = tmp_path / "hf.csv"
    alone.write_text("".join(line for line in profile.read_text().splitlines(True) if ",vllm," not in line))
    assert mismatch.main(["--table", str(alone), "--output", str(tmp_path / "c.svg")]) == 0
    assert "vLLM" not in (tmp_path / "c.svg").read_text()


def test_a_closed_engine_leaves_no_model(tiny_world: Any) -> None:
    """vLLM's own table of reloads would hold each model for ever (methods.backend.rollout.vllm_engine)."""
    weights = AutoModelForCausalLM.from_pretrained(tiny_world.model, dtype=torch.float32).state_dict()
    engine = InProcessEngine(EngineSettings(str(tiny_world.model), "float32", 9, 4, 5, {}))
    engine.load(weights)
    (model,) = engine.llm.apply_model(weakref.ref)
    assert model() is not None
    engine.close()
    del engine
    gc.collect()
    assert model() is None
