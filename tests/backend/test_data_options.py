"""definition: what a setting may ask for: what is left out of the loss, what is kept as files, and how it prompts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch

from methods.backend import launch
from methods.backend.compose import build_trainer, compose
from methods.backend.recipe import _hydra, verl_overrides
from methods.backend.rollout.selection import flat, kept_in_mini_batch, truncated
from methods.backend.run.checks import check
from methods.backend.run.data_check import check_data
from methods.backend.run.log import canonical
from methods.backend.setting import ConfigError
from workflows.world.reward import compute_score
from workflows.world.sorting import SortingWorld
from workflows.world.tokens import build


def rows_of(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["data"] for line in (output / "metrics.jsonl").read_text().splitlines()]


def rollouts_of(output: Path, step: int = 1) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "rollouts" / f"step_{step:06d}.jsonl").read_text().splitlines()]


def test_what_is_left_out_of_a_mini_batch() -> None:
    """By hand: 8 responses, groups of 2, mini-batches of 4; the end token is 0."""
    responses = [torch.tensor(ids) for ids in ([5, 0], [5, 5], [0], [5, 5], [5, 5], [0, 5], [5, 0], [5, 0])]
    assert truncated(responses, {0}).tolist() == [False, True, False, True, True, True, False, False]
    scores = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.5, 0.5])
    groups = ["a", "a", "b", "b", "c", "c", "d", "d"]
    assert flat(scores, groups).tolist() == [True, True, False, False, True, True, True, True]
    left_out = torch.tensor([True, False, False, False, True, True, True, True])
    assert kept_in_mini_batch(left_out, 4).tolist() == [0, 3, 3, 3, 0, 0, 0, 0]


@pytest.fixture(scope="module")
def plain(tiny_world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One optimiser step, responses cut early, so that both kinds of response to leave out are there."""
    output = tmp_path_factory.mktemp("options") / "plain"
    launch.train(tiny_world.run_config(output, **SHORT, rollouts=True))
    return output


SHORT = {"steps": 1, "staleness": 0, "mini_batches": 1, "response_length": 3, "prompts": 8}


def test_flat_groups_leave_the_mean_over_sequences(plain: Path, tiny_world: Any, tmp_path: Path) -> None:
    """Their advantages are 0 anyway: loss and gradient grow by all responses / those that stay. Micro-batches of 4."""
    kept = rollouts_of(plain)
    groups = [[row["score"] for row in kept[i : i + 4]] for i in range(0, len(kept), 4)]
    stay = 4 * sum(len(set(scores)) > 1 for scores in groups)
    assert 0 < stay < len(kept)
    launch.train(tiny_world.run_config(tmp_path / "run", **SHORT, skip_flat_groups=True, micro_batch=4))
    before, after = rows_of(plain)[1], rows_of(tmp_path / "run")[1]
    assert after["tokens/responses_left_out"] == len(kept) - stay
    assert after["tokens/active"] == before["tokens/active"] < before["tokens/response"]
    for name in ("grad_norm", "loss"):
        assert after[name] == pytest.approx(before[name] * len(kept) / stay, rel=1e-4), name
    assert after["reward/mean"] == before["reward/mean"]


def test_truncated_responses_leave_the_loss(plain: Path, tiny_world: Any, tmp_path: Path) -> None:
    """Also where that is all of them: the gradient is 0 and nothing NaN. Rewards are of all responses."""
    kept = rollouts_of(plain)
    cut = [row["truncated"] for row in kept]
    assert [row["tokens"] == 3 and not row["output"].endswith("<eos>") for row in kept] == cut and any(cut)
    launch.train(tiny_world.run_config(tmp_path / "run", **SHORT, mask_truncated=True))
    before, after = rows_of(plain)[1], rows_of(tmp_path / "run")[1]
    assert after["tokens/responses_left_out"] == sum(cut)
    left = sum(row["tokens"] for row in kept if not row["truncated"])
    assert after.get("tokens/response", 0) == left < before["tokens/response"]
    assert after["reward/mean"] == before["reward/mean"]
    launch.train(
        tiny_world.run_config(
            tmp_path / "none",
            **{**SHORT, "response_length": 1},
            mask_truncated=True,
            reference_kl=0.1,
            loss_aggregation="token-mean",
        )
    )
    assert rows_of(tmp_path / "none")[1]["grad_norm"] == pytest.approx(0, abs=1e-6)


