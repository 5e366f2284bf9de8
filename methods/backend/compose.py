"""From a run to verl's configuration and trainer, checked to be what was asked for; for both runners."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from methods import registry
from methods.backend.precisions import ROLLOUT_PRECISIONS, TRAIN_PRECISIONS
from methods.backend.recipe import verl_overrides
from methods.backend.rollout.engines import ENGINES, SERVERS, refuse_corrections
from methods.backend.run_config import RunConfig
from methods.backend.setting import ConfigError


def compose(run: RunConfig) -> Any:
    """verl's `ppo_trainer` configuration with this run's overrides, resolved and validated by verl."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra_compose("ppo_trainer", overrides=verl_overrides(run))
    config.transfer_queue.enable = True
    try:
        refuse_corrections(config.algorithm.rollout_correction)
    except ValueError as error:
        raise ConfigError(f"overrides: {error}") from None
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    return config


def build_trainer(run: RunConfig) -> Any:
    """verl's trainer with our worker, initialised (checkpoint loaded where there is one) and verified to be ours."""
    import verl  # noqa: F401  # loads the plugin through its entry point
    from omegaconf import OmegaConf

    from methods.backend import plugin, trainer  # noqa: F401  # registration raises here, where verl would hide it

    config = compose(run)
    OmegaConf.resolve(config)
    built = trainer.InProcessTrainer(config=config)
    built.init()
    verify(run, built.worker.report())
    return built


def verify(run: RunConfig, report: dict[str, Any]) -> None:
    """Raise RuntimeError where the worker does not run what the run asks for (verl hides plugin failures)."""
    from methods.backend import engine, platform
    from methods.backend import loss as policy_loss

    sampler = (SERVERS if run.setting.server else ENGINES)[run.setting.rollout_engine][1]
    expected = {
        "platform": f"{platform.CPUPlatform.__module__}.{platform.CPUPlatform.__qualname__}",
        "method": run.method,
        "loss_function": f"{policy_loss.__name__}.{run.method}_policy_loss",
        "options": vars(registry.get(run.method).configure(run.options)),
        "engine": f"{engine.CPUEngine.__module__}.{engine.CPUEngine.__qualname__}",
        "rollout": sampler,
        "staleness": run.setting.staleness,
        "top_k": run.setting.top_k,
        "train_precision": asdict(TRAIN_PRECISIONS[run.setting.train_precision]),
        "rollout_precision": asdict(ROLLOUT_PRECISIONS[run.setting.rollout_precision]),
    }
    wrong = [f"{k}: asked {v!r}, runs {report.get(k)!r}" for k, v in expected.items() if report.get(k) != v]
    if wrong:
        raise RuntimeError("the worker does not run what was asked for: " + "; ".join(wrong))
