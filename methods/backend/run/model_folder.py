"""Which files a training reads beside its data: of a model's folder, and of a reward.

One list for both who ask: the pipeline (what re-runs a training) and a resumed run (what makes it start anew).
Importable without torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from methods.backend.run_config import RunConfig

# What transformers and verl read of a Hugging Face folder; a model card or a training log decides nothing.
READ = (
    "config.json",
    "generation_config.json",
    # Weights, their index, and an adapter, which transformers applies where it finds one.
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model*.bin",
    "pytorch_model*.bin.index.json",
    "adapter_config.json",
    "adapter_model.bin",
    # Tokenizers and templates.
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges*",
    "*.model",
    "*.spm",
    "*.tiktoken",
    "tekken.json",
    "chat_template*",
    "additional_chat_templates/*.jinja",
    # The model's own code (trust_remote_code).
    "**/*.py",
)


def model_files(folder: str | Path) -> list[Path]:
    """The files of a model's folder that decide what it computes and how it is prompted. Sorted; none of no folder."""
    return sorted({path for pattern in READ for path in Path(folder).glob(pattern) if path.is_file()})


def reward_files(path: str | Path) -> list[Path]:
    """A reward's file and the local modules that it imports, directly or through one another. Sorted.

    Local: beside the file that imports, or below the working directory, from where programs are started. Imports are
    read from the source, also those inside functions; a name that is put together at run time is not seen.
    """
    found: set[Path] = set()
    pending = [Path(path)]
    while pending:
        file = pending.pop()
        if file in found or not file.is_file():
            continue
        found.add(file)
        pending += _imported(file)
    return sorted(found)


def training_files(run: RunConfig) -> list[Path]:
    """Every file that decides a training, beside its settings and our own program. Sorted."""
    data = [*map(Path, run.train_files), *map(Path, run.val_files)]
    template = [Path(run.setting.chat_template)] if isinstance(run.setting.chat_template, str) else []
    return sorted({*model_files(run.model), *data, *reward_files(run.reward_function.path), *template})


def _imported(file: Path) -> Iterable[Path]:
    if file.suffix != ".py":
        return
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return  # importing it says so, in Python's words
    roots = [file.parent] if file.parent.resolve() == Path.cwd() else [file.parent, Path()]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                for root in roots:
                    yield from _module(root, name.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            starts = [_above(file.parent, node.level - 1)] if node.level else roots
            for root in starts:
                yield from _module(root, parts)
                for name in node.names:
                    yield from _module(root, [*parts, name.name])


def _above(folder: Path, levels: int) -> Path:
    for _ in range(levels):
        folder = folder.parent
    return folder


def _module(root: Path, parts: list[str]) -> Iterable[Path]:
    """The files that importing a.b.c may run: each package's own, and the module's."""
    for depth in range(1, len(parts) + 1):
        place = root.joinpath(*parts[:depth])
        yield place / "__init__.py"
        yield place.with_name(place.name + ".py")
