"""The lm-eval side of scoring: a task with R repeats, and a Hugging Face model under fixed sampling settings.

Importing this module imports lm-eval, torch and transformers (seconds); `eval.score` does so once, late.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import yaml
from lm_eval import evaluator, simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from transformers import GenerationConfig

from eval.files import InputError
from eval.sampling import LENGTH_KEYS, check_sampling
from eval.tasks import TASKS_DIR
from eval.tasks.repeats import count
from methods.precision.quantisation import quantise_model


@dataclass(frozen=True)
class ProblemResult:
    """One problem of one checkpoint: R outcomes (0/1) and R extracted answers (None: no answer)."""

    problem: int
    outcomes: tuple[int, ...]
    answers: tuple[str | None, ...]
    average: float | None  # avg@R as lm-eval aggregated it, where the task reports one


class CheckpointLM(HFLM):
    """HFLM whose sampling is the task's alone, and which refuses what HFLM would let pass."""

    def __init__(self, path: Path, *, batch_size: int, dtype: str, device: str, quantise: str = "none") -> None:
        # dtype is explicit: config.json may name another one than the tensors have.
        try:
            super().__init__(pretrained=str(path), batch_size=batch_size, dtype=dtype, device=device)
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{path}: cannot be loaded as a Hugging Face model with tokenizer: {error}") from error
        self._check_parameters(path)
        if quantise != "none":
            try:
                quantise_model(self.model, quantise)
            except ValueError as error:
                raise InputError(f"{path}: --quantise {quantise}: {error}") from error
        own = self.model.generation_config
        # A generation_config.json would add its top_k, penalties, ... to the task's settings; keep the ids only.
        ids = {name: getattr(own, name) for name in ("bos_token_id", "eos_token_id")}
        self.model.generation_config = GenerationConfig(**ids, pad_token_id=self.tokenizer.pad_token_id)
        self.effective: dict[str, Any] = {}
        self.generate_seconds = 0.0

    def _check_parameters(self, path: Path) -> None:
        """Refuse weights that are not finite: every response would be wrong, which reads like a bad policy."""
        for name, parameter in self.model.named_parameters():
            wrong = int((~torch.isfinite(parameter)).sum())
            if wrong:
                raise InputError(
                    f"{path}: parameter {name} has {wrong} of {parameter.numel()} values that are NaN or infinite"
                )

    def get_model_info(self) -> dict[str, Any]:
        """Nothing: HFLM's version asks the Hub for a commit hash."""
        return {}

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        """One response per request; without a progress bar, which would fill log files."""
        responses: list[str] = super().generate_until(requests, disable_tqdm=True)
        return responses

    def tok_batch_encode(
        self,
        strings: list[str],
        padding_side: str = "left",
        left_truncate_len: int | None = None,
        truncation: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and attention mask [B, L]; a truncated prompt or a doubled BOS is an error."""
        ids, mask = super().tok_batch_encode(strings, padding_side, None, truncation)
        if left_truncate_len and ids.shape[1] > left_truncate_len:
            raise InputError(
                f"{self.pretrained}: a prompt has {ids.shape[1]} tokens, the model has room for {left_truncate_len} "
                f"(of {self.max_length} positions; the rest is for the response)"
            )
        bos = self.tokenizer.bos_token_id
        if bos is not None and ids.shape[1] > 1:
            first = mask.argmax(dim=1, keepdim=True)
            heads = ids.gather(1, torch.cat([first, (first + 1).clamp(max=ids.shape[1] - 1)], dim=1))
            if (heads == bos).all(dim=1).any():
                raise InputError(f"{self.pretrained}: a prompt starts with two {self.tokenizer.bos_token!r}")
        return ids, mask

    def _model_generate(
        self, context: torch.Tensor, max_length: int, stop: list[str], **generation_kwargs: Any
    ) -> torch.Tensor:
        if not self.effective:
            self._check_logits(context, generation_kwargs.get("attention_mask"))
        eos = self.tok_decode(self.eot_token_id, skip_special_tokens=False)
        self.effective = {
            **{key: value for key, value in generation_kwargs.items() if key != "attention_mask"},
            "max_new_tokens": max_length - context.shape[1],
            "stop": list(stop),
            "eos_token_id": self.model.generation_config.eos_token_id,
        }
        start = time.perf_counter()
        # generate() stops at the end token itself; lm-eval's text search for it decodes every row at every step.
        out: torch.Tensor = super()._model_generate(
            context, max_length, [text for text in stop if text != eos], **generation_kwargs
        )
        self.generate_seconds += time.perf_counter() - start
        return out

    @torch.no_grad()
    def _check_logits(self, context: torch.Tensor, mask: torch.Tensor | None) -> None:
        """Refuse logits that are not finite at the first prompt: finite weights can overflow in half precision."""
        logits = self.model(input_ids=context[:1], attention_mask=None if mask is None else mask[:1]).logits[:, -1]
        if not torch.isfinite(logits).all():
            raise InputError(
                f"{self.pretrained}: the logits after the first prompt are not finite in {self.model.dtype}"
            )


class RepeatedTask:
    """A task of an include path, set to R repeats; `build` makes a fresh lm-eval task from it."""

    def __init__(
        self,
        name: str,
        *,
        repeats: int,
        data: Path,
        problems: int,
        include_path: Sequence[Path] = (),
        max_new_tokens: int | None = None,
        sampling: Mapping[str, float] | None = None,
    ) -> None:
        self.name, self.repeats, self.max_new_tokens = name, repeats, max_new_tokens
        self.sampling = dict(sampling or {})  # of temperature and top_p, what replaces the task's own
        self.manager = TaskManager(
            include_path=[TASKS_DIR, *(folder.resolve() for folder in include_path)],
            include_defaults=False,
            metadata={"data": str(data), "problems": problems},
        )
        entry = self.manager.task_index.get(name)
        if name not in self.manager.all_subtasks or entry is None or entry.yaml_path is None:
            raise InputError(f"unknown task {name!r}; known: {', '.join(self.manager.all_subtasks)}")
        # Absolute: lm-eval looks for a relative one from the folder of the file that includes it.
        self._overrides = {"include": str(Path(entry.yaml_path).resolve()), "task": name, "repeats": repeats}
        self._overrides["filter_list"] = self._filters((entry.cfg or {}).get("filter_list"))

    def _filters(self, declared: Any) -> list[dict[str, Any]]:
        """The task's filter with k = R; lm-eval's default filter would score one response of R."""
        if not isinstance(declared, list) or len(declared) != 1:
            raise InputError(f"task {self.name}: filter_list must hold exactly one filter, got {declared!r}")
        steps = [dict(step) for step in declared[0]["filter"]]
        takers = [step for step in steps if step["function"] == "take_first_k"]
        if len(takers) != 1:
            raise InputError(f"task {self.name}: the filter needs one take_first_k step, got {steps}")
        takers[0]["k"] = self.repeats
        return [{"name": declared[0]["name"], "filter": steps}]

    def build(self) -> ConfigurableTask:
        """A fresh task (lm-eval keeps responses inside it), its sampling settings checked."""
        with tempfile.TemporaryDirectory() as folder:
            # lm-eval replaces a task that is given as a dict; only a YAML with `include` overrides single keys.
            path = Path(folder) / "task.yaml"
            path.write_text(yaml.safe_dump(self._overrides), encoding="utf-8")
            task: ConfigurableTask = self.manager.load([str(path)])["tasks"][self.name]
        settings = dict(task.config.generation_kwargs)
        if self.max_new_tokens is not None:
            settings = {key: value for key, value in settings.items() if key not in LENGTH_KEYS}
            settings["max_gen_toks"] = self.max_new_tokens
        settings |= self.sampling
        check_sampling(settings, self.repeats, self.name)
        task.set_config(key="generation_kwargs", value=settings)
        for name in ("outcomes", "answers"):  # lists, which lm-eval would try to average
            task.aggregation().setdefault(name, count)
        return task

    def response_length(self) -> int:
        """Most tokens of a response. Builds the task, so whatever is wrong with it is said. Raises InputError."""
        settings = self.build().config.generation_kwargs
        return int(next(settings[key] for key in LENGTH_KEYS if key in settings))


def check_room(response: int, positions: int, where: object) -> None:
    """Refuse a response that leaves a prompt no place in the model's positions."""
    if response >= positions:
        raise InputError(
            f"{where}: responses of up to {response} tokens: allowed are fewer than the model's {positions} positions, "
            "which the prompt shares"
        )


def quiet() -> None:
    """Leave lm-eval's progress and notices out of the log; warnings of our own concern are errors here."""
    for name in ("lm_eval", "transformers", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)


@contextlib.contextmanager
def _no_environment_report() -> Iterator[None]:
    """Skip the pip, git and hardware listing that simple_evaluate adds: 0.5 s per checkpoint, and never read."""
    with mock.patch.multiple(evaluator, add_env_info=lambda _: None, get_git_commit_hash=lambda: None):
        yield


def answer_problems(lm: CheckpointLM, task: RepeatedTask, *, seed: int, chat: bool) -> list[ProblemResult]:
    """Run the task once; one result per problem, in the order of the data."""
    if chat and not lm.tokenizer.chat_template:
        raise InputError(f"{lm.pretrained}: the tokenizer has no chat template; use --prompt plain")
    check_room(task.response_length(), lm.max_length, lm.pretrained)
    with _no_environment_report():
        results = simple_evaluate(
            model=lm,
            tasks=[task.build()],
            task_manager=task.manager,
            apply_chat_template=chat,
            log_samples=True,
            bootstrap_iters=0,
            random_seed=seed,
            numpy_random_seed=seed,
            torch_random_seed=seed,
            fewshot_random_seed=seed,
        )
    return [_result(row, task) for row in results["samples"][task.name]]


def _result(row: dict[str, Any], task: RepeatedTask) -> ProblemResult:
    scored = row["filtered_resps"][0]
    if not isinstance(scored, list) or len(scored) != task.repeats:
        raise InputError(f"task {task.name}: the filter left {scored!r}, not {task.repeats} responses")
    if "outcomes" not in row or "answers" not in row:
        raise InputError(
            f"task {task.name}: process_results must return eval.tasks.repeats.repeated_results(outcomes, answers), "
            f"got {row['metrics']}"
        )
    outcomes, answers = tuple(row["outcomes"]), tuple(row["answers"])
    if len(outcomes) != task.repeats or len(answers) != task.repeats:
        raise InputError(f"task {task.name}: {len(outcomes)} outcomes, {task.repeats} repeats")
    average = row.get(f"avg@{task.repeats}")
    return ProblemResult(int(row["doc"].get("problem", row["doc_id"])), outcomes, answers, average)
