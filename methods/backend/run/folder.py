"""The folders of a training: where it works, and how its results appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from safetensors import safe_open

from methods.backend.dropout import is_noise
from methods.backend.precisions import TRAIN_PRECISIONS
from methods.backend.recipe import verl_overrides
from methods.backend.run import dependencies, kept, versions
from methods.backend.run.log import DivergedError
from methods.backend.run.restart import crc_of
from methods.backend.run_config import RunConfig
from methods.files import write_text

PLACES = ("trainer.default_local_dir=", "+trainer.tether_work_dir=")
RECORD = "run.json"
TOKENS = "tokens"
# A disk is full too where a quota (EDQUOT) or a limit on the size of files (EFBIG) is reached.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LEAST_FREE_BYTES = 1 << 20
WAIT_SECONDS = 0.5


def write_json(path: Path, value: Any) -> None:
    """Atomically, with sorted keys."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def settings_of(run: RunConfig) -> dict[str, Any]:
    """What decides a run's results: the run without the places of its files."""
    return {name: value for name, value in run.dump().items() if name not in ("output", "work")}


def fingerprint(run: RunConfig) -> dict[str, Any]:
    """Settings, and checksums of everything else that decides a run: model, data, reward, our program, versions."""
    program = {str(path.relative_to(dependencies.ROOT)): path for path in dependencies.training_program(run)}
    return {
        "settings": json.loads(json.dumps(settings_of(run))),
        "inputs": {str(path): crc_of(path) for path in dependencies.files_read(run)},
        "program": {name: crc_of(path) for name, path in program.items()},
        "versions": versions.installed(),
    }


def settings_in(work: Path) -> dict[str, Any]:
    """The settings that a work directory was set up for."""
    return json.loads((work / RECORD).read_text())["settings"]


@contextmanager
def hold_work(run: RunConfig) -> Iterator[None]:
    """Hold the work directory; waits where another process trains the same run, and says which one.

    It may be one that a killed workflow has left; where it ends well its result is there to be taken up.
    """
    work = run.work_dir
    work.parent.mkdir(parents=True, exist_ok=True)
    lock = work.with_name(work.name + ".lock")
    with _held(lock, work) as file:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _held(lock: Path, work: Path) -> TextIO:
    told = False
    while True:
        file = lock.open("a+")
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The one before may have removed the file that was locked here.
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(file.fileno()).st_ino == lock.stat().st_ino:
                    return file
            file.close()
            continue
        file.seek(0)
        if not told:
            print(f"[train] process {file.read()} trains this run already (work = {work}): waiting for it", flush=True)
            told = True
        file.close()
        time.sleep(WAIT_SECONDS)


class DiskFullError(RuntimeError):
    """The work directory's file system takes no more; the message says what is kept and what to do."""


@contextmanager
def name_full_disk(run: RunConfig) -> Iterator[None]:
    """Raise DiskFullError in place of what a full disk makes of a write: torch and Ray each say it in their way."""
    try:
        yield
    except Exception as error:
        told = isinstance(error, OSError) and error.errno in NO_SPACE
        if not told and shutil.disk_usage(run.work_dir).free >= LEAST_FREE_BYTES:
            raise
        raise DiskFullError(
            f"{run.work_dir}: No space left on device ({type(error).__name__}: {error}); make room and run the same "
            "command again: it goes on from its last restart point"
        ) from error


def prepare_work(run: RunConfig) -> None:
    """Set up the work directory. What was done for other settings, inputs or program is never gone on from.

    An interrupted run's is moved aside, a finished one's removed; but for `kept.FREE` and for more steps.
    """
    work = run.work_dir
    record, now = work / RECORD, fingerprint(run)
    if record.exists():
        before = json.loads(record.read_text())
        steps = before.pop("lengthened", before["settings"]["setting"]["steps"])
        changed = kept.changes(before, now) - kept.FREE
        if steps != run.setting.steps and changed <= {kept.STEPS}:
            # Two writes: a kill between them leaves it to the next start to finish.
            write_json(record, {**now, "lengthened": steps})
            changed = set() if kept.lengthen(run, steps) else {kept.STEPS}
        if changed:
            _set_aside(work, changed)
    work.mkdir(parents=True, exist_ok=True)
    write_json(record, now)


