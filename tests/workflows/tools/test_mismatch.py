"""definition: the table of mismatches between trainer and rollout, over every pair of precisions.

Not covered: other sizes of models; how the gap grows with age of the rollout (training metrics show that); vLLM
(test_mismatch_vllm.py).
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from eval.files import read_csv
from methods.backend.precisions import ROLLOUT_PRECISIONS, TRAIN_PRECISIONS
from workflows import __main__ as command
from workflows.tools.mismatch import command as mismatch_command
from workflows.tools.mismatch import pairs, policies
from workflows.tools.mismatch.numbers import gap
from workflows.tools.mismatch.policies import Rollout, Settings, Tokens, Trainer

V, K = 6, 2


def arguments(tiny_world: Any, output: Path, **changes: Any) -> list[str]:
    options = {"model": tiny_world.model, "data": tiny_world.test, "prompts": 16, "samples": 8, "top_k": 5}
    options |= {"prompt_length": 5, "response_length": 4, "output": output, **changes}
    given = [str(item) for name, value in options.items() for item in (f"--{name.replace('_', '-')}", value)]
    return ["mismatch", *given]


@pytest.fixture(scope="module")
def table(tiny_world: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, float]]:
    """Numbers by pair, from the files that the command wrote."""
    output = tmp_path_factory.mktemp("mismatch")
    assert command.main(arguments(tiny_world, output)) == 0
    rows = read_csv(output / "mismatch.csv", "mismatch.csv")
    names = [name for name in rows[0] if name not in ("train", "engine", "rollout", "routing_differences")]
    return {(row["train"], row["rollout"]): {name: float(row[name]) for name in names} for row in rows}


def test_every_pair_has_a_row_over_the_same_tokens(table: Any) -> None:
    assert list(table) == [(train, rollout) for train in TRAIN_PRECISIONS for rollout in ROLLOUT_PRECISIONS]
    assert len({row["tokens"] for row in table.values()}) == 1 and table["fp32", "fp32"]["tokens"] > 256


@pytest.mark.parametrize("pair", [("fp32", "fp32"), ("bf16", "bf16"), ("fp16", "fp16"), ("fp8_bf16", "fp8")])
def test_equal_arithmetic_agrees(pair: tuple[str, str], table: Any) -> None:
    """One forward pass of the trainer against decoding with a cache: 1e-5 in the mean of the narrow dtypes."""
    row = table[pair]
    assert row["logp_sampled_mean"] <= 1e-5 and row["logp_topk_mean"] <= 2e-4 and row["topk_shared"] > 0.999
    if pair == ("fp32", "fp32"):
        assert 0 < row["logp_topk_max"] <= 1e-4


@pytest.mark.parametrize("name", ["logp_sampled_mean", "logp_topk_mean", "prob_sampled_mean", "reduced_kl_mean"])
def test_known_order_of_size(name: str, table: Any) -> None:
    """fp32 < fp16 < bf16 < int8 W8A8 < fp8 W8A8, and fp8 on both sides in between (shared/toy-world.md, 3.2)."""
    sizes = [table["fp32", rollout][name] for rollout in ("fp32", "fp16", "bf16", "int8", "fp8")]
    assert sizes == sorted(sizes)
    assert sizes[1] > 10 * sizes[0] and sizes[2] > 3 * sizes[1] and sizes[4] > 2 * sizes[2]
    assert table["fp32", "bf16"][name] < table["fp8", "fp8"][name] < table["fp32", "fp8"][name]


def test_the_gap_is_of_the_pair(table: Any) -> None:
    """bf16 on one side is as far from fp32 as bf16 on the other, with other engines on both."""
    one, other = table["fp32", "bf16"], table["bf16", "fp32"]
    assert one["logp_sampled_mean"] == pytest.approx(other["logp_sampled_mean"], rel=0.02)


def test_same_command_same_bytes(tiny_world: Any, table: Any, tmp_path: Path, capsys: Any) -> None:
    for name in ("a", "b"):
        command.main(arguments(tiny_world, tmp_path / name, prompts=4, samples=2))
    for file in ("mismatch.csv", "mismatch.txt"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert capsys.readouterr().out.count((tmp_path / "a" / "mismatch.txt").read_text()) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompts": 17}, "--prompts 17: allowed is 1 to the 16 rows"),
        ({"top_k": 46}, "setting.top_k = 46: allowed is 0"),
    ],
)
def test_bad_arguments(changes: dict[str, int], message: str, tiny_world: Any, tmp_path: Path, capsys: Any) -> None:
    assert command.main(arguments(tiny_world, tmp_path / "out", **changes)) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert command.main(["mismatch", "--model", str(tiny_world.model)]) == 2


def hand(pi: list[list[float]], mu: list[list[float]], responses: list[int]) -> dict[str, Any]:
    """The row of one response with the given distributions."""
    logp_mu, sampled = torch.tensor(mu).log(), torch.tensor(responses).unsqueeze(-1)
    ids = torch.cat([logp_mu.topk(K, -1).indices, sampled], -1)
    return gap(Trainer(torch.tensor(pi).log(), None), Rollout(ids, logp_mu.gather(-1, ids), None))


def test_numbers_by_hand() -> None:
    """Token 3 is sampled with mu 0.1 and pi 0.2, outside mu's top 2 {0, 1}; pi's top 2 are {0, 3}; tail 0.2 and 0.2."""
    row = hand([[0.5, 0.1, 0.1, 0.2, 0.05, 0.05]], [[0.4, 0.3, 0.1, 0.1, 0.05, 0.05]], [3])
    log = torch.log(torch.tensor([0.5 / 0.4, 0.1 / 0.3, 0.2 / 0.1])).abs()
    assert row["logp_sampled_mean"] == pytest.approx(float(log[2])) == pytest.approx(row["logp_sampled_max"])
    assert row["logp_topk_max"] == pytest.approx(float(log.max()))
    assert row["prob_sampled_mean"] == pytest.approx(0.1) and row["topk_shared"] == 0.5
    kl = 0.4 * -log[0] + 0.3 * log[1] - 0.1 * log[2]
    assert row["reduced_kl_mean"] == pytest.approx(float(kl), abs=1e-6) and row["routing_differences"] is None


@pytest.mark.parametrize("logits", [1, policies.LOGITS])
def test_both_sides_tell_of_the_same_tokens(logits: int, tiny_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of two lengths, three responses of which one goes on after its end with a token that nobody would draw.

    Each row against a forward pass of that response alone; the trainer in one pass, and in a pass for each response.
    """
    monkeypatch.setattr(policies, "LOGITS", logits)
    model = AutoModelForCausalLM.from_pretrained(tiny_world.model, attn_implementation="sdpa").eval()
    tokens = Tokens(
        [[1, 12, 10, 14, 3], [1, 6, 3], [1, 12, 10, 14, 3]],
        torch.tensor([[10, 12, 14, 2], [6, 2, 44, 44], [12, 14, 10, 2]]),
        torch.tensor([[True] * 4, [True, True, False, False], [True] * 4]),
    )
    engine = SimpleNamespace(module=model, logits=lambda ids, mask, places: model(ids, mask, places).logits.float())
    rollout = SimpleNamespace(sampling_model=lambda: model, top_k=K, pad_id=0)
    with torch.no_grad():
        pi, mu = policies.trainer_policy(engine, tokens), policies.force_tokens(rollout, tokens)
        truth = []
        for prompt, response, mask in zip(tokens.prompts, tokens.responses, tokens.mask, strict=True):
            whole = model(torch.tensor([[*prompt, *response[mask]]])).logits[0].float()
            truth.append(whole[len(prompt) - 1 : -1].log_softmax(-1))
    expected = torch.cat(truth)
    assert torch.equal(mu.ids[:, -1], tokens.responses[tokens.mask])
    assert torch.allclose(pi.logp, expected, atol=1e-5)
    assert torch.allclose(mu.logp, expected.gather(-1, mu.ids), atol=1e-5)


