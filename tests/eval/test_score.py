"""The scoring runner on models whose answers have known chances. Not covered: GPUs, and models that need a real
tokenizer (byte-level BPE)."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eval.score import main

Files = tuple[Path, Path, Path]
MAKE_TASK = """
task: {task}
custom_dataset: !function utils.load
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
repeats: 2
{filters}
process_results: !function utils.grade
generation_kwargs: {{do_sample: true, temperature: 1.0, top_p: 1.0, top_k: 0, max_gen_toks: 4, until: []}}
metric_list: [{{metric: "avg@2", aggregation: mean, higher_is_better: true}}]
"""
TAKE_ALL = "filter_list: [{name: all, filter: [{function: take_first_k, k: 2}]}]"
UTILS = """
from datasets import Dataset
from eval.tasks.repeats import repeated_results

def load(**_):
    return {"test": Dataset.from_list([{"question": "1", "answer": "odd"}, {"question": "2", "answer": "even"}])}

def grade(doc, results):
    answers = ["odd" if len(text.split()) % 2 else "even" for text in results[0]]
    return repeated_results([int(answer == doc["answer"]) for answer in answers], answers)
"""


def arguments(out: Path, parquet: Path, /, *checkpoints: str, **change: str) -> list[str]:
    """A full command line; keyword arguments replace or add options (`seed="2"`)."""
    options = {"data": str(parquet), "task": "sort", "seed": "1", "problems": "32", "batch_size": "128"} | change
    files = {"output": out / "scores.json", "samples": out / "samples.jsonl", "timing": out / "timing.json"}
    given = [text for pair in checkpoints for text in ("--checkpoint", pair)]
    for name, value in {**options, **files}.items():
        given += [f"--{name.replace('_', '-')}", str(value)]
    return given


@pytest.fixture
def run(tmp_path: Path, parquet: Path) -> Callable[..., Files]:
    """run(name, *checkpoints, **options) -> (scores, samples, timing), asserting success."""

    def call(name: str, *checkpoints: str, **change: str) -> Files:
        out = tmp_path / name
        assert main(arguments(out, parquet, *checkpoints, **change)) == 0
        return out / "scores.json", out / "samples.jsonl", out / "timing.json"

    return call


def read(path: Path) -> dict[str, Any]:
    """{metric: value} of the first checkpoint."""
    metrics = json.loads(path.read_text())["checkpoints"][0]["metrics"]
    return {name: entry["value"] for name, entry in metrics.items()}


def test_scores_have_the_known_chance(run: Callable[..., Files], coin: Path) -> None:
    """Answer right with chance 0.24, independently: avg@16 within 4 se, pass@4 near 1 - 0.76^4, no answer near 0.4."""
    scores, samples, _ = run("a", f"0={coin}", problems="64")
    metrics = read(scores)
    assert metrics["avg@16"] == pytest.approx(0.24, abs=4 * math.sqrt(0.24 * 0.76 / 1024))
    assert metrics["pass@4"] == pytest.approx(1 - 0.76**4, abs=0.1)
    assert metrics["no_answer"] == pytest.approx(0.4, abs=4 * math.sqrt(0.24 / 1024))
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    assert [row["problem"] for row in rows] == list(range(100, 164))
    assert {len(row["outcomes"]) for row in rows} == {16}
    assert sum(sum(row["outcomes"]) for row in rows) / 1024 == metrics["avg@16"]
    assert sum(row["majority_outcome"] for row in rows) / 64 == metrics["maj@16"]
    assert all(row["majority_outcome"] == (row["majority"] == "3") for row in rows)


def test_same_command_same_bytes(run: Callable[..., Files], coin: Path) -> None:
    """Byte-equal scores and samples for the same seed; another seed draws other samples."""
    first, again, other = run("a", f"0={coin}"), run("b", f"0={coin}"), run("c", f"0={coin}", seed="2")
    for one, two, three in zip(first[:2], again[:2], other[:2], strict=True):
        assert one.read_bytes() == two.read_bytes()
        assert one.read_bytes() != three.read_bytes()
    text = first[0].read_text() + first[1].read_text()
    assert str(coin) not in text and os.uname().nodename not in text
    assert "seconds" in first[2].read_text()


def test_checkpoints_share_a_process_but_nothing_else(run: Callable[..., Files], coin: Path, dice: Any) -> None:
    """Each of three checkpoints scored together equals the same one scored alone; order on the line is free."""
    other = dice("other", {"3": 0.3, "4": 0.3, "<eos>": 0.4})
    together = run("all", f"9={coin}", f"0={other}", f"4={coin}")
    scores = json.loads(together[0].read_text())
    rows = [json.loads(line) for line in together[1].read_text().splitlines()]
    assert [entry["step"] for entry in scores["checkpoints"]] == [0, 4, 9]
    for step, model in ((0, other), (4, coin), (9, coin)):
        alone = run(f"alone{step}", f"{step}={model}")
        (entry,) = json.loads(alone[0].read_text())["checkpoints"]
        assert entry in scores["checkpoints"]
        assert [json.loads(line) for line in alone[1].read_text().splitlines()] == [
            row for row in rows if row["step"] == step
        ]


def test_sampling_is_the_task_s_alone(run: Callable[..., Files], dice: Any, tmp_path: Path) -> None:
    """A generation_config.json with top_k 1 and a penalty changes nothing, and over 200 equally likely first tokens
    far more than 50 appear (transformers would cut to 50); the effective settings are in the file."""
    plain = dice("uniform", {**{str(number): 1 / 400 for number in range(200)}, "<eos>": 0.5})
    opinionated = tmp_path / "opinionated"
    shutil.copytree(plain, opinionated)
    config = json.loads((opinionated / "generation_config.json").read_text())
    config |= {"top_k": 1, "repetition_penalty": 9.0, "do_sample": True}
    (opinionated / "generation_config.json").write_text(json.dumps(config))
    first, second = run("a", f"0={plain}"), run("b", f"0={opinionated}")
    assert first[0].read_bytes() == second[0].read_bytes()
    assert first[1].read_bytes() == second[1].read_bytes()
    sampling = json.loads(first[0].read_text())["sampling"]
    assert sampling == {
        "do_sample": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_new_tokens": 16,
        "stop": ["<eos>"],
        "eos_token_id": 2,
    }


def test_prompt_and_dtype_are_the_training_s(dice: Any, parquet: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """The ids given to generate() are the chat template's (one BOS), 200 different first tokens are reachable, and
    float32 weights stay float32 although config.json says bfloat16."""
    import torch
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoTokenizer

    folder = tmp_path / "claims_bfloat16"
    shutil.copytree(dice("wide", {str(number): 1 / 200 for number in range(200)}), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    seen: list[tuple[list[list[int]], torch.Tensor, torch.dtype]] = []
    original = HFLM._model_generate

    def spy(self: Any, context: Any, *rest: Any, **options: Any) -> Any:
        out = original(self, context, *rest, **options)
        seen.append((context.tolist(), out[:, context.shape[1] :], next(self.model.parameters()).dtype))
        return out

    monkeypatch.setattr(HFLM, "_model_generate", spy)
    assert main(arguments(tmp_path / "out", parquet, f"0={folder}", max_new_tokens="3")) == 0
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = set()
    for row in range(32):
        message = [{"role": "user", "content": f"{row} {row + 1}"}]
        ids = tokenizer.apply_chat_template(message, add_generation_prompt=True)["input_ids"]
        assert ids.count(tokenizer.bos_token_id) == 1
        expected.add(tuple(ids))
    assert {tuple(ids) for contexts, _, _ in seen for ids in contexts} == expected
    assert {dtype for _, _, dtype in seen} == {torch.float32}
    assert {out.shape[1] for _, out, _ in seen} == {3}
    assert len(torch.cat([out[:, 0] for _, out, _ in seen]).unique()) > 150


def test_repeats_can_be_set(run: Callable[..., Files], coin: Path) -> None:
    """Three repeats give avg@3 over three outcomes, in place of the YAML's sixteen."""
    scores, samples, _ = run("a", f"0={coin}", repeats="3", pass_at="3")
    assert {"avg@3", "pass@3", "maj@3"} <= read(scores).keys()
    assert {len(json.loads(line)["outcomes"]) for line in samples.read_text().splitlines()} == {3}


