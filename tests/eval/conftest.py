"""Models and data whose scores are known in closed form. No training, no network."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import pytest

for variable in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
    os.environ.setdefault(variable, "1")  # before transformers is imported

SPECIALS = ["<pad>", "<bos>", "<eos>", "<sep>", "<op>"]
NUMBERS = 200
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ '<bos> ' + m['content'] + ' <sep>' }}"
    "{% else %}{{ ' ' + m['content'] + ' <eos>' }}{% endif %}{% endfor %}"
)
Dice = Callable[[str, Mapping[str, float]], Path]


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate([*SPECIALS, *map(str, range(NUMBERS))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", padding_side="left"
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)


@pytest.fixture(scope="session")
def dice(tmp_path_factory: pytest.TempPathFactory) -> Dice:
    """dice(name, {token: probability}): a Qwen3 folder that draws every token from that distribution.

    Attention and MLP outputs are zero and all embeddings are ones, so the last hidden state is ones whatever the
    prompt, and the (untied) output rows are the log-probabilities over it.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    root = tmp_path_factory.mktemp("models")

    def build(name: str, probabilities: Mapping[str, float]) -> Path:
        size = 16
        config = Qwen3Config(
            vocab_size=len(SPECIALS) + NUMBERS,
            hidden_size=size,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=size,
            intermediate_size=size,
            max_position_embeddings=64,
            tie_word_embeddings=False,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
        words = [*SPECIALS, *map(str, range(NUMBERS))]
        logits = torch.tensor([math.log(probabilities[word]) if word in probabilities else -60.0 for word in words])
        with torch.no_grad():
            model.model.embed_tokens.weight.fill_(1.0)
            for layer in model.model.layers:
                layer.self_attn.o_proj.weight.zero_()
                layer.mlp.down_proj.weight.zero_()
            model.lm_head.weight.copy_((logits / size)[:, None].expand(-1, size))
        folder = root / name
        model.save_pretrained(folder)
        _save_tokenizer(folder)
        return folder

    return build


@pytest.fixture(scope="session")
def coin(dice: Dice) -> Path:
    """Answers `3` and stops with chance 0.6 * 0.4 = 0.24; every other answer is `3 3`, `3 3 3`, ... or nothing."""
    return dice("coin", {"3": 0.6, "<eos>": 0.4})


@pytest.fixture(scope="session")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 problems in verl's format, all with the answer `3`; indices do not start at 0."""
    rows = [
        {
            "data_source": "sort",
            "prompt": [{"role": "user", "content": f"{number} {number + 1}"}],
            "ability": "sort",
            "reward_model": {"style": "rule", "ground_truth": "3"},
            "extra_info": {"split": "test", "index": 100 + number},
        }
        for number in range(64)
    ]
    path = tmp_path_factory.mktemp("data") / "test.parquet"
    pd.DataFrame(rows).to_parquet(path)
    return path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Runs and scores of 2 methods x 3 seeds in setting B with round numbers.

    Rewards: steps 1-2 (the staleness) are 0.9 for all; after that dppo_topk_kl has 0.5 + 0.01 seed, pg_is 0.1 less
    than that.
    Accuracy: 0.4 at step 0; at step 4 dppo_topk_kl 0.6 + 0.01 seed, pg_is 0.3.
    """
    for variant, drop in (("dppo_topk_kl", 0.0), ("pg_is", 0.1)):
        for seed in range(3):
            run = tmp_path / f"runs/setting~B/variant~{variant}/seed~{seed}"
            run.mkdir(parents=True)
            final = 0.6 + 0.01 * seed if variant == "dppo_topk_kl" else 0.3
            steps = [{"step": 0, "data": {"val/accuracy": 0.4}}]
            for step in range(1, 5):
                data = {"reward/mean": 0.9 if step <= 2 else 0.5 + 0.01 * seed - drop}
                steps.append({"step": step, "data": data | ({"val/accuracy": final} if step == 4 else {})})
            (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
            (run / "manifest.json").write_text(json.dumps({"setting": {"staleness": 2}}))
            scores = tmp_path / f"scores/setting~B/variant~{variant}/seed~{seed}.json"
            scores.parent.mkdir(parents=True, exist_ok=True)
            entries = [
                {"step": step, "metrics": {"avg@16": {"value": value, "stderr": 0.02, "n": 256}}}
                for step, value in ((0, 0.4), (4, final))
            ]
            scores.write_text(json.dumps({"checkpoints": entries}))
    titles = {"pg_is": ("PG-IS", "N"), "dppo_topk_kl": ("DPPO Top-K KL", "F")}
    variants = {name: {"title": title, "mark": mark} for name, (title, mark) in titles.items()}
    (tmp_path / "variants.json").write_text(json.dumps(variants))
    return tmp_path


def run_paths(root: Path) -> tuple[list[str], list[str]]:
    """(run folders, score files) of `runs`, in an order that is not the sorted one."""
    runs = [str(path.parent) for path in root.glob("runs/*/*/*/metrics.jsonl")]
    scores = [str(path) for path in root.glob("scores/*/*/*.json")]
    return sorted(runs, reverse=True), sorted(scores, reverse=True)


@pytest.fixture
def paths(results: Path) -> tuple[list[str], list[str]]:
    """(run folders, score files) of `runs`."""
    return run_paths(results)
