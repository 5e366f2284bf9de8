"""A run as the configuration that verl.trainer.main_ppo takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from methods.backend.precisions import ROLLOUT_PRECISIONS, TRAIN_PRECISIONS, Precision
from methods.backend.rollout import engines
from methods.backend.run_config import RunConfig
from methods.backend.setting import Setting


def verl_overrides(run: RunConfig) -> list[str]:
    """Hydra overrides of verl's `ppo_trainer` config for this run; `run.overrides` come last and win."""
    from methods.backend.loss import loss_name

    setting, actor, rollout = run.setting, "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    train_precision = TRAIN_PRECISIONS[setting.train_precision]
    rollout_precision = ROLLOUT_PRECISIONS[setting.rollout_precision]
    settings: dict[str, Any] = {
        "data.train_files": run.train_files,
        "data.val_files": run.val_files,
        "data.train_batch_size": setting.prompts,
        "data.max_prompt_length": setting.prompt_length,
        "data.max_response_length": setting.response_length,
        "data.filter_overlong_prompts": False,
        "data.dataloader_num_workers": 0,
        "data.validation_shuffle": False,
        "data.seed": run.seed,
        "reward.num_workers": 1,
        "reward.custom_reward_function.path": run.reward_function.path,
        "reward.custom_reward_function.name": run.reward_function.name,
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": setting.advantage_std,
        # The ratio is against the rollout policy: old_log_probs are the rollout's own.
        "algorithm.rollout_correction.bypass_mode": True,
        "actor_rollout_ref.model.path": run.model,
        "actor_rollout_ref.model.use_remove_padding": False,
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        f"{actor}.strategy": "fsdp2",
        f"{actor}.use_torch_compile": False,
        f"{actor}.fsdp_config.use_torch_compile": False,
        **_engine_precision(f"{actor}.fsdp_config", train_precision),
        # Used with `reference_kl` (or verl's `use_kl_in_reward`); verl would hold the reference in bfloat16.
        **_engine_precision("actor_rollout_ref.ref.fsdp_config", train_precision),
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": setting.micro_batch_rows,
        f"{actor}.ppo_mini_batch_size": setting.prompts // setting.mini_batches,
        f"{actor}.ppo_micro_batch_size_per_gpu": setting.micro_batch_rows,
        f"{actor}.ppo_epochs": 1,
        f"{actor}.data_loader_seed": run.seed,
        f"{actor}.optim.lr": setting.lr,
        f"{actor}.optim.weight_decay": setting.weight_decay,
        f"{actor}.optim.lr_warmup_steps": setting.warmup_steps,
        f"{actor}.optim.clip_grad": setting.clip_grad,
        f"{actor}.loss_agg_mode": setting.loss_aggregation,
        # The horizon of "token sum / horizon": fixed, so that a batch of short responses weighs its tokens no more.
        f"{actor}.loss_scale_factor": setting.response_length,
        f"{actor}.entropy_coeff": 0.0,
        f"{actor}.use_kl_loss": setting.reference_kl > 0,
        f"{actor}.kl_loss_coef": setting.reference_kl,
        f"{actor}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{actor}.policy_loss._target_": "methods.backend.loss.TetherPolicyLossConfig",
        f"{actor}.policy_loss.loss_mode": loss_name(run.method),
        f"+{actor}.policy_loss.options": run.options,
        f"{rollout}.name": engines.ENGINES[setting.rollout_engine][0],
        f"{rollout}.n": setting.group,
        f"{rollout}.temperature": setting.temperature,
        f"{rollout}.dtype": rollout_precision.dtype,
        f"+{rollout}.custom.quantise": rollout_precision.quantise,
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.free_cache_engine": False,
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": setting.micro_batch_rows,
        f"{rollout}.agent.num_workers": 1,
        f"+{rollout}.custom.top_k": setting.top_k,
        f"+{rollout}.custom.staleness": setting.staleness,
        f"+{rollout}.custom.seed": run.seed,
        f"+{rollout}.custom.quantization": setting.rollout_quantization,
        # vLLM's running sequences; a whole batch at once costs the fewest engine steps.
        f"{rollout}.max_num_seqs": min(setting.prompts * setting.group, 1024),
        f"{rollout}.val_kwargs.n": setting.validate_samples,
        f"{rollout}.val_kwargs.do_sample": True,
        f"{rollout}.val_kwargs.temperature": setting.temperature,
        "trainer.device": "cpu",
        "trainer.n_gpus_per_node": setting.ranks,
        "trainer.nnodes": 1,
        "trainer.total_training_steps": setting.steps,
        # verl stops at whichever comes first; the number of steps is what a setting fixes.
        "trainer.total_epochs": setting.steps,
        "trainer.val_before_train": True,
        "trainer.test_freq": setting.validate_every or setting.steps,
        "trainer.save_freq": setting.save_every or setting.steps,
        # Older ones are removed by methods.backend.run.restart, once the new one is whole.
        "trainer.max_actor_ckpt_to_keep": None,
        "trainer.default_local_dir": str(run.work_dir / "verl"),
        "trainer.project_name": "tether",
        "trainer.experiment_name": f"{run.setting_name}-{run.variant}-{run.seed}",
        "trainer.logger": run.trackers,
        "trainer.v1.trainer_mode": f"tether_{setting.runner}",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    }
    settings |= _data_options(setting)
    if setting.runner == "ray":
        settings |= _ray_settings(run)
    return [f"{key}={_hydra(value)}" for key, value in settings.items()] + list(run.overrides)