def test_task_of_a_user(run: Callable[..., Files], coin: Path, tmp_path: Path) -> None:
    """A YAML folder of one's own, in a path with a blank, grades by its own rule: even length has chance 0.4 / 1.6
    without the cut at 4 tokens."""
    folder = tmp_path / "my tasks"
    folder.mkdir()
    (folder / "parity.yaml").write_text(MAKE_TASK.format(task="parity", filters=TAKE_ALL))
    (folder / "utils.py").write_text(UTILS)
    scores, samples, _ = run("a", f"0={coin}", task="parity", include_path=str(folder), repeats="64", pass_at="1")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    assert [row["problem"] for row in rows] == [0, 1]
    assert {row["majority"] for row in rows} <= {"odd", "even"}
    assert sum(map(sum, (row["outcomes"] for row in rows))) / 128 == read(scores)["avg@64"]
    assert 0.25 < read(scores)["avg@64"] < 0.75


def test_a_task_folder_may_be_relative(run: Callable[..., Files], coin: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """From the working folder, with and without ./, as with an absolute path."""
    folder = tmp_path / "here" / "mine"
    folder.mkdir(parents=True)
    (folder / "parity.yaml").write_text(MAKE_TASK.format(task="parity", filters=TAKE_ALL))
    (folder / "utils.py").write_text(UTILS)
    monkeypatch.chdir(tmp_path / "here")
    found = [
        run(f"a{number}", f"0={coin}", task="parity", include_path=path, repeats="2", pass_at="1")[0].read_bytes()
        for number, path in enumerate(("mine", "./mine", "../here/mine", str(folder)))
    ]
    assert len(set(found)) == 1


def test_temperature_and_top_p_can_be_set(run: Callable[..., Files], dice: Any) -> None:
    """At temperature 1/2 the odds 0.6 : 0.4 of 3 against the end are squared; top-p 0.5 leaves 3 alone; both are
    kept."""
    coin = dice("coin", {"3": 0.6, "<eos>": 0.4})
    cold = run("cold", f"0={coin}", temperature="0.5", problems="64")[0]
    share = 0.6**2 / (0.6**2 + 0.4**2)
    assert read(cold)["no_answer"] == pytest.approx(1 - share, abs=4 * math.sqrt(share * (1 - share) / 1024))
    assert json.loads(cold.read_text())["sampling"]["temperature"] == 0.5
    cut = run("cut", f"0={coin}", top_p="0.5")[0]
    assert read(cut)["no_answer"] == 0.0 and json.loads(cut.read_text())["sampling"]["top_p"] == 0.5


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_checkpoint_that_is_not_finite_is_refused(
    value: float, coin: Path, parquet: Path, tmp_path: Path, capsys: Any
) -> None:
    """One NaN or infinity in one parameter, of the second of two checkpoints; its step's folder and name are said."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(coin)
    model.model.norm.weight.data[3] = value
    broken = tmp_path / "broken"
    shutil.copytree(coin, broken)
    model.save_pretrained(broken)
    assert main(arguments(tmp_path / "out", parquet, f"0={coin}", f"1={broken}")) == 2
    assert f"{broken}: parameter model.norm.weight has 1 of 16 values" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_weights_that_overflow_are_refused(coin: Path, parquet: Path, tmp_path: Path, capsys: Any) -> None:
    """Finite weights whose logits are not: the first prompt tells. Not covered: an overflow at later prompts only."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(coin)
    model.lm_head.weight.data[7] = 3e38
    broken = tmp_path / "broken"
    shutil.copytree(coin, broken)
    model.save_pretrained(broken)
    assert main(arguments(tmp_path / "out", parquet, f"0={broken}")) == 2
    assert "logits after the first prompt are not finite" in capsys.readouterr().err


def test_a_task_is_checked_before_a_model_is_loaded(
    coin: Path, parquet: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    """A greedy task with two repeats, too many problems, too long a response, an unknown task: no model is built."""
    from eval import harness

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(harness, "CheckpointLM", never)
    (tmp_path / "utils.py").write_text(UTILS)
    greedy = MAKE_TASK.format(task="greedy", filters=TAKE_ALL)
    sampled = "{do_sample: true, temperature: 1.0, top_p: 1.0, top_k: 0, max_gen_toks: 4, until: []}"
    (tmp_path / "greedy.yaml").write_text(greedy.replace(sampled, "{do_sample: false, max_gen_toks: 4, until: []}"))
    own = {"task": "greedy", "include_path": str(tmp_path), "repeats": "2", "pass_at": "1"}
    for change, message in (
        (own, "all 2 repeats would be equal"),
        ({**own, "temperature": "0.7"}, "do_sample is false but temperature is 0.7"),
        ({"problems": "65"}, "has 64 rows, 65 problems were asked for"),
        ({"max_new_tokens": "64"}, "64 positions"),
        ({"task": "sorting"}, "unknown task 'sorting'"),
    ):
        assert main(arguments(tmp_path / "out", parquet, f"0={coin}", **change)) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "out").exists()


def test_doubled_bos_is_refused(coin: Path, parquet: Path, tmp_path: Path, capsys: Any) -> None:
    """A template that writes BOS twice, which no score would reveal."""
    double = tmp_path / "double"
    shutil.copytree(coin, double)
    template = double / "chat_template.jinja"
    template.write_text(template.read_text().replace("<bos> ", "<bos> <bos> "))
    assert main(arguments(tmp_path / "out", parquet, f"0={double}")) == 2
    assert "a prompt starts with two '<bos>'" in capsys.readouterr().err


def test_lm_eval_and_outcomes_must_agree(coin: Path, parquet: Path, tmp_path: Path, capsys: Any) -> None:
    """A task whose avg@k is not the mean of its outcomes is refused: one of the two is not what it says."""
    text = UTILS.replace("def grade", "def honest") + (
        "\ndef grade(doc, results):\n    return {**honest(doc, results), 'avg@2': 0.123}\n"
    )
    (tmp_path / "utils.py").write_text(text)
    (tmp_path / "liar.yaml").write_text(MAKE_TASK.format(task="liar", filters=TAKE_ALL))
    change = {"task": "liar", "include_path": str(tmp_path), "repeats": "2", "pass_at": "1"}
    assert main(arguments(tmp_path / "out", parquet, f"0={coin}", **change)) == 2
    assert "lm-eval's avg@k 0.123" in capsys.readouterr().err


def test_default_filter_is_refused(coin: Path, parquet: Path, tmp_path: Path, capsys: Any) -> None:
    """A task without filters would be scored on one response; one without outcomes cannot be recomputed."""
    (tmp_path / "utils.py").write_text(UTILS + "\ndef bare(doc, results):\n    return {'avg@2': 1.0}\n")
    (tmp_path / "one.yaml").write_text(MAKE_TASK.format(task="one", filters=""))
    text = MAKE_TASK.format(task="two", filters=TAKE_ALL).replace("utils.grade", "utils.bare")
    (tmp_path / "two.yaml").write_text(text)
    for task, message in (("one", "filter_list must hold exactly one filter"), ("two", "repeated_results")):
        change = {"task": task, "include_path": str(tmp_path), "repeats": "2", "pass_at": "1"}
        assert main(arguments(tmp_path / "out", parquet, f"0={coin}", **change)) == 2
        assert f"task {task}: " in (error := capsys.readouterr().err) and message in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "sorting"}, "unknown task 'sorting'; known: sort"),
        ({"data": "gone.parquet"}, "--data: no such file: gone.parquet"),
        ({"repeats": "8"}, "--repeats 8 is too few for --pass-at [1, 4, 16]"),
        ({"problems": "65"}, "has 64 rows, 65 problems were asked for"),
        ({"problems": "0"}, "--problems must be at least 1"),
        ({"include_path": "nowhere"}, "--include-path: no such folder: nowhere"),
        ({"max_new_tokens": "61"}, "model has room for 3"),
        ({"max_new_tokens": "64"}, "allowed are fewer than the model's 64 positions"),
        ({"max_new_tokens": "80"}, "responses of up to 80 tokens"),
        ({"seed": "4294967296"}, "--seed 4294967296: allowed is 0 to 4294967295"),
        ({"temperature": "0"}, "--temperature 0.0: allowed is a number above 0"),
        ({"top_p": "1.5"}, "--top-p 1.5: allowed is a number above 0, at most 1"),
    ],
)
def test_bad_arguments(
    change: dict[str, str], message: str, coin: Path, parquet: Path, tmp_path: Path, capsys: Any
) -> None:
    """One line on stderr, exit status 2, no files."""
    assert main(arguments(tmp_path / "out", parquet, f"0={coin}", **change)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["0=gone"], "no such folder: gone"),
        (["0={coin}", "00={coin}"], "step 0 is given twice"),
        (["{coin}"], "expected STEP=DIR"),
        (["x={coin}"], "expected STEP=DIR"),
        (["0={empty}"], "no such file"),
        (["0={hollow}"], "cannot be loaded as a Hugging Face model"),
    ],
)
def test_bad_checkpoints(
    pairs: list[str], message: str, coin: Path, parquet: Path, tmp_path: Path, capsys: Any
) -> None:
    """The message repeats the pair that is wrong."""
    folders = {name: tmp_path / name for name in ("empty", "hollow")}
    for folder in folders.values():
        folder.mkdir()
    shutil.copy(coin / "config.json", folders["hollow"])  # no weights, no tokenizer
    filled = [pair.format(coin=coin, **folders) for pair in pairs]
    assert main(arguments(tmp_path / "out", parquet, *filled)) == 2
    error = capsys.readouterr().err
    assert message in error and filled[-1].partition("=")[2] in error


