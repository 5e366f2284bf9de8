"""A CPU platform for verl, through its public registry. Import this before anything asks verl for its device."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

NAME = "cpu"


def leave_out_ascend_transport() -> None:
    """Keep verl/checkpoint_engine/hccl_checkpoint_engine.py:23 from importing all of vLLM where no NPU can use it.

    verl catches the ImportError and records it (checkpoint_engine/__init__.py:46), as for every missing transport.
    """
    if importlib.util.find_spec("torch_npu") is None:
        sys.modules.setdefault("verl.checkpoint_engine.hccl_checkpoint_engine", None)  # type: ignore[arg-type]


leave_out_ascend_transport()


class _DeviceModule(types.ModuleType):
    """torch.cpu plus the accelerator calls that verl makes unguarded (memory statistics, random state)."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    @staticmethod
    def is_available() -> bool:
        # False turns every verl helper that asks "is the accelerator there?" into a no-op.
        return False

    @staticmethod
    def _zero(*_: Any, **__: Any) -> int:
        return 0

    @staticmethod
    def _nothing(*_: Any, **__: Any) -> None:
        return None

    max_memory_allocated = max_memory_reserved = memory_allocated = memory_reserved = _zero
    empty_cache = synchronize = reset_peak_memory_stats = set_device = _nothing

    @staticmethod
    def mem_get_info(*_: Any, **__: Any) -> tuple[int, int]:
        return (0, 0)

    @staticmethod
    def get_device_name(*_: Any, **__: Any) -> str:
        return "CPU"

    @staticmethod
    def manual_seed(seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    # verl's checkpoint manager saves and restores the device's random state; here that is torch's own.
    @staticmethod
    def get_rng_state(*_: Any, **__: Any) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, *_: Any, **__: Any) -> None:
        torch.set_rng_state(state)


_DEVICE_MODULE = _DeviceModule("tether_cpu_device")


@PlatformRegistry.register(platform=NAME)
class CPUPlatform(PlatformBase):
    """verl's view of a machine without an accelerator; chosen by VERL_PLATFORM=cpu, which our own commands set.

    Probed after the accelerators, so that a run of the user's own, which loads our plugin, keeps the one it finds.
    """

    @property
    def device_name(self) -> str:
        return NAME

    @property
    def vendor_name(self) -> str:
        return "generic"

    @property
    def device_module(self) -> Any:
        return _DEVICE_MODULE

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        return NAME

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        return None

    def synchronize(self, device_index: int | None = None) -> None:
        return None

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        return None

    def empty_cache(self) -> None:
        return None

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return (None, None)

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        return None

    def profiler_stop(self) -> None:
        return None

    def ray_resource_name(self) -> str:
        # verl counts Ray "GPU" slots (single_controller/ray/base.py:226); ray.init(num_gpus=n) declares them.
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None