def test_the_routing_is_that_of_the_same_tokens() -> None:
    """Two layers at three tokens; at one token one layer has another pair of experts."""
    logp = torch.full((3, V), 1 / V).log()
    one = torch.tensor([[[0, 1], [0, 1], [2, 3]], [[0, 1], [1, 2], [1, 3]]])
    other = one.clone()
    other[1, 2] = torch.tensor([0, 3])
    mu = Rollout(torch.tensor([[0, 1, 5]] * 3), logp[:, :3], other)
    row = gap(Trainer(logp, one), mu)
    assert row["tokens"] == 3 and row["logp_topk_max"] == 0 and row["routing_differences"] == pytest.approx(1 / 6)


def test_vllm_asked_for_and_missing(tiny_world: Any, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """Before any model is made; and an engine that nobody has."""
    monkeypatch.setattr(mismatch_command, "vllm_installed", lambda: False)
    monkeypatch.setattr(mismatch_command, "measure", lambda settings: pytest.fail("measured all the same"))
    output = tmp_path / "out"
    assert command.main([*arguments(tiny_world, output), "--engines", "hf", "vllm"]) == 2
    assert "--engines vllm: vLLM is not installed in this environment; `make vllm`" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main([*arguments(tiny_world, output), "--engines", "sglang"])
    assert not output.exists()


def test_a_mixture_has_its_routing_compared(tiny_world: Any, tmp_path: Path) -> None:
    """Random weights suffice: no difference where the arithmetic is equal, some under fp8."""
    from transformers import AutoTokenizer

    from workflows.world import build, warm_start

    size = warm_start.ModelSize(hidden=32, layers=2, heads=1, kind="qwen3_moe", experts=4)
    warm_start.make_model(build.load(tiny_world.folder), size, seed=0).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_world.folder / "tokenizer").save_pretrained(tmp_path)
    settings = Settings(tmp_path, tiny_world.test, 16, 8, 5, prompt_length=5, response_length=4)
    rows = {(row["train"], row["rollout"]): row for row in pairs.measure(settings)[0]}
    for name in ("fp32", "bf16", "fp16"):
        assert rows[name, name]["routing_differences"] == 0
    assert 0 < rows["fp32", "fp8"]["routing_differences"] < 0.5
