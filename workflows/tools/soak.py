"""Kill a training at random moments, again and again, until it ends; then it must equal one that was left alone."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from workflows.tools.soak_training import LAUNCHER, SAVE_EVERY, Kill, Training, prepare

VICTIMS = {
    "inprocess": (LAUNCHER,),
    "ray": (LAUNCHER, "raylet", "gcs_server", "ray::WorkerDict", "ray::TaskRunner", "ray::TransferQueueController"),
    "server": (LAUNCHER, "ray::HFServer", "ray::AgentLoopWorker", "ray::WorkerDict"),
}


def plan(kills: int, seed: int, runner: str) -> list[Kill]:
    """A quarter of the kills falls into start-ups, a third into saves, the others among steps, the last at the end."""
    random = np.random.default_rng(seed)
    longest = {"start-up": 10.0 if runner == "inprocess" else 30.0, "step": 0.5, "save": 0.02, "end": 0.03}
    out = []
    for i in range(kills):
        moment = "end" if i == kills - 1 else str(random.choice(["start-up", "step", "save"], p=[0.25, 0.42, 0.33]))
        # Before the launcher has started Ray there is nobody else to kill.
        victim = LAUNCHER if moment == "start-up" else VICTIMS[runner][i % len(VICTIMS[runner])]
        out.append(Kill(moment, victim, int(random.integers(1, 4)), float(random.uniform(0.0, longest[moment]))))
    return out


def soak(kills: int, seed: int, runner: str = "inprocess") -> int:
    """Print each kill; 0 when all were survived, none cost more than `save_every` steps, and the end is the same."""
    # Long enough that the kills, each worth a step or two of progress, end before the training does.
    steps = 5 * kills
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        prepare(root)
        whole, killed = (Training(root, name, steps, runner) for name in ("whole", "killed"))
        try:
            whole.run()
            done, worst = _kill_again_and_again(killed, plan(kills, seed, runner))
            equal = killed.contents() == whole.contents()
            left = _left(killed) + _left(whole)
        finally:
            for process in killed.living_processes() + whole.living_processes():
                process.kill()
    print(
        f"[soak] {runner}: {done} of {kills} kills, {steps} steps, at most {worst} lost (restart points every "
        f"{SAVE_EVERY}), {len(left)} processes left: {'equal to the uninterrupted run' if equal else 'DIFFERENT'}"
    )
    return 0 if equal and done == kills and worst <= SAVE_EVERY and not left else 1


def _kill_again_and_again(training: Training, waiting: list[Kill]) -> tuple[int, int]:
    """(kills that hit, most steps lost by one of them); returns when the training has ended."""
    print("[soak]  kill  moment    victim                        at step  saving  goes on after  lost", flush=True)
    done, worst, line, step = 0, 0, "", 0
    while True:
        kill = waiting.pop(0) if waiting else None
        hit = training.run(kill)
        after = training.resumed_from()
        if line and after is None:
            print(f"{line}   killed before", flush=True)
        elif line and after is not None:
            # Negative where a trainer on Ray went on for a moment after its launcher had been killed.
            worst = max(worst, step - after)
            print(f"{line}{after:>15}{step - after:>6}", flush=True)
        if not hit or kill is None:
            return done, worst
        done, step = done + 1, max(0, training.rows() - 1)
        line = (
            f"[soak]{done:>6}  {kill.moment:<8}  {kill.victim:<28}{step:>9}{'yes' if training.is_saving() else 'no':>8}"
        )
        if training.output.exists():
            print(f"{line}   published already", flush=True)
            return done, worst


def _left(training: Training, patience: float = 60.0) -> list[psutil.Process]:
    deadline = time.monotonic() + patience
    while (left := training.living_processes()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left
