"""What agent loops and rollout server say to each other inside verl's own messages. Imports nothing of either."""

from __future__ import annotations

from dataclasses import dataclass

REQUEST = "tether_request"  # key in verl's sampling parameters: a Request
SUPPORT = "tether_support"  # key in TokenOutput.extra_fields: (ids [R, S], log-probs [R, S])


@dataclass(frozen=True)
class Request:
    """Which response this is: training step, index of the prompt in its data, sample of that prompt.

    batch: how many requests of this step come to the same server, 0 where nobody knows (several servers).
    """

    step: int
    index: int
    sample: int
    validate: bool
    batch: int = 0
