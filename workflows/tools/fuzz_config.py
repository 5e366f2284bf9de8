"""Random faults put into a configuration: each must end in acceptance, or in one line that names file and field.

python -m workflows fuzz --count 2000 --seed 0

Keys are dropped, renamed and doubled, values replaced, in every section and through --config. An accepted configuration
must also give what the workflow computes from it before a job: runs, verl's settings, variants, the line of counts.
"""

from __future__ import annotations

import copy
import datetime
import json
import random
import re
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from snakemake.cli import parse_config
from snakemake.utils import update_config

from methods.backend.recipe import verl_overrides
from methods.backend.run_config import RunConfig
from workflows.config_checks.file import LOADER, check_repeated_keys, check_tier
from workflows.grid import Grid, GridError

NAME = "fuzz.yaml"
# file: field, or the section that is wrong as a whole.
MESSAGE = re.compile(r"^(\S*fuzz\.yaml)(, --config)?: [A-Za-z_]\S*( \S+)*$")
SECTIONS: tuple[str, ...] = (
    "tier",
    "title",
    "worlds",
    "models",
    "warm_start",
    "settings",
    "methods",
    "grid",
    "token_grid",
)
SECTIONS += ("mismatch", "scoring", "trackers", "reference", "top level")
LONGEST = 2000

# Keys and words that the base leaves out, and that may be right where they land.
EXTRA: dict[str, tuple[Any, ...]] = {
    "train_precision": ("fp8", "bf16", "fp8_bf16", "fp9"),
    "rollout_precision": ("fp16", "int8", "fp8"),
    "rollout_engine": ("vllm", "hf", "sglang"),
    "rollout_quantization": ("fp8_kv", "fp8", "none"),
    "runner": ("ray", "rai"),
    "ranks": (1, 2, 3),
    "server": (True, False),
    "micro_batch": (1, 3, 8, 16),
    "prompt_length": (1, 5, 10**9),
    "response_length": (1, 4, 10**9),
    "validate_every": (0, 2),
    "validate_samples": (0, 3),
    "weight_decay": (0.1, -0.1),
    "warmup_steps": (0, 5),
    "loss_aggregation": ("token-mean", "token_mean"),
    "advantage_std": (True, "yes"),
    "reference_kl": (0.01, -1),
    "world": ("sort_3_40", "sort_3_4"),
    "model": ("xs", "xl"),
    "method": ("drpo", "sat", "minirl", "predictive", "dropo"),
    "options": ({}, {"delta": 0.2}, {"tail": "full"}, {"delta": "1e-1"}),
    "sweep": ({"delta": [1, 1.0]}, {"delta": [0.1]}, {"tail": ["full"]}, {"delta": list(range(1, 2000))}),
    "kind": ("qwen3_moe", "qwen2"),
    "experts": (2, 3),
    "experts_per_token": (1, 9),
    "methods": ("all", ["small"], ["drpo"], ["drpo_delta_0.05"], []),
    "seeds": ([5], {"count": 3}, {"count": 10**6}, [0, 0]),
    "reference": ("drpo", "smal", "dppo_topk_kl"),
    "tokens": ({}, None, {"every": 0}, {"update": "own", "share": 2}),
}
VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3.0, 0.5, -0.5, 1e-300, 1e300, 10**30, 2**32, float("inf"), float("nan")),
    *("", " ", "x", "1e-4", "0.05", "{x}", "a{", "[1]", "..", "/", "-x", "a\nb", "\x00", "é", "none", "x" * 5000),
    *(
        [],
        [[]],
        [None],
        [1],
        [0.1, 0.2],
        [0.2, 0.1, 0.3],
        ["x"],
        {},
        {"x": 1},
        {"x": {"y": []}},
        {1: 2},
        {"count": 10**12},
    ),
    *(datetime.date(2026, 1, 1), b"x", {"a"}),
)


