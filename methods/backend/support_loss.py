"""The loss function that our worker installs in verl's engine: it hands each loss what its method looks at.

Shapes: B sequences of a micro-batch, T response tokens (padded), n of them in all (packed), S support slots, V logits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.workers.utils.losses import ppo_loss

from methods.backend.loss import Carried, carry, is_foreign, method_of, requirements
from methods.backend.metrics import TokenMetrics
from methods.backend.requirements import ANCHOR, UNIFORMS
from methods.backend.rollout.batch import SUPPORT_IDS, SUPPORT_LOGP
from methods.backend.rollout.selection import KEPT
from methods.backend.verl_keys import refuse_idle_keys
from methods.registry import Needs
from methods.signals import Support
from methods.support import FILLER_ID, distinct
from methods.vocabulary import policy_statistics

# Of padded columns: the slots of the support that count, [B, T, S].
SUPPORT_VALID = "tether_support_valid"


class SupportLoss:
    """The loss, with the contract of verl's distillation losses.

    The engine calls it twice per micro-batch: as a logits processor (`student_logits`), where pi is read off at the
    rollout's ids, then as the loss, where verl's own `ppo_loss` runs with that at hand. Without support columns and
    without a method that needs the logits it is called once, as the loss.
    Raises ValueError for a key of verl's that the method would not read.
    """

    def __init__(self, config: Any, vocab_size: int) -> None:
        if not is_foreign(config.policy_loss.loss_mode):
            refuse_idle_keys(method_of(config.policy_loss.loss_mode), config)
        self.config = config
        self.vocab_size = vocab_size
        self.needs = requirements(config.policy_loss)
        self.metrics = TokenMetrics()
        self._pending: tuple[Any, dict[str, Any]] | None = None

    def __call__(
        self,
        model_output: Any = None,
        data: TensorDict | None = None,
        dp_group: Any = None,
        student_logits: Tensor | None = None,
        **_: Any,
    ) -> Any:
        if student_logits is not None:
            self._pending = (data, self._from_logits(student_logits.squeeze(0), data))
            return {}
        signals: dict[str, Any] = {}
        if self._pending is not None:
            seen, signals = self._pending
            self._pending = None
            if seen is not data:
                raise RuntimeError("the engine asked for the loss of another micro-batch than it showed logits of")
        self._count_what_is_left(data)
        return self._loss({**signals, **_columns(data)}, model_output, data, dp_group)

    def _loss(self, signals: dict[str, Any], model_output: Any, data: Any, dp_group: Any) -> Any:
        with carry(Carried({**signals, "vocab_size": self.vocab_size}, self.metrics)):
            return ppo_loss(self.config, model_output, data, dp_group)

    def _count_what_is_left(self, data: Any) -> None:
        """Means over sequences are over the responses of the mini-batch that stay in the loss (`selection`)."""
        if KEPT not in data:
            return
        # Each response that stays says how many there are, over all micro-batches and ranks.
        tu.assign_non_tensor(data, global_batch_size=max(int(data[KEPT].values().max()), 1))
        if self.config.use_kl_loss and not tu.get(data, "batch_num_tokens"):
            # verl's agg_loss divides by it.
            tu.assign_non_tensor(data, batch_num_tokens=1)

    def of_padded(self, logits: Tensor, data: TensorDict) -> Any:
        """(loss, metrics) of a mini-batch of padded columns (`methods.backend.padded`), as a call would give them.

        logits: [B, T, V], those that predict each response token.
        """
        sampled, shape, valid = data["responses"], data["responses"].shape, data.get(SUPPORT_VALID, None)
        log_probs = logits.gather(-1, sampled.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)
        signals: dict[str, Any] = {
            "sampled": sampled,
            "logp_old": data.get(ANCHOR, None),
            "uniforms": data.get(UNIFORMS, None),
        }
        flat = logits.detach().flatten(0, 1)
        if valid is not None or Needs.SUM_PI_SQUARED in self.needs:
            ids = data[SUPPORT_IDS].flatten(0, 1) if valid is not None else sampled.new_empty(len(flat), 0)
            statistics = policy_statistics(flat, ids)
            signals["sum_pi_squared"] = statistics.sum_pi_squared.view(shape)
            signals["entropy"] = statistics.entropy.view(shape)
        if valid is not None:
            logp_mu = data[SUPPORT_LOGP]
            # Padding names no candidates: every response token has one that is valid, its own.
            inside = valid.any(-1)
            signals["support"] = Support(
                ids=named(data[SUPPORT_IDS], logp_mu),
                logp_mu=logp_mu,
                logp_pi=statistics.logp.view(valid.shape),
                valid=valid,
            )
            if Needs.FULL in self.needs:
                signals["full"] = _full(
                    flat[inside.flatten()],
                    ids[inside.flatten()],
                    logp_mu[inside],
                    lambda values: values.new_zeros(*shape, values.shape[-1]).index_put((inside,), values),
                )
        return self._loss(signals, {"log_probs": log_probs}, data, None)

    def _from_logits(self, logits: Tensor, data: Any) -> dict[str, Any]:
        """Signals by name. logits: [total tokens, V], packed; the row before a response token predicts it."""
        lengths, ends = data["responses"].offsets().diff(), data["input_ids"].offsets()[1:]
        # Row of the j-th response token of a sequence that ends at `end`: end - 1 - (length - j).
        starts = (ends - 1 - lengths).repeat_interleave(lengths)
        places = torch.arange(len(starts), device=starts.device)
        places = places - data["responses"].offsets()[:-1].repeat_interleave(lengths)
        logits, rows, padded = logits.detach(), starts + places, _Padder(lengths)
        if SUPPORT_IDS not in data:
            none = torch.empty(len(rows), 0, dtype=torch.int64, device=rows.device)
            statistics = policy_statistics(logits, none, rows=rows)
            return {
                "sum_pi_squared": padded(statistics.sum_pi_squared),
                "entropy": padded(statistics.entropy),
            }
        ids, logp_mu = data[SUPPORT_IDS].values(), data[SUPPORT_LOGP].values()
        statistics = policy_statistics(logits, ids, rows=rows)
        support_ids = padded(named(ids, logp_mu))
        return {
            "support": Support(
                ids=support_ids,
                logp_mu=padded(logp_mu),
                logp_pi=padded(statistics.logp),
                valid=distinct(support_ids) & padded(torch.ones_like(ids, dtype=torch.bool)),
            ),
            "sum_pi_squared": padded(statistics.sum_pi_squared),
            "entropy": padded(statistics.entropy),
            "full": _full(logits[rows], ids, logp_mu, padded) if Needs.FULL in self.needs else None,
        }


def named(ids: Tensor, logp_mu: Tensor) -> Tensor:
    """Support ids without those that mu gives no mass: an engine that truncates its sampling marks them by -inf."""
    return torch.where(logp_mu == -torch.inf, FILLER_ID, ids)


def _columns(data: Any) -> dict[str, Tensor | None]:
    """What stands in the batch itself: sampled ids, the recomputed anchor, random numbers; [B, T]."""
    padded = _Padder(data["responses"].offsets().diff())
    names = {"sampled": "responses", "logp_old": ANCHOR, "uniforms": UNIFORMS}
    return {field: padded(data[name].values()) if name in data else None for field, name in names.items()}


def _full(logits: Tensor, ids: Tensor, logp_mu: Tensor, padded: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """(log mu, log pi), [B, T, V] each: the rollout's top V are all there is. logits: [n, V]; ids, logp_mu: [n, V + 1].

    V counts the head's rows, padding included: what both policies normalise over.
    Raises ValueError where the rollout's candidates are not each id once: the mass of an id that is missing would be.
    """
    size = logits.shape[-1]
    if ids.shape[-1] - 1 != size:
        raise ValueError(
            f"actor_rollout_ref.rollout.custom.top_k = {ids.shape[-1] - 1}: this method needs both policies over the "
            f"whole vocabulary, allowed is its size {size}"
        )
    candidates = ids[:, :-1]
    inside = (candidates >= 0) & (candidates < size)
    named = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, torch.where(inside, candidates, 0), inside)
    if not named.all():
        token, missing = (int(place) for place in (~named).nonzero()[0])
        raise ValueError(
            f"rollout candidates of token {token} of this micro-batch do not name id {missing}: this method needs both "
            f"policies over the whole vocabulary, allowed is each of the {size} ids once"
        )
    mu = torch.full_like(logits, -torch.inf, dtype=torch.float32).scatter(-1, ids, logp_mu.float())
    return padded(mu), padded(torch.log_softmax(logits.float(), dim=-1))


class _Padder:
    """Packed response tokens [n, ...] to right-padded [B, T, ...] (zeros in the padding)."""

    def __init__(self, lengths: Tensor) -> None:
        self.mask = torch.arange(int(lengths.max()), device=lengths.device).unsqueeze(0) < lengths.unsqueeze(1)

    def __call__(self, values: Tensor) -> Tensor:
        out = values.new_zeros(*self.mask.shape, *values.shape[1:])
        out[self.mask] = values
        return out
