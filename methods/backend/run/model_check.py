"""What can be wrong with a model's folder, found before the training starts.

`folder_problem` and `length_problem` read config.json and nothing else: cheap enough for every start of the pipeline.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# How configurations name the number of positions; the first that is there counts.
POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length", "n_ctx")
# How those of mixtures name the number of experts.
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok")
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "*.spm")
# Architectures for which a training was tried or whose parts verl patches; others with the same parts may work.
TRAINABLE = "Llama, Mistral, Mixtral, Qwen2, Qwen3, Qwen3-MoE, Gemma 2 and 3, Phi-3, OLMo 2, Granite, SmolLM3"


def folder_problem(folder: str | Path) -> str | None:
    """Why this can't be a Hugging Face model's folder, as "PATH: what is allowed"; None where it may be one."""
    path = Path(folder)
    if not path.is_dir():
        return f"{folder}: no such folder; allowed is a Hugging Face model's, with config.json, weights and tokenizer"
    if not (path / "config.json").is_file():
        return f"{folder}: no config.json there; allowed is a Hugging Face model's folder"
    try:
        config = json.loads((path / "config.json").read_text())
    except ValueError as error:
        return f"{folder}/config.json: no JSON ({error})"
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        return f"{folder}/config.json: it names no model_type; allowed is the configuration of a Hugging Face model"
    if "quantization_config" in config:
        return (
            f"{folder}/config.json: quantization_config: the weights are quantised; allowed are floating-point weights"
        )
    for kind, patterns in (("weights", WEIGHTS), ("tokenizer", TOKENIZERS)):
        if not any(any(path.glob(pattern)) for pattern in patterns):
            return f"{folder}: no {kind} there; allowed is one of {', '.join(patterns)}"
    return None


def positions(config: Mapping[str, Any]) -> int | None:
    """How many tokens a sequence may have by a model's config.json; None where it does not say."""
    for part in (config, config.get("text_config") or {}):
        for name in POSITIONS:
            if isinstance(part.get(name), int):
                return part[name]
    return None


def length_problem(config: Mapping[str, Any], prompt_length: int, response_length: int) -> str | None:
    """Whether prompt and response fit the model's positions; a scaled rope counts as its config counts."""
    limit = positions(config)
    if limit is None or prompt_length + response_length <= limit:
        return None
    return (
        f"prompt_length + response_length = {prompt_length} + {response_length} = {prompt_length + response_length}: "
        f"allowed is at most the model's {limit} positions"
    )


def model_settings(folder: str | Path) -> dict[str, Any]:
    """The settings of the model's text part, with the defaults of its architecture.

    Raises ValueError, "PATH: what is allowed", for a folder or an architecture that can't be trained.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    wrong = folder_problem(folder)
    if wrong is not None:
        raise ValueError(wrong)
    try:
        config = AutoConfig.from_pretrained(str(folder))
    except Exception as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{folder}/config.json: transformers does not know the model ({said})") from None
    kind, text = config.model_type, config.get_text_config()
    model = AutoModelForCausalLM._model_mapping.get(type(config), None)
    parameters = inspect.signature(model.forward).parameters if model is not None else {}
    if not {"logits_to_keep", "position_ids", "past_key_values"} <= set(parameters):
        missing = "no causal language model with a key-value cache"
    elif getattr(text, "num_key_value_heads", None) is None:
        # verl/models/transformers/monkey_patch.py: apply_monkey_patch reads it of every model.
        missing = "an architecture without num_key_value_heads, which verl reads"
    else:
        # By their common names too, which some architectures map to names of their own.
        return text.to_dict() | {name: getattr(text, name) for name in ("hidden_size", "num_attention_heads")}
    raise ValueError(f"{folder}/config.json: model_type = {kind!r}: {missing}; known to work: {TRAINABLE}")


def vocabulary_problem(folder: str | Path, vocabulary: int) -> str | None:
    """Whether the rows of the embedding are as many as the config's vocab_size (of safetensors; read in no time)."""
    from safetensors import safe_open

    for path in sorted(Path(folder).glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as file:
                for name in file.keys():  # noqa: SIM118  # no mapping
                    rows = file.get_slice(name).get_shape()[0] if name.endswith("embed_tokens.weight") else vocabulary
                    if rows != vocabulary:
                        return f"{path}: {name} has {rows} rows, config.json says vocab_size = {vocabulary}"
        except Exception as error:
            return f"{path}: not readable as safetensors ({error})"
    return None


def end_problem(folder: str | Path, tokenizer: Any) -> str | None:
    """Whether a response can end, and a batch be padded (verl pads with the end token where there is no other)."""
    path, ends = Path(folder), None
    for name in ("generation_config.json", "config.json"):
        if ends is None and (path / name).is_file():
            ends = json.loads((path / name).read_text()).get("eos_token_id")
    if ends is None or ends == []:
        return f"{folder}: no eos_token_id in generation_config.json or config.json; allowed is an id or a list of ids"
    if tokenizer.pad_token_id is None and tokenizer.eos_token_id is None:
        return f"{folder}: its tokenizer has neither pad_token nor eos_token; allowed is one of them at least"
    return None