def base(folder: Path) -> dict[str, Any]:
    """A configuration with every section, a toy setting and one of the user's own, whose files are made in `folder`."""
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text('{"model_type": "qwen3", "vocab_size": 45}')
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / "model" / name).touch()
    (folder / "reward.py").write_text("def compute_score(**_):\n    return 0.0\n")
    (folder / "tasks").mkdir(exist_ok=True)
    (folder / "tasks" / "own.yaml").write_text("task: own\ngeneration_kwargs: {do_sample: true}\n")
    data = folder / "data.parquet"
    pd.DataFrame({"prompt": ["x"] * 8}).to_parquet(data)
    shared: dict[str, Any] = {"lr": 1.0e-3, "prompts": 4, "group": 4, "mini_batches": 2, "steps": 3, "staleness": 1}
    shared |= {
        "top_k": 5,
        "save_every": 1,
        "export_every": 1,
        "temperature": 1.0,
        "train_precision": "fp32",
        "clip_grad": 1.0,
    }
    own: dict[str, Any] = {"model_path": str(folder / "model"), "train_files": [str(data)], "val_files": [str(data)]}
    own |= {"reward_function": {"path": str(folder / "reward.py"), "name": "compute_score"}}
    own |= {"task": {"name": "own", "include_path": str(folder / "tasks")}, "prompt_length": 5, "response_length": 4}
    return {
        "tier": "fuzz",
        "title": "A heading",
        "worlds": {"sort_3_40": {"numbers": 3, "limit": 40, "train_prompts": 64, "test_prompts": 16, "seed": 0}},
        "models": {"xs": {"hidden": 32, "layers": 1, "heads": 1, "kind": "qwen3"}},
        "warm_start": {"target": 0.2, "batch": 128, "lr": 0.004},
        "settings": {
            "T": {"world": "sort_3_40", "model": "xs", **shared, "tokens": {"update": "own", "every": 1, "ks": [1, 5]}},
            "Own": {**own, **shared},
        },
        "methods": {
            "dppo_topk_kl": {"options": {"delta": [0.05, 0.1]}, "title": "DPPO"},
            "ppo_clip_higher": {"options": {"eps_low": 0.2, "eps_high": 0.28}},
            "small": {"method": "drpo", "options": {"delta": 0.15}},
            "drpo": {"sweep": {"delta": [0.05, 0.1]}},
        },
        "grid": [{"settings": ["T", "Own"], "methods": ["small", "drpo"], "seeds": [0, 1]}],
        "token_grid": [{"settings": ["T"], "methods": "all", "seeds": {"count": 2}}],
        "mismatch": {"prompts": 8, "samples": 2, "engines": ["hf"]},
        "scoring": {"repeats": 4, "problems": 8, "seed": 0},
        "trackers": ["tensorboard"],
        "reference": "small",
    }


