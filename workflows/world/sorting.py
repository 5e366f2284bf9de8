"""The sorting task: given n distinct numbers below a limit, write them in rising order.

One token per number, so that a small model has a large vocabulary with a real tail (205 ids for numbers below 200).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PAD, BOS, EOS, SEP, OPERATOR = "<pad>", "<bos>", "<eos>", "<sep>", "<op>"
SPECIALS = (PAD, BOS, EOS, SEP, OPERATOR)
DATA_SOURCE = "tether/sort"


class WorldError(ValueError):
    """A setting of the world is outside its range; the message names field, value and what is allowed."""


@dataclass(frozen=True)
class SortingWorld:
    """numbers: how many to sort; limit: they are below it; train_prompts, test_prompts: sizes of the two sets; seed."""

    numbers: int
    limit: int
    train_prompts: int
    test_prompts: int
    seed: int

    def __post_init__(self) -> None:
        for name in ("numbers", "limit", "train_prompts", "test_prompts"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise WorldError(f"world.{name} = {value!r}: allowed is an integer >= 1")
        if self.limit < 2 * self.numbers:
            raise WorldError(f"world.limit = {self.limit}: allowed is >= twice world.numbers = {2 * self.numbers}")

    @property
    def vocab_size(self) -> int:
        """Special tokens and numbers."""
        return len(SPECIALS) + self.limit

    @property
    def prompt_length(self) -> int:
        """<bos>, the numbers, <sep>."""
        return self.numbers + 2

    @property
    def response_length(self) -> int:
        """The numbers and <eos>."""
        return self.numbers + 1

    def draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        """[count, numbers] int64: distinct numbers per row, in random order."""
        return random.random((count, self.limit)).argpartition(self.numbers, axis=1)[:, : self.numbers]

    def problems(self) -> tuple[np.ndarray, np.ndarray]:
        """Train and test prompts; no two hold the same set of numbers. Raises WorldError if there are too few sets."""
        random = np.random.default_rng(self.seed)
        wanted, seen = self.train_prompts + self.test_prompts, set()
        rows: list[np.ndarray] = []
        for _ in range(100):
            for row in self.draw(wanted, random):
                key = tuple(sorted(row.tolist()))
                if key not in seen and len(rows) < wanted:
                    seen.add(key)
                    rows.append(random.permutation(row))
            if len(rows) == wanted:
                everything = np.stack(rows)
                return everything[: self.train_prompts], everything[self.train_prompts :]
        raise WorldError(
            f"world.train_prompts + world.test_prompts = {wanted}: allowed are at most the distinct sets of "
            f"{self.numbers} numbers below {self.limit}, of which {len(rows)} were found"
        )


def question(numbers: np.ndarray) -> str:
    """The prompt text."""
    return " ".join(str(int(x)) for x in numbers)


def answer(numbers: np.ndarray) -> str:
    """The only right response."""
    return " ".join(str(int(x)) for x in sorted(numbers))