def test_rollouts_are_kept_and_the_metrics_are_as_without(plain: Path, tiny_world: Any, tmp_path: Path) -> None:
    """One line a response, scored as the metrics say; the manifest says so. Not: a resumed run (test_restart.py)."""
    launch.train(tiny_world.run_config(tmp_path / "run", **SHORT))
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (plain / "metrics.jsonl").read_bytes()
    assert not (tmp_path / "run" / "rollouts").exists()
    kept = rollouts_of(plain)
    assert [(row["prompt"], row["sample"]) for row in kept] == [(i, j) for i in range(8) for j in range(4)]
    assert sum(row["score"] for row in kept) / len(kept) == pytest.approx(rows_of(plain)[1]["reward/mean"])
    assert {row["input"].split()[0] for row in kept} == {"<bos>"} and {row["data_source"] for row in kept} == {
        "tether/sort"
    }
    manifest = json.loads((plain / "manifest.json").read_text())
    assert (
        manifest["setting"]["rollouts"]
        and "+actor_rollout_ref.rollout.custom.rollouts=true" in (manifest["verl_overrides"])
    )


def test_validation_sets_are_reported_apart(tiny_world: Any, tmp_path: Path) -> None:
    """Two files, one data_source each; `val/accuracy` is the mean of the two, whatever their sizes."""
    frame = pd.read_parquet(tiny_world.test)
    frame[:4].assign(data_source="own/small").to_parquet(tmp_path / "small.parquet")
    val = [str(tiny_world.test), str(tmp_path / "small.parquet")]
    launch.train(tiny_world.run_config(tmp_path / "run", **SHORT, val_files=val))
    launch.train(tiny_world.run_config(tmp_path / "one", **SHORT))
    for both, one in zip(rows_of(tmp_path / "run"), rows_of(tmp_path / "one"), strict=True):
        sources = [both["val/accuracy/tether/sort"], both["val/accuracy/own/small"]]
        assert both["val/accuracy"] == pytest.approx(sum(sources) / 2)
        assert not [name for name in one if name.startswith("val/accuracy/")]


def test_names_of_verls_validation_metrics() -> None:
    """Sources may hold slashes, and other numbers of verl beside the mean are left out."""
    found = canonical({"val-core/a/x/acc/mean@2": 0.5, "val-core/b/acc/mean@2": 1.0, "val-core/b/acc/best@2/mean": 1.0})
    assert found == {"val/accuracy": 0.75, "val/accuracy/a/x": 0.5, "val/accuracy/b": 1.0}
    assert canonical({"val-core/a/x/acc/mean@1": 0.25}) == {"val/accuracy": 0.25}


@pytest.mark.parametrize(
    ("tokens", "paid"),
    [
        ("5 7 9 <eos>", 1.0),
        ("5 7 9", 1.0),
        ("5 <pad> 7 <sep> 9 <eos>", 0.0),
        ("5 7 9 <sep>", 0.0),
        ("<bos> 5 7 9", 0.0),
        ("5 7 9 <eos> <eos>", 0.0),
        ("5 9 7 <eos>", 0.0),
    ],
)
def test_the_toy_world_pays_the_sorted_sequence_alone(tokens: str, paid: float) -> None:
    """By the text that a setting of the toy world gives its reward; without special tokens all but the last were
    paid."""
    tokenizer = build(SortingWorld(numbers=3, limit=40, train_prompts=1, test_prompts=1, seed=0))
    ids = tokenizer.convert_tokens_to_ids(tokens.split())
    assert compute_score("", tokenizer.decode(ids, skip_special_tokens=False), "5 7 9") == paid
    text = tokenizer.decode(ids, skip_special_tokens=True)
    assert compute_score("", text, "5 7 9") == float("9 7" not in tokens)


@pytest.mark.parametrize("kept", [False, True])
def test_special_tokens_reach_a_reward_where_they_are_asked_for(kept: bool, tiny_world: Any) -> None:
    """The batch manager and verl's reward workers give the same text."""
    from transformers import AutoTokenizer
    from verl.utils.reward_score import default_compute_score  # noqa: F401  # loads verl

    from methods.backend.ray.reward_manager import Whole
    from methods.backend.rollout.batch import BatchRolloutManager

    tokenizer = AutoTokenizer.from_pretrained(tiny_world.model)
    ids = tokenizer.convert_tokens_to_ids(["5", "<sep>", "7", "<eos>"])
    seen = []
    manager = SimpleNamespace(
        tokenizer=tokenizer, special_tokens=kept, reward_fn=lambda solution_str, **_: seen.append(solution_str) or 1.0
    )
    out = SimpleNamespace(tokens=torch.tensor([ids]), lengths=torch.tensor([4]))
    row = {"data_source": "", "reward_model": {"ground_truth": ""}}
    BatchRolloutManager.score(manager, [row], out)  # type: ignore[arg-type]
    assert seen == ["5 <sep> 7 <eos>" if kept else "5 7"]
    server = Whole(tokenizer) if kept else tokenizer
    assert server.decode(ids, skip_special_tokens=True) == seen[0]


