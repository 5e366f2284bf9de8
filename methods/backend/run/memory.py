"""Out of memory, said as such: Python, torch, Ray's memory monitor and the kernel each put it in their own words."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

# MB that a training of toy size takes, by runner; the workflow's rule states the same.
NEEDED_MB = {"inprocess": 3000, "ray": 7000}
TORCH = ("can't allocate memory", "out of memory", "Cannot allocate memory")
KILL = re.compile(r"Memory on the node .*? was (?P<used>\S+) used / (?P<limit>\S+) limit")
VICTIM = re.compile(r"task name=(\w+)")
USERS = re.compile(r"^\d+\t([\d.]+)\t(.+)$", re.M)


class OutOfMemoryError(RuntimeError):
    """Memory was used up; the message says by what, what a run needs, and what helps."""


@contextmanager
def shortage_told(runner: str) -> Iterator[None]:
    """Raise OutOfMemoryError in place of whatever the block raises for want of memory in this process."""
    try:
        yield
    except OutOfMemoryError:
        raise
    except (MemoryError, RuntimeError, OSError) as error:
        if not _is_shortage(error):
            raise
        free, total = (f"{size / 1e9:.1f} GB" for size in _free_and_total())
        reason = str(error).strip().rpartition("\n")[2][:200]  # of a remote error the last line
        raise OutOfMemoryError(
            f"out of memory ({type(error).__name__}{': ' + reason if reason else ''}); {free} of {total} are free; "
            f"{advice(runner)}"
        ) from error


def advice(runner: str) -> str:
    """What a run of toy size needs, and what to change where there is less."""
    return (
        f"a run of toy size needs {NEEDED_MB[runner] / 1000:.0f} GB: run fewer at once (CORES, MEMORY of make), or "
        "lower setting.micro_batch, setting.prompts, setting.staleness or setting.top_k"
    )


def ray_kill(text: str, runner: str) -> str | None:
    """One line for what Ray's memory monitor wrote (an error or raylet.out) of the last process it killed, or None."""
    killed = list(KILL.finditer(text))
    if not killed:
        return None
    rest = text[killed[-1].start() :]
    victim, users = VICTIM.search(rest), USERS.findall(rest)
    largest = f" (largest: {users[0][1].strip()[:80]}, {users[0][0]} GB)" if users else ""
    return (
        f"out of memory: Ray ended {victim[1] if victim else 'a process'} because {killed[-1]['used']} of "
        f"{killed[-1]['limit']} were used on this machine{largest}; {advice(runner)}"
    )


def kernel_kills() -> int:
    """Processes that the kernel has ended for want of memory since the machine started; 0 where it does not count."""
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.M)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _is_shortage(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or any(words in str(error) for words in TORCH)


def _free_and_total() -> tuple[int, int]:
    memory = psutil.virtual_memory()
    return memory.available, memory.total
