"""Interval arithmetic on tensors: numbers of which only a lower and an upper bound are known.

Every operation returns bounds that contain all results for numbers inside the operands' bounds. Bounds are float64, so
that its own rounding (1e-16) stays far below that of the inputs; callers add one margin for it at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Interval:
    """lower <= number <= upper, two tensors of one shape."""

    lower: Tensor
    upper: Tensor

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.lower + other.lower, self.upper + other.upper)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.lower - other.upper, self.upper - other.lower)

    def __mul__(self, other: Interval) -> Interval:
        corners = torch.stack([a * b for a in (self.lower, self.upper) for b in (other.lower, other.upper)])
        return Interval(corners.amin(0), corners.amax(0))

    def widened(self, margin: float) -> Interval:
        return Interval(self.lower - margin, self.upper + margin)

    def scaled(self, factor: float) -> Interval:
        """Times a positive number."""
        return Interval(self.lower * factor, self.upper * factor)

    def sqrt(self) -> Interval:
        """Of non-negative numbers."""
        return Interval(self.lower.sqrt(), self.upper.sqrt())

    def square(self) -> Interval:
        """Of non-negative numbers."""
        return Interval(self.lower.square(), self.upper.square())

    def sign(self) -> Interval:
        return Interval(torch.sign(self.lower), torch.sign(self.upper))

    def sum(self) -> Interval:
        """Over the last axis."""
        return Interval(self.lower.sum(-1), self.upper.sum(-1))

    def clamped(self, low: float, high: float) -> Interval:
        """Of numbers known to lie in [low, high] anyway."""
        return Interval(self.lower.clamp(low, high), self.upper.clamp(low, high))

    def intersected(self, other: Interval) -> Interval:
        """Where two bounds hold for one number."""
        return Interval(torch.maximum(self.lower, other.lower), torch.minimum(self.upper, other.upper))

    def at(self, places: Tensor) -> Interval:
        """The number at an index of the last axis: places [...] int, result [...]."""
        index = places.unsqueeze(-1)
        return Interval(self.lower.gather(-1, index).squeeze(-1), self.upper.gather(-1, index).squeeze(-1))

    def decided(self) -> Tensor:
        """+1 where all numbers are positive, -1 where all are negative, else 0 (also where the bounds contradict)."""
        certain = (self.lower <= self.upper).to(self.lower.dtype)
        return certain * ((self.lower > 0).to(certain) - (self.upper < 0).to(certain))
