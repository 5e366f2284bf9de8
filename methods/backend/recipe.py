"""One cell of the grid, checked, and its translation into the configuration that verl.trainer.main_ppo takes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from methods import registry
from methods.backend import rollout_settings
from methods.backend.needs import panel_problem

TRACKERS = ("tensorboard", "wandb")
RUNNERS = ("inprocess", "ray")


@dataclass(frozen=True)
class Precision:
    """dtype of activations and of the weights as used; scheme of `methods.quantisation` for the matrices, or none."""

    dtype: str
    quantise: str = "none"


_PLAIN = {"fp32": Precision("float32"), "bf16": Precision("bfloat16"), "fp16": Precision("float16")}
# Master weights are always float32. fp8 trains end to end: the forward is quantised, the gradient straight-through.
# Around the products it computes in float32, so that it differs from an fp8 rollout as two engines do; fp8_bf16 has
# bfloat16 there, as FP8 training recipes do, and is the rollout's own forward.
TRAIN_PRECISIONS = _PLAIN | {"fp8": Precision("float32", "fp8"), "fp8_bf16": Precision("bfloat16", "fp8")}
ROLLOUT_PRECISIONS = _PLAIN | {"fp8": Precision("bfloat16", "fp8"), "int8": Precision("bfloat16", "int8")}


class CellError(ValueError):
    """A setting is unknown, missing or outside its range; the message names field, value and what is allowed."""


@dataclass(frozen=True)
class Panel:
    """Training settings that all methods of a panel share.

    lr: learning rate. prompts: per step; group: responses per prompt; mini_batches: optimiser steps per training step.
    lag: age of the rollout policy in weight syncs. steps: training steps. top_k: K of the rollout's log-probs.
    train_precision, rollout_precision: see TRAIN_PRECISIONS and ROLLOUT_PRECISIONS. micro_batch: responses per
    forward pass (default: a whole mini-batch). rollout_engine: hf or vllm, and with vllm rollout_quantization: none,
    fp8_kv, fp8_weights or int8_w8a8. validate_every, save_every, export_every: in steps (0: only at the end);
    exported checkpoints are kept and scored, the others serve an interrupted run.
    reference_kl: coefficient of verl's KL term (`kl_loss_coef`, estimator k3) to the model that training starts from,
    held in the training precision; 0 for no reference model.
    runner: `inprocess` (one process), or `ray` (verl.trainer.main_ppo on a Ray of its own) with `ranks` data-parallel
    workers; the same settings give the same metrics. server (ray only): sample in a process of its own, through verl's
    agent loops and reward workers.
    """

    lr: float
    prompts: int
    group: int
    mini_batches: int
    steps: int
    prompt_length: int
    response_length: int
    lag: int = 0
    top_k: int = 20
    temperature: float = 1.0
    train_precision: str = "fp32"
    rollout_precision: str = "bf16"
    rollout_engine: str = "hf"
    rollout_quantization: str = "none"
    micro_batch: int | None = None
    validate_every: int = 0
    validate_samples: int = 1
    save_every: int = 0
    export_every: int = 0
    clip_grad: float = 1.0
    weight_decay: float = 0.0
    warmup_steps: int = 0
    loss_aggregation: str = "seq-mean-token-sum-norm"
    advantage_std: bool = False
    reference_kl: float = 0.0
    runner: str = "inprocess"
    ranks: int = 1
    server: bool = False

    def __post_init__(self) -> None:
        sizes = ("prompts", "group", "mini_batches", "steps", "prompt_length", "response_length", "validate_samples")
        for name in sizes:
            _integer(name, getattr(self, name), low=1)
        for name in ("lag", "top_k", "validate_every", "save_every", "export_every", "warmup_steps"):
            _integer(name, getattr(self, name), low=0)
        for name in ("lr", "clip_grad", "temperature"):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not (number and value > 0):
                raise CellError(f"panel.{name} = {value!r}: allowed is a finite number > 0")
        _number_from_zero("panel.reference_kl", self.reference_kl)
        for name, allowed in (("train_precision", TRAIN_PRECISIONS), ("rollout_precision", ROLLOUT_PRECISIONS)):
            if getattr(self, name) not in allowed:
                raise CellError(f"panel.{name} = {getattr(self, name)!r}: allowed are {', '.join(allowed)}")
        wrong = rollout_settings.problem(self.rollout_engine, self.rollout_quantization, self.rollout_precision)
        if wrong is not None:
            raise CellError(f"panel.{wrong}")
        _integer("ranks", self.ranks, low=1)
        if self.runner not in RUNNERS:
            raise CellError(f"panel.runner = {self.runner!r}: allowed are {', '.join(RUNNERS)}")
        if self.ranks > 1 and self.runner != "ray":
            raise CellError(f"panel.ranks = {self.ranks}: allowed is 1 unless panel.runner is 'ray'")
        if self.server and self.runner != "ray":
            raise CellError("panel.server = True: allowed is False unless panel.runner is 'ray'")
        if self.export_every and (not self.save_every or self.export_every % self.save_every):
            raise CellError(
                f"panel.export_every = {self.export_every}: allowed is 0 or a multiple of panel.save_every = "
                f"{self.save_every}, which must then be > 0"
            )
        if self.prompts % self.mini_batches:
            raise CellError(
                f"panel.mini_batches = {self.mini_batches}: allowed is a divisor of panel.prompts = {self.prompts}"
            )
        if self.mini_batch_rows % self.ranks:
            raise CellError(
                f"panel.ranks = {self.ranks}: allowed is a divisor of the mini-batch of {self.mini_batch_rows} "
                "responses"
            )
        if self.mini_batch_rows // self.ranks % self.micro_batch_rows:
            share = "" if self.ranks == 1 else f" / {self.ranks} ranks"
            raise CellError(
                f"panel.micro_batch = {self.micro_batch}: allowed is a divisor of the mini-batch of "
                f"{self.mini_batch_rows} responses{share}"
            )

    @property
    def mini_batch_rows(self) -> int:
        """Responses per optimiser step."""
        return self.prompts // self.mini_batches * self.group

    @property
    def micro_batch_rows(self) -> int:
        """Responses per forward pass of one rank."""
        return self.micro_batch or self.mini_batch_rows // self.ranks


@dataclass(frozen=True)
class RewardFunction:
    """A user's reward: `name` in the Python file `path`, with verl's compute_score signature."""

    path: str
    name: str = "compute_score"


@dataclass(frozen=True)
class Cell:
    """One training: a panel, a method with options, a seed, and the files it reads and writes.

    model: Hugging Face directory; train_files, val_files: parquet in verl's layout; output: run directory.
    work: directory of the running training, from which an interrupted one resumes (default: output + ".work").
    label: the method's name in tables and figures (it may differ from `method` where one method runs twice).
    trackers: of verl, beside metrics.jsonl.
    overrides: further Hydra overrides of verl's configuration, in its grammar; they win.
    """

    label: str
    method: str
    seed: int
    panel: Panel
    model: str
    train_files: list[str]
    val_files: list[str]
    output: str
    reward_function: RewardFunction
    work: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    panel_name: str = "default"
    overrides: list[str] = field(default_factory=list)
    trackers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for tracker in self.trackers:
            if tracker not in TRACKERS:
                raise CellError(f"trackers = {tracker!r}: allowed are {', '.join(TRACKERS)}")
        _integer("seed", self.seed, low=0)
        try:
            wrong = panel_problem(self.method, self.needs, self.panel, self.overrides)
        except (registry.UnknownMethodError, ValueError) as error:
            raise CellError(str(error)) from None
        if wrong is not None:
            raise CellError(wrong)

    @property
    def needs(self) -> registry.Needs:
        """What the method needs with its options. Raises UnknownMethodError, MethodConfigError."""
        method = registry.get(self.method)
        return method.requires(method.configure(self.options))

    @property
    def work_dir(self) -> Path:
        """Where the running training lives; absolute, since verl joins relative paths with its own ideas."""
        return Path(self.work or f"{self.output}.work").absolute()

    @classmethod
    def load(cls, path: Path) -> Cell:
        """Read a cell from a JSON file. Raises CellError naming file and field."""
        if not path.is_file():
            raise CellError(f"{path}: no such file")
        return cls.parse(path.read_text(), str(path))

    @classmethod
    def parse(cls, text: str, origin: str) -> Cell:
        """Read a cell from JSON; `origin` names it in messages. Raises CellError."""
        try:
            return cls.build(json.loads(text))
        except (json.JSONDecodeError, CellError) as error:
            raise CellError(f"{origin}: {error}") from None

    @classmethod
    def build(cls, raw: Mapping[str, Any]) -> Cell:
        """From plain values. Raises CellError."""
        values = dict(raw)
        values["panel"] = _build("panel", Panel, values.get("panel", {}))
        values["reward_function"] = _build("reward_function", RewardFunction, values.get("reward_function", {}))
        return _build("cell", cls, values)

    def dump(self) -> dict[str, Any]:
        """Plain values, the inverse of `build`."""
        return asdict(self)


def _build(where: str, kind: type, values: Mapping[str, Any]) -> Any:
    known = {f.name: f for f in fields(kind)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise CellError(f"{where}.{unknown[0]}: unknown key; allowed are {', '.join(sorted(known))}")
    try:
        return kind(**values)
    except TypeError as error:
        raise CellError(f"{where}: {str(error).removeprefix(kind.__name__ + '.__init__() ')}") from None


def _integer(name: str, value: Any, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise CellError(f"{name} = {value!r}: allowed is an integer >= {low}")


def _number_from_zero(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (number and value >= 0):
        raise CellError(f"{name} = {value!r}: allowed is a finite number >= 0")


def verl_overrides(cell: Cell) -> list[str]:
    """Hydra overrides of verl's `ppo_trainer` config for this cell; `cell.overrides` come last and win."""
    from methods.backend.policy_loss import loss_name

    panel, actor, rollout = cell.panel, "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    train_precision = TRAIN_PRECISIONS[panel.train_precision]
    rollout_precision = ROLLOUT_PRECISIONS[panel.rollout_precision]
    settings: dict[str, Any] = {
        "data.train_files": cell.train_files,
        "data.val_files": cell.val_files,
        "data.train_batch_size": panel.prompts,
        "data.max_prompt_length": panel.prompt_length,
        "data.max_response_length": panel.response_length,
        "data.filter_overlong_prompts": False,
        "data.dataloader_num_workers": 0,
        "data.validation_shuffle": False,
        "data.seed": cell.seed,
        "reward.num_workers": 1,
        "reward.custom_reward_function.path": cell.reward_function.path,
        "reward.custom_reward_function.name": cell.reward_function.name,
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": panel.advantage_std,
        # The ratio is against the rollout policy: old_log_probs are the rollout's own.
        "algorithm.rollout_correction.bypass_mode": True,
        "actor_rollout_ref.model.path": cell.model,
        "actor_rollout_ref.model.use_remove_padding": False,
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        f"{actor}.strategy": "fsdp2",
        f"{actor}.use_torch_compile": False,
        f"{actor}.fsdp_config.use_torch_compile": False,
        **_engine_precision(f"{actor}.fsdp_config", train_precision),
        # Used with `reference_kl` (or verl's `use_kl_in_reward`); verl would hold the reference in bfloat16.
        **_engine_precision("actor_rollout_ref.ref.fsdp_config", train_precision),
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": panel.micro_batch_rows,
        f"{actor}.ppo_mini_batch_size": panel.prompts // panel.mini_batches,
        f"{actor}.ppo_micro_batch_size_per_gpu": panel.micro_batch_rows,
        f"{actor}.ppo_epochs": 1,
        f"{actor}.data_loader_seed": cell.seed,
        f"{actor}.optim.lr": panel.lr,
        f"{actor}.optim.weight_decay": panel.weight_decay,
        f"{actor}.optim.lr_warmup_steps": panel.warmup_steps,
        f"{actor}.optim.clip_grad": panel.clip_grad,
        f"{actor}.loss_agg_mode": panel.loss_aggregation,
        # The horizon of "token sum / horizon": fixed, so that a batch of short responses weighs its tokens no more.
        f"{actor}.loss_scale_factor": panel.response_length,
        f"{actor}.entropy_coeff": 0.0,
        f"{actor}.use_kl_loss": panel.reference_kl > 0,
        f"{actor}.kl_loss_coef": panel.reference_kl,
        f"{actor}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{actor}.policy_loss._target_": "methods.backend.policy_loss.TetherPolicyLossConfig",
        f"{actor}.policy_loss.loss_mode": loss_name(cell.method),
        f"+{actor}.policy_loss.options": cell.options,
        f"{rollout}.name": rollout_settings.ENGINES[panel.rollout_engine][0],
        f"{rollout}.n": panel.group,
        f"{rollout}.temperature": panel.temperature,
        f"{rollout}.dtype": rollout_precision.dtype,
        f"+{rollout}.custom.quantise": rollout_precision.quantise,
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.free_cache_engine": False,
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": panel.micro_batch_rows,
        f"{rollout}.agent.num_workers": 1,
        f"+{rollout}.custom.top_k": panel.top_k,
        f"+{rollout}.custom.lag": panel.lag,
        f"+{rollout}.custom.seed": cell.seed,
        f"+{rollout}.custom.quantization": panel.rollout_quantization,
        # vLLM's running sequences; a whole batch at once costs the fewest engine steps.
        f"{rollout}.max_num_seqs": min(panel.prompts * panel.group, 1024),
        f"{rollout}.val_kwargs.n": panel.validate_samples,
        f"{rollout}.val_kwargs.do_sample": True,
        f"{rollout}.val_kwargs.temperature": panel.temperature,
        "trainer.device": "cpu",
        "trainer.n_gpus_per_node": panel.ranks,
        "trainer.nnodes": 1,
        "trainer.total_training_steps": panel.steps,
        # verl stops at whichever comes first; the number of steps is what a panel fixes.
        "trainer.total_epochs": panel.steps,
        "trainer.val_before_train": True,
        "trainer.test_freq": panel.validate_every or panel.steps,
        "trainer.save_freq": panel.save_every or panel.steps,
        # Older ones are removed by methods.backend.restart, once the new one is whole.
        "trainer.max_actor_ckpt_to_keep": None,
        "trainer.default_local_dir": str(cell.work_dir / "verl"),
        "trainer.project_name": "tether",
        "trainer.experiment_name": f"{cell.panel_name}-{cell.label}-{cell.seed}",
        "trainer.logger": cell.trackers,
        "trainer.v1.trainer_mode": f"tether_{panel.runner}",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    }
    if panel.runner == "ray":
        settings |= _ray_settings(cell)
    return [f"{key}={_hydra(value)}" for key, value in settings.items()] + list(cell.overrides)


