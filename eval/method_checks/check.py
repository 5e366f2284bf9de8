"""Does a method keep its contract? `python -m methods check NAME` answers in a second, before any job.

Every check returns what it found wrong, as text of one line that does not name the method; `check` puts them together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from eval.method_checks import synthetic
from eval.method_pages.facts import option_meanings
from methods import registry
from methods.aggregation import aggregate, token_losses
from methods.config import MethodConfig, MethodConfigError
from methods.contract import MethodError
from methods.registry import Method, Needs
from methods.signals import Signals, sanitise

# Of float32 results against float64 ones on the same inputs: a few dozen operations, exp of a log-ratio among them.
TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}
# Of the same numbers in another place, where sums may run in another order.
SAME = {"rtol": 1e-9, "atol": 1e-12}
# (seed, scale of the noise) of batches in which a dependence between responses is looked for: a mask shows it rarely.
BATCHES = tuple((seed, scale) for scale in (1.0, 0.3, 0.1) for seed in range(8))
# Values that no option can mean.
NONSENSE: tuple[Any, ...] = (math.nan, "nonsense", object())
# Values that some options accept.
SIMPLE: tuple[Any, ...] = (None, True, -1.0, 0.0, 0.5, 2.0, 1e9, (0.1, 0.2))


def check(name: str, values: Mapping[str, Any] | None = None) -> list[str]:
    """What is wrong with a method under these values of its options, one line each; none where it keeps its contract.

    Shape, dtype, finiteness at extreme ratios, needs declared and used, padding, mask, split into micro-batches, dtype,
    gradient, repeatability, and that its options are described and refuse nonsense. Whether its formula is right is
    not covered.
    Raises UnknownMethodError, MethodConfigError.
    """
    method = registry.get(name)
    config = method.configure(values)
    found = [*descriptions(method), *options(method, config)]
    wrong = run(method, config)
    if wrong is not None:
        # The other checks would say the same in other words.
        return [*found, wrong]
    for examine in _CHECKS:
        try:
            found += examine(method, config)
        except MethodError as error:
            found.append(f"{examine.__name__.replace('_', ' ')}: {error}")
        except Exception as error:  # a user's code may raise anything
            found.append(f"{examine.__name__.replace('_', ' ')}: raised {type(error).__name__}: {_first_line(error)}")
    return [text.replace(f"method {name} ", "", 1) for text in found]


def run(method: Method, config: MethodConfig) -> str | None:
    """Why the method cannot run with what it asks for on a small batch; None where it can."""
    try:
        method.coefficient(sanitise(synthetic.batch()), config)
    except MethodError as error:
        return str(error).removeprefix(f"method {method.name} ")
    except Exception as error:  # a user's code may raise anything
        return f"raised {type(error).__name__} with what it asks for: {_first_line(error)}"
    return None


def descriptions(method: Method) -> Iterator[str]:
    """Each option says what it means: a string literal below its field."""
    meanings = option_meanings(method.config_type)
    for field in fields(method.config_type):
        if field.name not in meanings:
            yield f"option {field.name} is not described: write a string literal below the field"


def options(method: Method, config: MethodConfig) -> Iterator[str]:
    """Each option refuses what it cannot mean, and what it accepts the method can run with."""
    for field in fields(config):
        for value in (*NONSENSE, *SIMPLE):
            shown = f"option {field.name} = {'object()' if type(value) is object else repr(value)}"
            try:
                other = replace(config, **{field.name: value})
            except MethodConfigError:
                continue
            except Exception as error:  # a user's code may raise anything
                yield f"{shown}: raised {type(error).__name__}, expected MethodConfigError (methods.config.check_*)"
                break
            if value in NONSENSE:
                yield f"{shown} is accepted: refuse it in __post_init__ (methods.config.check_*)"
                break
            wrong = run(method, other)
            if wrong is not None:
                yield f"{shown} is accepted, and the method {wrong}"
                break


def extreme_ratios(method: Method, config: MethodConfig) -> Iterator[str]:
    """Finite for log-probs from 0 to -1e4 and impossible tokens, in both precisions."""
    for dtype in (torch.float32, torch.float64):
        signals = sanitise(synthetic.extremes(dtype))
        # A row at a time where a mini-batch is ranked: its statistics would hide one row behind another.
        parts = [signals] if Needs.MINI_BATCH not in method.requires(config) else _each_row(signals)
        for part in parts:
            method.coefficient(part, config)
    yield from ()


def declared_needs(method: Method, config: MethodConfig) -> Iterator[str]:
    """Nothing is asked for in vain: without a need that it declares the method cannot run."""
    declared = method.requires(config)
    for need in declared & ~Needs.MINI_BATCH:
        fewer = declared & ~need
        try:
            replace(method, needs=fewer).coefficient(sanitise(synthetic.batch()), config)
        except MethodError:
            continue
        yield f"declares Needs.{need.name} and does not read what it brings: every run would pay for it"
    if Needs.MINI_BATCH in declared and all(_differences(method, config, 1, *drawn) is None for drawn in BATCHES):
        yield "declares Needs.MINI_BATCH and no response depends on the others: micro-batches would be refused in vain"


def padding(method: Method, config: MethodConfig) -> Iterator[str]:
    """Columns and rows of garbage outside the response mask change nothing inside it."""
    signals = synthetic.batch()
    mask, g = signals.response_mask, _g(method, config, signals)
    for what, columns, empty in (("columns on the right", 3, 0), ("empty rows", 0, 2)):
        wide = _g(method, config, synthetic.padded(signals, columns, empty))[: mask.shape[0], : mask.shape[1]]
        if not torch.allclose(wide[mask], g[mask], **SAME):
            yield f"depends on padding: {columns or empty} more {what} change g{_largest(wide, g, mask)}"


def response_mask(method: Method, config: MethodConfig) -> Iterator[str]:
    """What stands outside the response mask is not read."""
    signals = synthetic.batch()
    mask, g = signals.response_mask, _g(method, config, signals)
    for garbage in (math.nan, math.inf, -1e30):
        dirty = _g(method, config, synthetic.spoilt(signals, garbage))
        if not torch.equal(dirty[mask], g[mask]):
            yield f"reads outside the response mask: {garbage} there changes g{_largest(dirty, g, mask)}"
            return


def micro_batches(method: Method, config: MethodConfig) -> Iterator[str]:
    """A response's g does not depend on the responses beside it, unless the method says that it does."""
    if Needs.MINI_BATCH in method.requires(config):
        return
    for size in (1, 4):
        difference = _differences(method, config, size)
        if difference is not None:
            yield (
                f"depends on the split into micro-batches: {size} response{'s' * (size > 1)} at a time change "
                f"g{difference}; a method that compares responses declares Needs.MINI_BATCH"
            )
            return


