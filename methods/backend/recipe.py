"""A cell as the configuration that verl.trainer.main_ppo takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from methods.backend.cell import Cell
from methods.backend.panel import Panel
from methods.backend.precisions import ROLLOUT_PRECISIONS, TRAIN_PRECISIONS, Precision
from methods.backend.rollout import engines


def verl_overrides(cell: Cell) -> list[str]:
    """Hydra overrides of verl's `ppo_trainer` config for this cell; `cell.overrides` come last and win."""
    from methods.backend.loss import loss_name

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
        f"{actor}.policy_loss._target_": "methods.backend.loss.TetherPolicyLossConfig",
        f"{actor}.policy_loss.loss_mode": loss_name(cell.method),
        f"+{actor}.policy_loss.options": cell.options,
        f"{rollout}.name": engines.ENGINES[panel.rollout_engine][0],
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
        # Older ones are removed by methods.backend.run.restart, once the new one is whole.
        "trainer.max_actor_ckpt_to_keep": None,
        "trainer.default_local_dir": str(cell.work_dir / "verl"),
        "trainer.project_name": "tether",
        "trainer.experiment_name": f"{cell.panel_name}-{cell.label}-{cell.seed}",
        "trainer.logger": cell.trackers,
        "trainer.v1.trainer_mode": f"tether_{panel.runner}",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    }
    settings |= _data_options(panel)
    if panel.runner == "ray":
        settings |= _ray_settings(cell)
    return [f"{key}={_hydra(value)}" for key, value in settings.items()] + list(cell.overrides)


def _data_options(panel: Panel) -> dict[str, Any]:
    """What a panel asks for beyond the default: nothing is said of an option that is off."""
    custom = {
        "special_tokens": panel.reward_special_tokens,
        "mask_truncated": panel.mask_truncated,
        "skip_flat_groups": panel.skip_flat_groups,
        "rollouts": panel.rollouts,
    }
    settings: dict[str, Any] = {
        f"+actor_rollout_ref.rollout.custom.{name}": True for name, wanted in custom.items() if wanted
    }
    template = panel.template()
    if template is not None:
        settings["actor_rollout_ref.model.custom_chat_template"] = template
    if panel.overlong_prompts == "drop":
        settings |= {"data.filter_overlong_prompts": True, "data.filter_overlong_prompts_workers": 1}
    return settings


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
            f"{rollout}.name": engines.SERVERS[cell.panel.rollout_engine][0],
            f"+{rollout}.agent.agent_loop_manager_class": "methods.backend.ray.loop.ServerLoopManager",
            f"{rollout}.agent.default_agent_loop": "tether_single_turn",
            "reward.reward_manager.source": "importlib",
            "reward.reward_manager.name": "TextRewardManager",
            "reward.reward_manager.module.path": "pkg://methods.backend.reward_manager",
            **(_vllm_server_settings(cell.panel) if cell.panel.rollout_engine == "vllm" else {}),
        }
    else:
        sampling = {
            f"+{rollout}.agent.agent_loop_manager_class": "methods.backend.rollout.batch.BatchRolloutManager",
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
        # Backslashes are doubled before a quote only; elsewhere Hydra takes them as they are.
        return "'" + re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + found[2].replace("'", "\\'"), value) + "'"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_hydra(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_hydra, value)) + "]"
    return repr(value)