def _engine_precision(where: str, precision: Precision) -> dict[str, str]:
    """`mixed_precision` is a free-form dictionary of verl's FSDP engine; `quantise` in it is read by our engine."""
    return {
        f"{where}.model_dtype": "fp32",
        f"+{where}.mixed_precision.param_dtype": precision.dtype,
        f"+{where}.mixed_precision.reduce_dtype": "fp32",
        f"+{where}.mixed_precision.buffer_dtype": "fp32",
        f"+{where}.mixed_precision.quantise": precision.quantise,
    }


def _ray_settings(cell: Cell) -> dict[str, Any]:
    """What main_ppo needs on a machine without accelerators, and where its trainer finds the cell."""
    ranks, rollout = cell.panel.ranks, "actor_rollout_ref.rollout"
    if cell.panel.server:
        sampling: dict[str, Any] = {
            f"{rollout}.name": rollout_settings.SERVERS[cell.panel.rollout_engine][0],
            f"+{rollout}.agent.agent_loop_manager_class": "methods.backend.server_loop.ServerLoopManager",
            f"{rollout}.agent.default_agent_loop": "tether_single_turn",
            **(_vllm_server_settings(cell.panel) if cell.panel.rollout_engine == "vllm" else {}),
        }
    else:
        sampling = {
            f"+{rollout}.agent.agent_loop_manager_class": "methods.backend.batch_rollout.BatchRolloutManager",
            # Rewards are computed by the batch manager: no reward processes.
            "reward.num_workers": 0,
        }
    return sampling | {
        "+trainer.tether_work_dir": str(cell.work_dir),
        # Never a Ray that happens to run here: its workers have other code and another environment.
        "+ray_kwargs.ray_init.address": "local",
        "+ray_kwargs.ray_init.include_dashboard": False,
        # Logical slots: verl counts "GPU"s (single_controller/ray/base.py:226), its placement groups ask for CPUs.
        "+ray_kwargs.ray_init.num_gpus": ranks,
        "ray_kwargs.ray_init.num_cpus": 8 + 8 * ranks,
    }


def _vllm_server_settings(panel: Panel) -> dict[str, Any]:
    """What verl's vLLM server needs on a CPU; weights come from the trainer only (`load_format`'s default)."""
    rollout = "actor_rollout_ref.rollout"
    return {
        # Both concern GPU memory; vLLM refuses the first on a CPU (vllm/config/model.py), the second compiles graphs.
        f"+{rollout}.enable_sleep_mode": False,
        f"{rollout}.enforce_eager": True,
        f"{rollout}.max_model_len": panel.prompt_length + panel.response_length,
    }


def _hydra(value: Any) -> str:
    """A value in Hydra's override grammar; strings are quoted, so that blanks and commas in paths are safe."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_hydra(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_hydra, value)) + "]"
    return repr(value)
