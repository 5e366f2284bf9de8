"""Notice when a process of a run's Ray dies, and end the run in bounded time where Ray itself would wait.

Ray 2.60 and verl 0.9.1 answer the death of a raylet, a worker or a rollout server with an error; of the control server
(GCS) after a minute, of the transfer queue or an agent loop never: the trainer goes on polling.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator

import psutil

PERIOD_SECONDS = 1.0
# What Ray's own error, which says more, has to arrive after a process died; and ending processes to be gone.
PATIENCE_SECONDS = 10.0
SERVICES = ("raylet", "gcs_server")
# verl closes these itself where a training ends, with an error or without (trainer/main_ppo.py:163).
CLOSED_BY_VERL = ("TransferQueueController", "SimpleStorageUnit")


class RayLostError(RuntimeError):
    """A process of the run's Ray has died; the message names it and says what to do."""


class Watch:
    """What `watch_processes` knows of a run's Ray.

    seen: all processes. titles: what the living are called, "" where neither actor nor service. lost: actors and
    services that died. gave_up: Ray said nothing of it in time. broken: the run ended for that reason.
    """

    def __init__(self, tree: Callable[[], set[psutil.Process]], interrupt: Callable[[], None]) -> None:
        self.seen: set[psutil.Process] = set()
        self.titles: dict[psutil.Process, str] = {}
        self.lost: list[str] = []
        self.gave_up = self.broken = False
        self._tree, self._interrupt = tree, interrupt
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After this nobody is interrupted any more."""
        self._stop.set()
        self._thread.join()

    def look(self) -> list[str]:
        """Take stock of the processes; returns the actors and services that have died since the last look."""
        self.seen |= self._tree()
        died = []
        for process in list(self.seen):
            if runs(process):
                self.titles[process] = _title(process)
            elif title := self.titles.pop(process, ""):
                died.append(f"{title} (pid {process.pid})")
        self.lost += died
        return died

    def _watch(self) -> None:
        while not self._stop.wait(PERIOD_SECONDS):
            if self.look():
                if not self._stop.wait(PATIENCE_SECONDS):
                    self.gave_up = True
                    self._interrupt()
                return


def _title(process: psutil.Process) -> str:
    """`raylet`, `gcs_server`, the class of an actor, or nothing."""
    with contextlib.suppress(psutil.Error):
        if (name := process.name()) in SERVICES:
            return name
        # A process that does a task is called by its function, one without work IDLE; Ray ends both when it likes.
        found = re.match(r"ray::([A-Z]\w*)", " ".join(process.cmdline()))
        if found and found[1] != "IDLE":
            return found[1]
    return ""


@contextlib.contextmanager
def watch_processes(restart_advice: str) -> Iterator[Watch]:
    """Watch what this process starts. Raises RayLostError in place of whatever the block raises after a loss."""
    before, caller = processes(), threading.get_ident()
    # A signal wakes the caller wherever it waits; not SIGINT, which shells let background jobs ignore.
    watch = Watch(lambda: processes() - before, lambda: signal.pthread_kill(caller, signal.SIGUSR1))
    handler = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    watch.start()
    try:
        yield watch
    except BaseException as error:
        watch.stop()
        watch.look()
        lost = [name for name in watch.lost if watch.gave_up or not name.startswith(CLOSED_BY_VERL)]
        if not lost or not (watch.gave_up or isinstance(error, Exception)):
            raise
        watch.broken = True
        raise RayLostError(f"{', '.join(lost)} of this run's Ray died; {restart_advice}") from error
    finally:
        watch.stop()
        signal.signal(signal.SIGUSR1, handler)
        watch.seen |= processes() - before


def processes() -> set[psutil.Process]:
    """This process's children and theirs."""
    return set(psutil.Process().children(recursive=True))


def runs(process: psutil.Process) -> bool:
    """Whether it is alive; a zombie is not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(started: set[psutil.Process], patience: float = PATIENCE_SECONDS) -> None:
    """Wait for processes that have lost their raylet, and kill those that stay."""
    deadline = time.monotonic() + patience
    while alive := [process for process in started if runs(process)]:
        if time.monotonic() > deadline:
            for process in alive:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(alive, timeout=PATIENCE_SECONDS)
            return
        time.sleep(0.05)
