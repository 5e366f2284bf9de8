"""verl's FSDP engine for device `cpu`, and hooks around an optimiser step."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim.lr_scheduler import LambdaLR
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name
from verl.utils.py_functional import append_to_dict
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead

from methods.backend import dropout, platform
from methods.backend.rollout.engines import refuse_unknown
from methods.precision.quantisation import quantise_model, scheme_of

# Of mini-batches of padded columns (`methods.backend.padded`): the numbers of tokens of their sequences, and the first
# place of each row whose logits predict a response token.
PADDED, FIRST = "tether_padded", "tether_first"
SCALER_FILE = "tether_scaler_rank_{rank}.pt"

StepHook = Callable[["CPUEngine"], None]


def init_process_group() -> None:
    """Start gloo before verl does: verl/utils/distributed.py:89 would ask torch for "cpu:gloo,cpu:gloo"."""
    if get_device_name() != platform.NAME or torch.distributed.is_initialized():
        return
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # A lone process needs no rendezvous, so no port that another run may hold.
    store = torch.distributed.HashStore() if world_size == 1 else None
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world_size, store=store)


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device=[platform.NAME])
class CPUEngine(FSDPEngineWithLMHead):
    """verl's engine, registered for the CPU.

    `before_optimizer_step` and `after_optimizer_step` are lists of functions of the engine, called around each
    step with gradients in place; an observer may use `methods.backend.tokens.snapshot` to leave no trace.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before_optimizer_step: list[StepHook] = []
        self.after_optimizer_step: list[StepHook] = []
        self.optimizer_steps = self.overflowed_steps = 0

    def forward_backward_batch(self, data: TensorDict, loss_function: Any, forward_only: bool = False) -> Any:
        """verl's; the divisor of the sequence modes counts responses with a valid token, as the tokens' does.

        verl takes the mini-batch's rows (trainer_base.py:1858), so that each response without a valid token, such as
        the rows that fill up a batch, would shrink the gradient of the others.
        """
        if PADDED in data:
            return self._forward_backward_padded(data, loss_function)
        if tu.get(data, "global_batch_size") is not None:
            rows = data["response_mask"].to_padded_tensor(0).bool().any(-1).sum()
            torch.distributed.all_reduce(rows, group=self.get_data_parallel_group())
            tu.assign_non_tensor(data, global_batch_size=max(int(rows), 1))
        return super().forward_backward_batch(data, loss_function, forward_only)

    def _forward_backward_padded(self, data: TensorDict, loss_function: Any) -> Any:
        """verl's forward_backward_batch and forward_step of a mini-batch of padded columns that is one micro-batch."""
        mask = data["response_mask"]
        tu.assign_non_tensor(
            data,
            batch_num_tokens=int(data["loss_mask"].sum()),
            global_batch_size=max(int(mask.bool().any(-1).sum()), 1),
            dp_size=1,
        )
        inputs = {name: data[name] for name in ("input_ids", "attention_mask", "position_ids")}
        logits = self.module(**inputs, use_cache=False).logits
        loss, metrics = loss_function.of_padded(_predicting(logits, data[FIRST], mask.shape[1]), data)
        loss.backward()
        collected: dict[str, Any] = {}
        append_to_dict(collected, metrics)
        return {"model_output": {}, "loss": [loss.detach().item()], "metrics": collected}

    def optimizer_step(self) -> float:
        """Clip, step, and count; returns the gradient norm before clipping.

        In fp16 a scaled gradient may overflow: the scaler then skips the step and halves its scale, as it is meant to.
        verl (fsdp/transformer_impl.py:834) returns inf for such a step; here it counts as overflowed, with norm 0.
        """
        for hook in self.before_optimizer_step:
            hook(self)
        norm = super().optimizer_step()
        self.optimizer_steps += 1
        if self.scaler is not None and not math.isfinite(norm):
            self.overflowed_steps += 1
            norm = 0.0
        for hook in self.after_optimizer_step:
            hook(self)
        return norm

    def save_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        """verl's checkpoint and the loss scale, which verl (utils/checkpoint/fsdp_checkpoint_manager.py) leaves out."""
        super().save_checkpoint(local_path, *args, **kwargs)
        if self.scaler is not None:
            torch.save(self.scaler.state_dict(), os.path.join(local_path, SCALER_FILE.format(rank=self.rank)))

    def load_checkpoint(self, local_path: str, *args: Any, **kwargs: Any) -> None:
        """Restore both. Raises FileNotFoundError where an fp16 training has no loss scale to go on with."""
        if self.scaler is not None:
            state = torch.load(os.path.join(local_path, SCALER_FILE.format(rank=self.rank)), weights_only=True)
            self.scaler.load_state_dict(state)
        super().load_checkpoint(local_path, *args, **kwargs)

    def prepare_model_outputs(self, output: Any, output_args: Any, micro_batch: Any, logits_processor_func: Any) -> Any:
        """Upcast logits: without flash-attn, utils/torch_functional.py:173 leaves log-probs in the autocast dtype."""
        if getattr(output, "logits", None) is not None and output.logits.dtype != torch.float32:
            output.logits = output.logits.float()
        return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)

    def _build_module(self) -> torch.nn.Module:
        """verl's module without dropout, quantised where `fsdp_config.mixed_precision.quantise` names a scheme."""
        refuse_unknown("fsdp_config.mixed_precision", self.engine_config.mixed_precision)
        module = super()._build_module()
        self.dropout_off = dropout.turn_off(module)
        if self.dropout_off and self.rank == 0:
            named = ", ".join(f"{name} {value:g}" for name, value in self.dropout_off.items())
            print(f"[train] off in the trainer, since the rollout samples without: {named}", flush=True)
        scheme = (self.engine_config.mixed_precision or {}).get("quantise", "none")
        if scheme != "none":
            quantise_model(module, scheme)
        return module

    def precision(self) -> dict[str, str]:
        """What the built module computes in."""
        return {"dtype": str(self._autocast_dtype).removeprefix("torch."), "quantise": scheme_of(self.module)}

    @torch.no_grad()
    def logits(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor) -> Tensor:
        """[B, L, V] float32 of right-padded [B, L]: the forward of verl's forward_step (transformer_impl.py:1549)."""
        narrow = self._autocast_dtype != torch.float32
        with self.eval_mode(), torch.autocast(get_device_name(), self._autocast_dtype, enabled=narrow):
            out = self.module(
                input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
            )
        return out.logits.float()

    def _build_lr_scheduler(self, optimizer: Any) -> Any:
        """verl's, but step i of a warm-up of W training steps runs at lr * i / W: verl's first one runs at 0."""
        settings = self.optimizer_config
        if settings.lr_scheduler_type != "constant":
            return super()._build_lr_scheduler(optimizer)
        steps = settings.lr_warmup_steps or 0
        if steps <= 0:
            steps = int(settings.lr_warmup_steps_ratio * settings.total_training_steps)
        return LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / max(steps, 1)))

    def lr_scheduler_step(self) -> float:
        """End a training step; returns the rate that it ran at, where verl returns that of the next."""
        (used, *_) = self.lr_scheduler.get_last_lr()
        self.lr_scheduler.step()
        return used

    def _alone(self) -> bool:
        """Whether there is nothing to shard, to cast or to offload, so that FSDP2 would only add wrappers."""
        config, mixed = self.engine_config, dict(self.engine_config.mixed_precision or {})
        dtypes = {PrecisionType.to_dtype(mixed.get(name, "bf16")) for name in ("param_dtype", "reduce_dtype")}
        offload = config.offload_policy or self.model_config.enable_activation_offload
        return (
            torch.distributed.get_world_size() == 1
            and config.strategy == "fsdp2"
            and not config.forward_only
            and dtypes == {torch.float32}
            and not offload
        )

    def _build_optimizer(self, module: torch.nn.Module) -> Any:
        """verl's; alone, all parameters are stepped together, which torch does by itself for accelerators only."""
        optimizer = super()._build_optimizer(module)
        if self._alone():
            optimizer.register_load_state_dict_pre_hook(lambda _, state: local(state))
            optimizer.register_load_state_dict_post_hook(_step_together)
            _step_together(optimizer)
        return optimizer

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        if self.engine_config.forward_only:
            # fsdp/transformer_impl.py:462 pins memory for forward-only engines; pinning needs an accelerator.
            self._is_offload_param = self._is_offload_optimizer = False
            mixed = self.engine_config.mixed_precision
            compute = mixed.get("param_dtype", "bf16") if mixed is not None else "bf16"
            self._autocast_dtype = PrecisionType.to_dtype(compute)
            # Weights that never change are held as FSDP2 casts the actor's for a forward; buffers stay as they are.
            for parameter in module.parameters():
                parameter.data = parameter.data.to(self._autocast_dtype)
            return module
        if self._alone():
            self._autocast_dtype, self.scaler = torch.float32, None
            module.register_load_state_dict_pre_hook(lambda _, state, *__: state.update(local(state)))
            return module
        module = super()._build_fsdp_module(module)
        if getattr(self, "scaler", None) is not None:
            # fsdp/transformer_impl.py:409 builds the fp16 gradient scaler for CUDA.
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

            self.scaler = ShardedGradScaler(device=platform.NAME, growth_interval=400)
        return module


def _predicting(logits: Tensor, first: Tensor, width: int) -> Tensor:
    """[B, L, V] to [B, width, V], those that predict response tokens; a slice where prompts are equally long."""
    start = int(first[0])
    if bool((first == start).all()):
        return logits[:, start : start + width]
    places = (first.unsqueeze(1) + torch.arange(width)).clamp(max=logits.shape[1] - 1)
    return logits[torch.arange(len(logits)).unsqueeze(1), places]


def local(value: Any) -> Any:
    """A checkpoint's nested dictionaries and lists with plain tensors: FSDP2 writes DTensors on a lone rank too."""
    if isinstance(value, DTensor):
        return value.to_local()
    if isinstance(value, dict):
        return {key: local(item) for key, item in value.items()}
    return [local(item) for item in value] if isinstance(value, list) else value


def _step_together(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        if group.get("foreach", False) is None and not group.get("fused"):
            group["foreach"] = True