def test_chat_template_is_needed_or_declined(coin: Path, parquet: Path, tmp_path: Path, capsys: Any) -> None:
    """A tokenizer without a template: refused by default, scored with --prompt plain."""
    bare = tmp_path / "bare"
    shutil.copytree(coin, bare)
    (bare / "chat_template.jinja").unlink()
    assert main(arguments(tmp_path / "out", parquet, f"0={bare}")) == 2
    assert "use --prompt plain" in capsys.readouterr().err
    assert main(arguments(tmp_path / "out", parquet, f"0={bare}", prompt="plain")) == 0


def test_another_process_gives_the_same_bytes(
    run: Callable[..., Files], coin: Path, parquet: Path, tmp_path: Path
) -> None:
    """The command line in a fresh process, with another hash seed, writes what this process wrote."""
    here = run("here", f"0={coin}")
    there = arguments(tmp_path / "there", parquet, f"0={coin}")
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-m", "eval.score", *there], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "checkpoint 1 of 1, step 0: avg@16" in done.stderr
    for name in ("scores.json", "samples.jsonl"):
        assert (tmp_path / "there" / name).read_bytes() == (here[0].parent / name).read_bytes()


@pytest.fixture
def crooked(coin: Path, tmp_path: Path) -> Path:
    """`coin` with random weights, so that 8-bit products move its distribution; it says it was trained in fp8."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(coin)
    torch.manual_seed(0)
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_()
        model.lm_head.weight.normal_(std=0.3)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.normal_()
            layer.mlp.down_proj.weight.normal_()
    folder = tmp_path / "crooked"
    shutil.copytree(coin, folder)
    model.save_pretrained(folder)
    (folder / "tether.json").write_text(json.dumps({"train_precision": {"dtype": "float32", "quantise": "fp8"}}))
    return folder


def test_a_checkpoint_is_scored_as_it_was_trained(run: Callable[..., Files], crooked: Path, capsys: Any) -> None:
    """--quantise changes what is sampled and is on record; another precision than that of the training is said."""
    options = {"max_new_tokens": "1"}  # longer answers of a random model are all different: no majority to compare
    plain = run("plain", f"0={crooked}", **options)
    quantised = run("quantised", f"0={crooked}", quantise="fp8", **options)
    lines = [line for line in capsys.readouterr().err.splitlines() if "trained with" in line]
    assert lines == [f"score: {crooked}: trained with quantise fp8, scored with --quantise none"]
    assert json.loads(quantised[0].read_text())["quantise"] == "fp8"
    assert json.loads(plain[0].read_text())["quantise"] == "none"
    assert plain[1].read_bytes() != quantised[1].read_bytes()


def test_the_scored_model_is_the_quantised_one(crooked: Path) -> None:
    """Its logits are those of methods.precision.quantisation over the float32 weights, which stay what they were."""
    import torch
    from transformers import AutoModelForCausalLM

    from eval.harness import CheckpointLM
    from methods.precision.quantisation import quantise_model

    scored = CheckpointLM(crooked, batch_size=2, dtype="float32", device="cpu", quantise="fp8").model
    expected = AutoModelForCausalLM.from_pretrained(crooked, dtype=torch.float32)
    ids = torch.arange(5, 13).view(2, 4)
    with torch.no_grad():
        exact = expected(input_ids=ids).logits
        quantise_model(expected, "fp8")
        assert torch.equal(scored(input_ids=ids).logits, expected(input_ids=ids).logits)
        assert not torch.allclose(exact, expected(input_ids=ids).logits, rtol=1e-3)
    state = expected.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in scored.state_dict().items())