def _data_options(setting: Setting) -> dict[str, Any]:
    """What a setting asks for beyond the default: nothing is said of an option that is off."""
    custom = {
        "special_tokens": setting.reward_special_tokens,
        "mask_truncated": setting.mask_truncated,
        "skip_flat_groups": setting.skip_flat_groups,
        "rollouts": setting.rollouts,
    }
    settings: dict[str, Any] = {
        f"+actor_rollout_ref.rollout.custom.{name}": True for name, wanted in custom.items() if wanted
    }
    template = setting.template()
    if template is not None:
        settings["actor_rollout_ref.model.custom_chat_template"] = template
    if setting.overlong_prompts == "drop":
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


def _ray_settings(run: RunConfig) -> dict[str, Any]:
    """What main_ppo needs on a machine without accelerators, and where its trainer finds the run."""
    ranks, rollout = run.setting.ranks, "actor_rollout_ref.rollout"
    if run.setting.server:
        sampling: dict[str, Any] = {
            f"{rollout}.name": engines.SERVERS[run.setting.rollout_engine][0],
            f"+{rollout}.agent.agent_loop_manager_class": "methods.backend.ray.loop.ServerLoopManager",
            f"{rollout}.agent.default_agent_loop": "tether_single_turn",
            "reward.reward_manager.source": "importlib",
            "reward.reward_manager.name": "TextRewardManager",
            "reward.reward_manager.module.path": "pkg://methods.backend.ray.reward_manager",
            **(_vllm_server_settings(run.setting) if run.setting.rollout_engine == "vllm" else {}),
        }
    else:
        sampling = {
            f"+{rollout}.agent.agent_loop_manager_class": "methods.backend.rollout.batch.BatchRolloutManager",
            # Rewards are computed by the batch manager: no reward processes.
            "reward.num_workers": 0,
        }
    return sampling | {
        "+trainer.tether_work_dir": str(run.work_dir),
        # Never a Ray that happens to run here: its workers have other code and another environment.
        "+ray_kwargs.ray_init.address": "local",
        "+ray_kwargs.ray_init.include_dashboard": False,
        # Logical slots: verl counts "GPU"s (single_controller/ray/base.py:226), its placement groups ask for CPUs.
        "+ray_kwargs.ray_init.num_gpus": ranks,
        "ray_kwargs.ray_init.num_cpus": 8 + 8 * ranks,
    }


def _vllm_server_settings(setting: Setting) -> dict[str, Any]:
    """What verl's vLLM server needs on a CPU; weights come from the trainer only (`load_format`'s default)."""
    rollout = "actor_rollout_ref.rollout"
    return {
        # Both concern GPU memory; vLLM refuses the first on a CPU (vllm/config/model.py), the second compiles graphs.
        f"+{rollout}.enable_sleep_mode": False,
        f"{rollout}.enforce_eager": True,
        f"{rollout}.max_model_len": setting.prompt_length + setting.response_length,
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
