"""Records the tokens of chosen mini-batches around an optimiser step, in one Parquet file per training step.

Shapes: N response tokens of a mini-batch (packed), V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tensordict import TensorDict
from torch import Tensor

from methods.backend.loss import method_of
from methods.backend.rollout.batch import SUPPORT_IDS, SUPPORT_LOGP
from methods.backend.tokens.probe import take_probe_step
from methods.backend.tokens.settings import PROBE, TokenSettings
from methods.backend.tokens.states import States, rollout_forward
from methods.files import replace_whole
from methods.signals import Signals, Support, sanitise
from methods.support import FILLER_ID, distinct
from methods.tokens import columns as token_study
from methods.tokens import schema as token_schema

Take = Callable[[], Any]


class TokenRecorder:
    """Called by the training worker for each mini-batch; `step` tells the trainer's current training step."""

    def __init__(
        self, worker: Any, settings: TokenSettings, folder: Path, identity: dict[str, Any], step: Callable[[], int]
    ) -> None:
        self.worker, self.settings, self.folder, self.step = worker, settings, folder, step
        self.identity = dict(identity)
        self.columns = token_schema.columns(settings.ks)
        self.identity["vocab_size"] = worker.support_loss.vocab_size
        self._tables: list[pa.Table] = []

    def observe(self, index: int, count: int, part: TensorDict, take: Take) -> Any:
        """Take the training's own step on mini-batch `index` of `count`, recording around a step if it is its turn."""
        step = self.step()
        due = step >= self.settings.first_step and ((step - 1) * count + index) % self.settings.every == 0
        # A mini-batch may be of groups that all agree: every advantage is 0, and there is no step to look at.
        if not due or not part["advantages"].values().any():
            return take()
        look = _Look(self.worker, self.settings, part, self._whole(step, index, len(part)))
        if self.settings.update == "own":
            result = take()
            columns = look.finish()
        else:
            with take_probe_step(self.worker, part, PROBE, {"ratio_cap": self.settings.ratio_cap}):
                columns = look.finish()
            result = take()
        self._tables.append(self._table(step, index, len(part), columns))
        return result

    def flush(self, step: int) -> None:
        """Write what this training step recorded; nothing where it recorded nothing."""
        if not self._tables:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self.folder / f"step_{step:06d}.parquet", pa.concat_tables(self._tables))
        self._tables = []

    def _whole(self, step: int, index: int, rows: int) -> Tensor:
        """[rows] bool: the responses kept whole, drawn from seed, step and mini-batch alone."""
        seeds = np.random.SeedSequence(entropy=self.identity["seed"], spawn_key=(0x70, step, index))
        return torch.from_numpy(np.random.default_rng(seeds).random(rows) < self.settings.share)

    def _table(self, step: int, index: int, rows: int, columns: dict[str, Any]) -> pa.Table:
        n = len(columns["position"])
        versions = self.worker.rollout.sampled
        age = versions["weights/synced_version"] - versions["weights/sampled_version"]
        columns = {
            **columns,
            "age": np.full(n, age),
            "step": np.full(n, step),
            "mini_batch": np.full(n, index),
            "response": columns["response"] + index * rows,
        }
        schema = pa.schema([(name, _arrow(kind)) for name, kind in self.columns.items()])
        described = {"tether_token_record": json.dumps({"version": token_schema.VERSION, **self.identity})}
        arrays = [pa.array(columns[name], type=schema.field(name).type) for name in self.columns]
        return pa.Table.from_arrays(arrays, schema=schema.with_metadata(described))