def _set_aside(work: Path, changed: set[str]) -> None:
    if (work / kept.SEAL).exists():
        shutil.rmtree(work)
        return
    aside = work.with_name(work.name + ".superseded")
    shutil.rmtree(aside, ignore_errors=True)
    work.rename(aside)
    print(
        f"[train] {', '.join(sorted(changed))} changed since the interrupted run; its files are in {aside}", flush=True
    )


def finished(run: RunConfig) -> dict[str, Any] | None:
    """The worker's report where this run's finished result is kept whole; one that is not is removed, and None."""
    work = run.work_dir
    report = kept.report_of(work)
    if report is None and (work / kept.SEAL).exists():
        shutil.rmtree(work)
        prepare_work(run)
    return report


def export(run: RunConfig, checkpoint: Path, step: int) -> None:
    """Keep the Hugging Face part of a checkpoint that is to be scored."""
    if step != run.setting.steps and not (run.setting.export_every and step % run.setting.export_every == 0):
        return
    target = run.work_dir / "checkpoints" / f"step_{step}"
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(checkpoint / "actor" / "huggingface", partial, copy_function=_link)
    _refuse_not_finite(partial, step)
    # verl writes float32 tensors beside a config that says bfloat16; readers would round the weights.
    config = json.loads((partial / "config.json").read_text())
    config.pop("torch_dtype", None)
    # What the trainer turned off is the user's own setting.
    given = json.loads((Path(run.model) / "config.json").read_text())
    config |= {name: value for name, value in given.items() if name in config and is_noise(name, value)}
    write_json(partial / "config.json", {**config, "dtype": "float32"})
    precision = asdict(TRAIN_PRECISIONS[run.setting.train_precision])
    write_json(partial / "tether.json", {"step": step, "train_precision": precision, "method": run.method})
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def _refuse_not_finite(checkpoint: Path, step: int) -> None:
    """Raise DivergedError where a weight is NaN or infinite; no metric may have shown it yet."""
    for path in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  # it is no dictionary
                if not tensors.get_tensor(name).isfinite().all():
                    raise DivergedError(f"weight {name} is not finite after step {step}: the training has diverged")


def keep(run: RunConfig, report: dict[str, Any]) -> None:
    """Seal a finished run's results in the work directory. Raises RuntimeError where a step's row is missing."""
    work = run.work_dir
    steps = [json.loads(line)["step"] for line in (work / "metrics.jsonl").read_text().splitlines()]
    if steps != list(range(run.setting.steps + 1)):
        raise RuntimeError(f"{work / 'metrics.jsonl'} holds the steps {steps}: not one row for each of 0 to the last")
    if (work / TOKENS).exists():
        from methods.backend.tokens import recorder

        recorder.join_steps(work / TOKENS, work / f"{TOKENS}.parquet")
    kept.seal(work, report)


def publish(run: RunConfig, report: dict[str, Any]) -> None:
    """Put a finished run in the place of `output` by one rename; a kill before it leaves the work directory whole."""
    work, output, staged = run.work_dir, Path(run.output), run.work_dir / "published"
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir()
    for path in (work / name for name in kept.RESULTS):
        if path.is_dir():
            shutil.copytree(path, staged / path.name, copy_function=_link)
        elif path.exists():
            _link(str(path), str(staged / path.name))
    manifest = {
        "run": settings_of(run),
        "setting": run.dump()["setting"],
        "worker": report,
        # Without the place of the work directory, which is no setting and differs between machines.
        "verl_overrides": [line for line in verl_overrides(run) if not line.startswith(PLACES)],
        "versions": versions.installed(),
    }
    write_json(staged / "manifest.json", manifest)
    output.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(output, ignore_errors=True)
    staged.rename(output)
    kept.tidy(run)


def _link(source: str, target: str) -> None:
    """A hard link takes no space; where the file system has none, a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
