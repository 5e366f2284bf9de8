"""A limit of CPU seconds on algebra: SymPy may take minutes over an expression of a line.

What is tried within the limit has a plainer form to fall back on, so that a report always comes. CPU time, so that a
busy machine changes nothing; no limit where the system has no such timer, or outside the main thread.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
SECONDS = 10.0
AGAIN = 0.2  # the alarm rings again, should SymPy have swallowed the first


class OutOfTimeError(BaseException):
    """No Exception, which SymPy catches in places."""


class Budget:
    """Seconds shared by everything tried; `missed` names what did not come in time."""

    def __init__(self, seconds: float | None = None) -> None:
        self.left, self.missed = SECONDS if seconds is None else seconds, []  # type: tuple[float, list[str]]
        self._inside = False

    def tried(self, name: str, make: Callable[[], Result], otherwise: Result) -> Result:
        """make(), or `otherwise` if it takes more than half of what is left or nests too deep for Python."""
        if self._inside:
            return make()
        if not hasattr(signal, "SIGVTALRM") or threading.current_thread() is not threading.main_thread():
            return make()
        start = time.process_time()
        before = signal.signal(signal.SIGVTALRM, _ring)
        self._inside = True
        try:
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, max(self.left / 2, 0.01), AGAIN)
                return make()
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except (OutOfTimeError, RecursionError):
            self.missed.append(name)
            return otherwise
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)  # an alarm may have rung within the line above
            signal.signal(signal.SIGVTALRM, before)
            self._inside = False
            self.left -= time.process_time() - start


def _ring(*_: object) -> None:
    raise OutOfTimeError