def dtypes(method: Method, config: MethodConfig) -> Iterator[str]:
    """Inputs of float32 and bfloat16 give what the same rounded numbers give in float64."""
    for dtype in (torch.float32, torch.bfloat16):
        low = synthetic.cast(synthetic.batch(), dtype)
        mask = low.response_mask
        g, exact = _g(method, config, low), _g(method, config, synthetic.cast(low, torch.float64))
        if not torch.allclose(g[mask].double(), exact[mask].double(), **TOLERANCE):
            yield f"depends on the dtype: {dtype} against float64 on the same numbers{_largest(g, exact, mask)}"


def repeatability(method: Method, config: MethodConfig) -> Iterator[str]:
    """The same signals give the same g, and are left as they are."""
    signals = sanitise(synthetic.batch())
    kept = sanitise(synthetic.batch())
    first = method.coefficient(signals, config).clone()
    for field in fields(signals):
        before, after = getattr(kept, field.name), getattr(signals, field.name)
        if isinstance(before, Tensor) and not torch.equal(before, after):
            yield f"changes signals.{field.name} in place: what comes after it, such as metrics, would see that"
            return
    if not torch.equal(first, method.coefficient(signals, config)):
        yield "gives another g for the same signals: random numbers come with Needs.RANDOM, as signals.uniforms"


def gradient(method: Method, config: MethodConfig) -> Iterator[str]:
    """The gradient of the loss is -g, token by token: nothing else depends on the weights."""
    signals = synthetic.batch()
    logp_pi = signals.logp_pi.clone().requires_grad_()
    g = _g(method, config, replace(signals, logp_pi=logp_pi))
    mask = signals.response_mask
    aggregate(token_losses(torch.where(mask, g, 0.0), logp_pi), mask, "token-sum").backward()
    expected = torch.where(mask, -g, 0.0)
    if logp_pi.grad is None or not torch.allclose(logp_pi.grad, expected.to(logp_pi.dtype), **SAME):
        yield "the gradient of the loss is not the coefficient times grad log pi"


_CHECKS: tuple[Callable[[Method, MethodConfig], Iterator[str]], ...] = (
    extreme_ratios,
    declared_needs,
    padding,
    response_mask,
    micro_batches,
    dtypes,
    repeatability,
    gradient,
)


def _g(method: Method, config: MethodConfig, signals: Signals) -> Tensor:
    return method.coefficient(sanitise(signals), config)


def _each_row(signals: Signals) -> list[Signals]:
    return [synthetic.rows(signals, slice(i, i + 1)) for i in range(len(signals.logp_pi))]


def _differences(method: Method, config: MethodConfig, size: int, seed: int = 0, scale: float = 1.0) -> str | None:
    """Where g of `size` responses at a time differs from that of all at once; None where it does not."""
    signals = synthetic.batch(seed, scale)
    mask, whole = signals.response_mask, _g(method, config, signals)
    starts = range(0, len(mask), size)
    pieces = torch.cat([_g(method, config, synthetic.rows(signals, slice(i, i + size))) for i in starts])
    return None if torch.allclose(pieces[mask], whole[mask], **SAME) else _largest(pieces, whole, mask)


def _largest(got: Tensor, want: Tensor, mask: Tensor) -> str:
    """` at [i, t] from a to b` for the largest difference inside the mask."""
    gap = torch.where(mask, (got.double() - want.double()).abs(), 0.0)
    i, t = divmod(int(gap.argmax()), gap.shape[-1])
    return f" at [{i}, {t}] from {want[i, t].item():.6g} to {got[i, t].item():.6g}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
