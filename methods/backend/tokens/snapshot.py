"""Take an engine back to where it was: parameters, gradients, optimiser, learning rate, loss scale, random state."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Snapshot:
    """State of a training engine at one moment; `restore` puts it back bit for bit."""

    parameters: list[Tensor]
    gradients: list[Tensor | None]
    optimizer: dict[str, Any]
    lr_scheduler: dict[str, Any] | None
    scaler: dict[str, Any] | None
    random_state: tuple[Any, Any, Tensor]

    @classmethod
    def capture(cls, engine: Any) -> Snapshot:
        """Copy the state of a verl engine (module, optimizer, lr_scheduler, scaler)."""
        parameters = list(engine.module.parameters())
        return cls(
            parameters=[p.detach().clone() for p in parameters],
            gradients=[None if p.grad is None else p.grad.detach().clone() for p in parameters],
            optimizer=copy.deepcopy(engine.optimizer.state_dict()),
            lr_scheduler=copy.deepcopy(engine.lr_scheduler.state_dict()) if engine.lr_scheduler is not None else None,
            scaler=copy.deepcopy(engine.scaler.state_dict()) if getattr(engine, "scaler", None) is not None else None,
            random_state=(random.getstate(), np.random.get_state(), torch.get_rng_state()),
        )

    @torch.no_grad()
    def restore(self, engine: Any) -> None:
        """Put the captured state back into the same engine."""
        for parameter, value, gradient in zip(engine.module.parameters(), self.parameters, self.gradients, strict=True):
            parameter.copy_(value)
            parameter.grad = None if gradient is None else gradient.clone()
        # load_state_dict would keep moments that did not exist yet when the snapshot was taken, and would hold three
        # copies of the others at once.
        engine.optimizer.state.clear()
        engine.optimizer.load_state_dict(copy.deepcopy(self.optimizer))
        if self.lr_scheduler is not None:
            engine.lr_scheduler.load_state_dict(copy.deepcopy(self.lr_scheduler))
        if self.scaler is not None:
            engine.scaler.load_state_dict(copy.deepcopy(self.scaler))
        random.setstate(self.random_state[0])
        np.random.set_state(self.random_state[1])
        torch.set_rng_state(self.random_state[2])
