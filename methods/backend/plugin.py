"""What verl loads in every process: registers platform, engine, rollout and policy losses as a side effect of import.

Through the entry point group `verl.plugins` (automatic once this package is installed), or with
VERL_USE_EXTERNAL_MODULES=methods.backend.plugin, which raises where the entry point fails silently.
"""

from methods.backend import platform  # isort: skip  # first: everything below asks verl for its device
from methods.backend import engine
from methods.backend import loss as policy_loss
from methods.backend.rollout import base as rollout

policy_loss.register_all()

__all__ = ["engine", "platform", "policy_loss", "rollout"]
