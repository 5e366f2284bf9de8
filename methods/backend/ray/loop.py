"""verl's agent loops around the rollout server: who asks travels there, and the support travels back."""

from __future__ import annotations

import logging
from typing import Any

from tensordict import TensorDict
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, register
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.utils import tensordict_utils as tu

from methods.backend.ray.protocol import REQUEST, SUPPORT, Request
from methods.backend.rollout.batch import SUPPORT_IDS, SUPPORT_LOGP

# It warns about the generic way of joining turns once per response.
logging.getLogger("verl.utils.tokenizer.continuous_token_wiring").setLevel(logging.ERROR)
LOOP = "tether_single_turn"
VALIDATION, BATCH = "tether_validation", "tether_batch"


class ServerLoopManager(AgentLoopManagerTQ):
    """verl's manager, which also tells the loops what they do not see: agent_loop_tq.py:61 takes `validate` out."""

    def generate_sequences(self, prompts: TensorDict) -> None:
        validate, trainer = bool(tu.get(prompts, "validate", False)), self.config.trainer
        samples = self.rollout_config.val_kwargs.n if validate else self.rollout_config.n
        # verl's load balancer says nothing of how it divides requests among servers.
        alone = trainer.n_gpus_per_node * trainer.nnodes == 1
        tu.assign_non_tensor_data(prompts, VALIDATION, validate)
        tu.assign_non_tensor_data(prompts, BATCH, len(prompts) * samples if alone else 0)
        super().generate_sequences(prompts)


class SupportedOutput(AgentLoopOutput):
    """`as_dict` becomes one row of the transfer queue (agent_loop_tq.py:194): here with the rollout's support."""

    support: Any = None

    def as_dict(self) -> dict[str, Any]:
        row = super().as_dict()
        support = row.pop("support", None)
        if support is not None:
            row[SUPPORT_IDS], row[SUPPORT_LOGP] = support
        return row


@register(LOOP)
class SingleTurnLoop(SingleTurnAgentLoop):
    """verl's single-turn loop, with the request's place as the seed of its tokens."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # agent_loop.py:248 chooses by model type how turns are joined, and Qwen's way needs a newline token, which a
        # toy tokenizer lacks; a single turn has no joint, so the generic way is as good.
        super().__init__(*args, **{**kwargs, "hf_model_type": None})

    async def run(self, sampling_params: dict[str, Any], priority: int = 0, **row: Any) -> SupportedOutput:
        request = Request(
            step=int(row["global_steps"]),
            index=int(row["index"]),
            sample=int(row["session_id"]),
            validate=bool(row[VALIDATION]),
            batch=int(row[BATCH]),
        )
        output = await super().run({**sampling_params, REQUEST: request}, priority, **row)
        support = output.extra_fields.pop(SUPPORT, None)
        values = {name: getattr(output, name) for name in output.model_fields_set}
        return SupportedOutput(**values, support=support)