def test_a_template_of_ones_own_and_none(tiny_world: Any, tmp_path: Path) -> None:
    """Rendered and counted as verl will: by the text that reaches its configuration. Backslashes and quotes survive."""
    template = tmp_path / "own.jinja"
    template.write_text("{% for m in messages %}{{ m['content'] + \"\\n\" }}{% endfor %}<sep> <sep>")
    for value, length in ((None, 5), (False, 3), (str(template), 5)):
        compose(run := tiny_world.run_config(tmp_path / "run", chat_template=value))
        given = compose(run).actor_rollout_ref.model.custom_chat_template
        assert given == run.setting.template()
        check(tiny_world.run_config(tmp_path / "run", chat_template=value, prompt_length=length))
        with pytest.raises(
            ConfigError, match=rf"row 0: prompt has {length} tokens, setting.prompt_length = {length - 1}"
        ):
            check(tiny_world.run_config(tmp_path / "run", chat_template=value, prompt_length=length - 1))
    with pytest.raises(ConfigError, match=r"setting.chat_template = nowhere: not readable"):
        check(tiny_world.run_config(tmp_path / "run", chat_template="nowhere"))
    with pytest.raises(
        ConfigError, match=r"setting.chat_template = True: allowed are None, False and the path of a file"
    ):
        tiny_world.run_config(tmp_path / "run", chat_template=True)


@pytest.mark.parametrize("text", ["a'b", "a\\", "a\\'b", "\\n", "a\\\\", "{{ x }}, [y]: $z = 1", "a\nb", "'", ""])
def test_any_text_reaches_verls_configuration(text: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (parsed,) = OverridesParser.create().parse_overrides([f"key={_hydra(text)}"])
    assert parsed.value() == text


def test_overlong_prompts_are_dropped_where_that_is_asked_for(tiny_world: Any, tmp_path: Path) -> None:
    """The rows that verl trains on are those that the check counted; all of a file is refused."""
    frame = pd.read_parquet(tiny_world.train)
    long = [{"role": "user", "content": "1 2 3 4 5 6"}]
    frame["prompt"] = [long if i in (3, 60) else list(prompt) for i, prompt in enumerate(frame["prompt"])]
    frame.to_parquet(tmp_path / "long.parquet")
    run = tiny_world.run_config(
        tmp_path / "run", **SHORT, train_files=[str(tmp_path / "long.parquet")], overlong_prompts="drop"
    )
    assert check_data(run, 45) == {"train_files": 2}
    assert len(build_trainer(run).train_dataset) == 62
    with pytest.raises(
        ConfigError, match=r"setting.prompts = 64: allowed is at most the 62 rows .* \(2 were dropped\)"
    ):
        check(
            tiny_world.run_config(
                tmp_path / "run", **{**SHORT, "prompts": 64}, train_files=run.train_files, overlong_prompts="drop"
            )
        )
    with pytest.raises(ConfigError, match=r"prompt_length = 2: every prompt of train_files is longer"):
        check(tiny_world.run_config(tmp_path / "run", prompt_length=2, overlong_prompts="drop"))


def test_nothing_is_said_of_options_that_are_off(tiny_world: Any, tmp_path: Path) -> None:
    """verl's configuration of a default setting names none of them."""
    lines = "\n".join(verl_overrides(tiny_world.run_config(tmp_path / "run")))
    for name in ("special_tokens", "truncated", "flat", "rollouts", "template", "filter_overlong_prompts_workers"):
        assert name not in lines


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask_truncated": 1}, r"setting.mask_truncated = 1: allowed are True and False"),
        ({"overlong_prompts": "cut"}, r"setting.overlong_prompts = 'cut': allowed are error, drop"),
        (
            {"skip_flat_groups": True, "tokens": {}},
            r"setting.skip_flat_groups = True: allowed is False beside setting.tokens",
        ),
    ],
)
def test_bad_options(changes: dict[str, Any], message: str, tiny_world: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        tiny_world.run_config(tmp_path / "run", **changes)
