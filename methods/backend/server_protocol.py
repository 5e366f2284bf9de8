"""What agent loops and rollout server say to each other inside verl's own messages. Imports nothing of either."""

from __future__ import annotations

from dataclasses import dataclass

from methods.backend.rollout_settings import SERVERS

REQUEST = "tether_request"  # key in verl's sampling parameters: a Request
SUPPORT = "tether_support"  # key in TokenOutput.extra_fields: (ids [R, S], log-probs [R, S])

VLLM_PREFIX = f"{SERVERS['vllm'][0]}_"  # of the names of vLLM's server actors


def socket_name() -> str:
    """In the path of verl's socket for weights, below /tmp: verl names it by Ray's job, and the first job of every Ray
    has one name, so that two trainings at once would take each other's weights."""
    import ray

    return str(ray.get_runtime_context().get_node_id())[:16]


@dataclass(frozen=True)
class Request:
    """Which response this is: training step, index of the prompt in its data, sample of that prompt."""

    step: int
    index: int
    sample: int
    validate: bool