class _Look:
    """One mini-batch before and after a step."""

    def __init__(self, worker: Any, settings: TokenSettings, part: TensorDict, whole: Tensor) -> None:
        self.worker, self.settings, self.whole = worker, settings, whole
        self.states = States.of(part)
        self.rows = worker.support_loss.config.ppo_micro_batch_size_per_gpu
        self.temperature = float(worker.config.rollout.temperature)
        rows, self.places = self.states.positions()
        self.response = rows
        self.in_whole = whole[rows]
        self.advantages = part["advantages"].values().float()
        self.logp_mu = part["old_log_probs"].values().float()
        self.ids = part["responses"].values()
        self.support_ids, self.support_logp = part[SUPPORT_IDS].values(), part[SUPPORT_LOGP].values()
        self.keep = (self.advantages != 0) | self.in_whole
        with torch.no_grad():
            self.mu_logits = self._logits(rollout_forward(worker.rollout))
            self.pi_logits = self._logits(worker.actor.engine.logits)
            self.tokens = self._tokens()
            self.first = token_study.before(self.tokens, self.mu_logits, self.pi_logits, settings.ks)
            self.coefficient = self._coefficient()

    @torch.no_grad()
    def finish(self) -> dict[str, Any]:
        """All columns of the kept tokens, as numpy arrays, lists for the support."""
        moved = self._logits(self.worker.actor.engine.logits)
        second = token_study.after(self.tokens, self.mu_logits, self.pi_logits, moved)
        names = [token_schema.divergence(m, "reduced", "before") for m in token_schema.MEASURES]
        largest = torch.stack([self.first[name] for name in names]).amax(0)
        advantages, whole = self.advantages[self.keep], self.in_whole[self.keep]
        chosen = whole | ((advantages != 0) & (largest > self.settings.floor))
        g = self.coefficient[self.keep]
        rows = self.response[self.keep]
        columns: dict[str, Tensor] = {
            **self.first,
            **second,
            "response": rows,
            "position": self.places[self.keep],
            "token": self.ids[self.keep],
            "length": self.states.lengths[rows],
            "sampled_row": whole,
            "advantage": advantages,
            "logp_mu": self.logp_mu[self.keep],
            "coefficient": g,
            "keep": (g != 0) & (advantages != 0),
        }
        out: dict[str, Any] = {name: value[chosen].numpy() for name, value in columns.items()}
        return out | self._supports(chosen, whole)

    def _logits(self, forward: Any) -> Tensor:
        return self.states.logits(forward, self.rows, self.keep) / self.temperature

    def _tokens(self) -> token_study.Tokens:
        ids = torch.where(self.support_logp == -torch.inf, FILLER_ID, self.support_ids)[self.keep]
        return token_study.Tokens(
            sampled=self.ids[self.keep],
            advantages=self.advantages[self.keep],
            support_ids=ids,
            support_logp=self.support_logp[self.keep],
            support_valid=distinct(ids),
            vocab_size=self.worker.support_loss.vocab_size,
            ratio_cap=self.settings.ratio_cap,
        )

    def _coefficient(self) -> Tensor:
        """[N] g of the running method on this mini-batch before the step (0 where the token is not kept)."""
        policy_loss = self.worker.support_loss.config.policy_loss
        method = method_of(policy_loss.loss_mode)
        options = method.configure(getattr(policy_loss, "options", None))

        def spread(values: Tensor) -> Tensor:
            full = values.new_zeros(len(self.keep), *values.shape[1:])
            full[self.keep] = values
            return self.states.to_padded(full)

        at_ids = self.pi_logits.log_softmax(-1).gather(-1, self.tokens.support_ids.clamp(min=0))
        # Rows without a token of a nonzero advantage outside the share are not looked at: their g is 0 in any method.
        signals = Signals(
            logp_pi=spread(self.first["logp_pi"]),
            logp_mu=spread(self.logp_mu[self.keep]),
            advantages=spread(self.tokens.advantages),
            response_mask=spread(torch.ones(int(self.keep.sum()), dtype=torch.bool)),
            support=Support(
                spread(self.tokens.support_ids),
                spread(self.tokens.support_logp),
                spread(at_ids),
                spread(self.tokens.support_valid),
            ),
            sum_pi_squared=spread(self.first["sum_pi_squared"]),
            entropy=spread(self.first["entropy"]),
            vocab_size=self.tokens.vocab_size,
            sampled=spread(self.tokens.sampled),
        )
        return method.coefficient(sanitise(signals), options)[self.states.mask()]

    def _supports(self, chosen: Tensor, whole: Tensor) -> dict[str, list[Any]]:
        """Support rows of the responses kept whole; None for the others."""
        at_ids = self.pi_logits.log_softmax(-1).gather(-1, self.tokens.support_ids.clamp(min=0))
        stored: dict[str, list[Any]] = {name: [] for name in token_schema.SUPPORT}
        values = (self.tokens.support_ids, self.tokens.support_logp, at_ids)
        for i in chosen.nonzero().squeeze(-1).tolist():
            for name, value in zip(token_schema.SUPPORT, values, strict=True):
                stored[name].append(value[i].tolist() if whole[i] else None)
        return stored


def write(path: Path, table: pa.Table) -> None:
    """Atomically: a reader finds a whole file or none."""
    with replace_whole(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def keep_until(folder: Path, step: int) -> None:
    """Drop what an interrupted run recorded after the step it resumes from."""
    for path in folder.glob("step_*.parquet*"):
        if path.suffix == ".tmp" or int(path.stem.removeprefix("step_")) > step:
            path.unlink()


def join_steps(folder: Path, target: Path) -> None:
    """One file of all steps, a row group each, in their order."""
    paths = sorted(folder.glob("step_*.parquet"))
    schema = pq.read_schema(paths[0])
    with replace_whole(target) as whole, pq.ParquetWriter(whole, schema, compression="zstd") as writer:
        for path in paths:
            writer.write_table(pq.read_table(path))


def _arrow(kind: str) -> pa.DataType:
    if kind.startswith("list<"):
        return pa.list_(_arrow(kind.removeprefix("list<").removesuffix(">")))
    return {"int16": pa.int16(), "int32": pa.int32(), "float32": pa.float32(), "bool": pa.bool_()}[kind]