def faults(count: int, seed: int) -> Iterator[str]:
    """Put `count` faults into a configuration one by one; yields "accepted", "refused" or a complaint."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sound = base(folder)
        if (untouched := outcome(yaml.safe_dump(sound, sort_keys=False), [], folder)) != "accepted":
            raise RuntimeError(f"the configuration without a fault is {untouched}")
        for number in range(count):
            yield outcome(*_mutant(sound, random.Random(f"{seed}/{number}")), folder)


def outcome(text: str, overrides: list[str], folder: Path) -> str:
    """What one configuration, with entries of --config, ends in."""
    path = folder / NAME
    path.write_text(text)
    shown = f"{' '.join(overrides) or 'a fault in the file'}: "
    try:
        given = parse_config(overrides)
    except (AssertionError, ValueError):
        return "refused"  # by Snakemake, which has not seen the file yet
    config: dict[Any, Any] = {}
    try:
        check_repeated_keys(path)
        config = yaml.load(text, LOADER)
        update_config(config, given)
        # As common.smk names the two.
        grid = Grid.check(config, ", ".join([str(path), *(["--config"] if set(given) - {"tier"} else [])]))
        check_tier(grid.config["tier"], [path], named="tier" in given)
        _downstream(grid)
    except GridError as error:
        message = str(error)
        field = message.partition(": ")[2]
        told = MESSAGE.match(message) and field.startswith((*SECTIONS, *map(str, config))) and len(message) <= LONGEST
        return "refused" if told else f"{shown}no line that names file and field: {message[:500]!r}"
    except Exception:
        return f"{shown}{traceback.format_exc()}\n{text}"
    return "accepted"


def _downstream(grid: Grid) -> None:
    for runs in (grid.runs(), grid.token_runs()):
        for run in runs.values():
            assert RunConfig.parse(json.dumps(run.dump()), "") is not None
            verl_overrides(run)
    json.dumps([grid.variants(), grid.config], allow_nan=False)
    grid.summary()


def _mutant(sound: dict[str, Any], random: random.Random) -> tuple[str, list[str]]:
    """(YAML text, entries of --config) with one to three faults."""
    config = copy.deepcopy(sound)
    overrides: list[str] = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        holder, key = random.choice(list(_places(config)))
        kind = random.choice(
            (
                "drop",
                "rename",
                "replace",
                "replace",
                "replace",
                "wrap",
                "swap",
                "double",
                "command line",
                "add",
                "add",
                "nudge",
                "nudge",
            )
        )
        if kind == "drop":
            del holder[key]
        elif kind == "rename" and isinstance(holder, dict):
            holder[_mistyped(key, random)] = holder.pop(key)
        elif kind == "add" and isinstance(holder, dict):
            name = random.choice(list(EXTRA))
            # Where that key stands already, else where chance has led.
            at = random.choice([other for other, key in _places(config) if key == name] or [holder])
            at[name] = copy.deepcopy(random.choice(EXTRA[name]))
        elif kind == "nudge" and isinstance(holder[key], int | float):
            holder[key] = random.choice((holder[key] + 1, holder[key] * 2, holder[key] - 1, holder[key] * 1000))
        elif kind == "wrap":
            holder[key] = [holder[key]]
        elif kind == "swap":
            other, place = random.choice(list(_places(config)))
            holder[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(holder[key])
        elif kind == "double":
            return _doubled(yaml.safe_dump(config, sort_keys=False, width=10**6), random), overrides
        elif kind == "command line":
            section = random.choice([*config, "lr", "Tier"])
            value = random.choice([copy.deepcopy(config.get(section)), *VALUES])
            overrides.append(
                f"{section}={yaml.safe_dump(value, default_flow_style=True, width=10**6).partition(chr(10))[0]}"
            )
        else:
            holder[key] = copy.deepcopy(random.choice(VALUES))
        if not config:
            break
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=10**6), overrides


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(holder, key) of every entry of a nested configuration."""
    if isinstance(value, dict | list):
        for key in range(len(value)) if isinstance(value, list) else list(value):
            yield value, key
            yield from _places(value[key])


def _mistyped(key: Any, random: random.Random) -> Any:
    text = str(key)
    place = random.randrange(len(text)) if text else 0
    return random.choice(
        (
            text[:place] + text[place + 1 :],
            text[:place] + "x" + text[place:],
            text.upper(),
            f"{text}s",
            1,
            None,
            True,
            "",
        )
    )


def _doubled(text: str, random: random.Random) -> str:
    """One key's line and what is below it, given twice."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if re.match(r" *[\w.-]+:( |$)", line)]
    if not starts:
        return text
    first = random.choice(starts)
    depth = len(lines[first]) - len(lines[first].lstrip())
    last = first + 1
    while last < len(lines) and re.match(rf" {{{depth + 1},}}| {{{depth}}}- ", lines[last]):
        last += 1
    return "\n".join([*lines[:last], *lines[first:last], *lines[last:]]) + "\n"


def fuzz(count: int, seed: int) -> int:
    """Print what became of the faults; 1 where one ended in anything but acceptance or one line."""
    found: Counter[str] = Counter()
    for number, what in enumerate(faults(count, seed)):
        if what not in ("accepted", "refused"):
            print(f"fault {number} of seed {seed}: {what}")
            what = "wrong"
        found[what] += 1
    print(f"{count} faults of seed {seed}: " + ", ".join(f"{number} {what}" for what, number in sorted(found.items())))
    return 1 if found["wrong"] else 0
