"""definition: the toy world's data, tokenizer and reward, and that verl can read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from transformers import AutoTokenizer

from workflows.world import build
from workflows.world.reward import compute_score
from workflows.world.sorting import SortingWorld, WorldError


def test_train_and_test_share_no_problem_in_any_order(tiny_world: Any) -> None:
    train, test = pd.read_parquet(tiny_world.train), pd.read_parquet(tiny_world.test)
    keys = [frozenset(row[0]["content"].split()) for frame in (train, test) for row in frame["prompt"]]
    assert len(set(keys)) == len(keys) == 64 + 16 and all(len(key) == 3 for key in keys)


def test_same_seed_same_bytes_other_seed_other_problems(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build.write(SortingWorld(3, 40, 10, 5, seed), tmp_path / name)
    for file in ("train.parquet", "test.parquet", "tokenizer/tokenizer.json", "world.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert (tmp_path / "a" / "train.parquet").read_bytes() != (tmp_path / "c" / "train.parquet").read_bytes()


def test_the_prompt_is_rendered_token_by_token(tiny_world: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_world.folder / "tokenizer")
    assert len(tokenizer) == 45
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "17 4 39"}], tokenize=True, return_dict=False)
    assert tokenizer.convert_ids_to_tokens(ids) == ["<bos>", "17", "4", "39", "<sep>"]
    answer = tokenizer.decode(tokenizer("4 17 39 <eos>")["input_ids"], skip_special_tokens=True)
    assert compute_score("tether/sort", answer, "4 17 39") == 1.0


@pytest.mark.parametrize(
    ("response", "score"), [("4 17 39", 1), (" 4  17 39 ", 1), ("4 17", 0), ("17 4 39", 0), ("4 17 39 39", 0), ("", 0)]
)
def test_only_the_exact_sequence_scores(response: str, score: float) -> None:
    assert compute_score("tether/sort", response, "4 17 39") == score


def test_answers_are_sorted(tiny_world: Any) -> None:
    for _, row in pd.read_parquet(tiny_world.test).iterrows():
        numbers = [int(x) for x in row["prompt"][0]["content"].split()]
        assert row["reward_model"]["ground_truth"] == " ".join(map(str, sorted(numbers)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"numbers": 0}, "world.numbers = 0"),
        ({"limit": 5}, "world.limit = 5: allowed is >= twice world.numbers = 6"),
        ({"train_prompts": 1.5}, "world.train_prompts = 1.5"),
        ({"limit": 6, "train_prompts": 30}, "at most the distinct sets"),
    ],
)
def test_bad_worlds(settings: dict[str, Any], message: str) -> None:
    good = {"numbers": 3, "limit": 40, "train_prompts": 8, "test_prompts": 4, "seed": 0}
    with pytest.raises(WorldError, match=message):
        SortingWorld(**{**good, **settings}).problems()


def test_numbers_are_drawn_evenly() -> None:
    drawn = SortingWorld(3, 10, 1, 1, 0).draw(4000, np.random.default_rng(0))
    counts = np.bincount(drawn.flatten(), minlength=10)
    assert all(len(set(row)) == 3 for row in drawn.tolist())
    assert counts.min() > 1000 and counts.max() < 1400
