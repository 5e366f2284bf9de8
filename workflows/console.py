"""What a user sees of a run: a line per job that is worth one, a failed job's cause and log, where things stand.

It takes the place of Snakemake's own messages on the terminal; Snakemake's log file keeps all of them, and a dry run,
--verbose, --printshellcmds, --quiet all and a --logger of one's own are left as they are.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

LONGEST = 400
TAIL_BYTES = 100_000
OWN_ERROR = re.compile(r"(?:^|: )error: ")
EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt|Exit|Killed)(?::|$)")
STATUS = re.compile(r"returned non-zero exit status (\d+)|died with <Signals\.(\w+)")
PER_RUN = ("train", "score", "record")
# Of Snakemake's remarks without an event; whatever is not named here is shown.
NOISE = (
    "Using shell",
    "Conda environments: ignored",
    "Building DAG of jobs",
    "Select jobs to execute",
    "Execute ",
    "Complete log",
    "Removing output files",
    "Shutting down, this might take some time",
    "Exiting because a job execution failed",
    "Terminating processes",
    "Trying to restart",
)


def cause_in(log: Path) -> str | None:
    """Why a program failed, by its log: the last `error:` line, else its last exception, else its last line.

    None where there is nothing to read.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    # A progress bar overwrites its line.
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    for pattern in (OWN_ERROR, EXCEPTION):
        found = [line for line in lines if pattern.search(line)]
        if found:
            return _short(found[-1])
    return _short(lines[-1].strip()) if lines else None


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 4] + " ..."


def in_words(seconds: float) -> str:
    """A duration as people say it: 8 s, 4 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass
class Job:
    """A job that was started; `name` is what a reader knows it by, `heavy` whether it is worth a line at its end."""

    rule: str
    name: str
    heavy: bool
    start: float


@dataclass
class Board:
    """Where a run stands: its jobs by kind, what finished ones took, what failed."""

    clock: Callable[[], float] = time.monotonic
    planned: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    running: dict[int, Job] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    at_once: int = 1

    def start(self, jobid: int, rule: str, name: str, heavy: bool) -> Job:
        self.running[jobid] = job = Job(rule, name, heavy, self.clock())
        self.at_once = max(self.at_once, sum(job.heavy for job in self.running.values()))
        return job

    def finish(self, jobid: int) -> str | None:
        """The line about a finished job; None where it is a short one."""
        job = self.running.pop(jobid, None)
        if job is None:
            return None
        took = self.clock() - job.start
        self.done[job.rule] += 1
        self.spent[job.rule] += took
        if not job.heavy:
            return None
        done, of = self.done[job.rule], self.planned[job.rule]
        line = f"[{job.rule} {done}/{of}] {f'{job.name}: ' if job.name else ''}done in {in_words(took)}"
        left = self.left(job.rule)
        return line if left is None else f"{line}; about {in_words(left)} left for the other {of - done}"

    def left(self, rule: str) -> float | None:
        """Seconds until the last job of this kind ends, if they take as long as the finished; None after the last."""
        others = self.planned[rule] - self.done[rule]
        if others <= 0 or not self.done[rule]:
            return None
        each, now = self.spent[rule] / self.done[rule], self.clock()
        behind = sum(min(each, now - job.start) for job in self.running.values() if job.rule == rule)
        return max(each * others - behind, 0.0) / min(self.at_once, others)

    def fail(self, jobid: int, fallback_rule: str, cause: str, logs: list[str]) -> str:
        """The lines about a failed job, kept for the end."""
        job = self.running.pop(jobid, None)
        name = f"{job.rule} {job.name}".strip() if job else fallback_rule
        text = "\n".join([f"FAILED {name}", f"  {cause}", *(f"  log: {log}" for log in logs)])
        self.failed.append(text)
        return text

    def standing(self) -> str:
        """Jobs that are done, of how many, and those of each run by name."""
        kinds = [f"{rule} {self.done[rule]}/{self.planned[rule]}" for rule in PER_RUN if self.planned[rule]]
        text = f"{self.done.total()} of {self.planned.total()} jobs are done"
        return f"{text} ({', '.join(kinds)})" if kinds else text


class Console(logging.StreamHandler[TextIO]):
    """Snakemake's log records, put into lines for a reader. `tier` and `target` name the commands to run next."""

    def __init__(self, stream: TextIO, tier: str, target: str = "", board: Board | None = None) -> None:
        super().__init__(stream)
        self.tier, self.target, self.board = tier, target, board or Board()
        self.interrupted = False
        self.statuses: dict[str, str] = {}
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        for line in self.lines(record):
            self.stream.write(f"{line}\n")
        self.flush()

    def lines(self, record: logging.LogRecord) -> Iterator[str]:
        """The lines that a record is worth."""
        event = getattr(record, "event", None)
        given = vars(record)
        if event == "run_info":
            self.board.planned.update({rule: n for rule, n in given["stats"].items() if rule not in ("total", "all")})
            jobs = ", ".join(f"{rule} {n}" if n > 1 else rule for rule, n in self.board.planned.most_common())
            yield f"{self.board.planned.total()} jobs: {jobs}"
        elif event == "job_info" and given["rule_name"] != "all":
            yield from self._started(given)
        elif event == "job_finished":
            line = self.board.finish(given["job_id"])
            yield from [] if line is None else [line]
        elif event == "job_error":
            yield from self._job_failed(given)
        elif event == "error":
            yield from self._error(given["exception"], record.getMessage())
        elif event is None and record.getMessage() not in ("", "None"):
            message = record.getMessage()
            self.interrupted = self.interrupted or message.startswith("Terminating processes on user request")
            if not message.startswith(NOISE):
                yield message

    def _started(self, given: Mapping[str, Any]) -> Iterator[str]:
        name = _name(given["wildcards"])
        # What takes long enough to be measured has a benchmark file.
        job = self.board.start(given["jobid"], given["rule_name"], name, given["benchmark"] is not None)
        if given["rule_msg"]:
            yield f"[{job.rule}] {given['rule_msg']}"

    def _job_failed(self, given: Mapping[str, Any]) -> Iterator[str]:
        logs = [path for path in given["log"] if Path(path).is_file()]
        causes = [cause for cause in map(cause_in, map(Path, logs)) if cause]
        status = self.statuses.get(_words(given["shellcmd"] or ""), "")
        cause = causes[-1] if causes else f"error: {status or 'it ended without a word'}"
        if self.interrupted or cause.startswith("KeyboardInterrupt"):
            self.interrupted = True
            self.board.running.pop(given["jobid"], None)
            return
        if causes and "signal" in status:
            cause = f"{cause} ({status})"
        yield self.board.fail(given["jobid"], given["rule_name"], cause, logs)

    def _error(self, exception: str, message: str) -> Iterator[str]:
        target = f" TARGET={self.target}" if self.target else ""
        if exception == "LockException":
            yield (
                f"error: results/{self.tier} is locked: another Snakemake works on it, or one was killed. If one was "
                f"killed: make recover TIER={self.tier}{target} (without make: the same command with --unlock)"
            )
        elif exception == "IncompleteFilesException":
            yield (
                f"error: results/{self.tier} has files of a job that was killed: make recover TIER={self.tier}{target} "
                "(without make: the same command with --rerun-incomplete)"
            )
        elif "At least one job did not complete successfully" in message:
            yield from self._summary()
        elif found := STATUS.search(message):
            # The kilobyte that repeats a job's command: the line about the job says more.
            self.statuses[_command_in(message)] = _status(found)
        elif not (self.interrupted and exception == "KeyboardInterrupt"):
            yield message

    def _summary(self) -> Iterator[str]:
        standing, count = self.board.standing(), len(self.board.failed)
        if count or not self.interrupted:
            yield f"\n{count} {'job' if count == 1 else 'jobs'} failed:"
            yield from self.board.failed
        if self.interrupted:
            yield (
                f"stopped: {standing}. The same command goes on from there, and an interrupted training from its last "
                "restart point."
            )
        else:
            yield f"{standing}. When the cause is mended, run the same command again: what is done is not done again."


def _name(wildcards: Mapping[str, str]) -> str:
    """A run by its setting, method and seed; any other job by its wildcards."""
    values = dict(wildcards)
    if set(values) == {"setting", "method", "seed"}:
        return f"{values['setting']} {values['method']} seed {values['seed']}"
    return " ".join(map(str, values.values()))


def _words(text: str) -> str:
    return "".join(text.split())


def _command_in(message: str) -> str:
    """The shell command that an error message of Snakemake's quotes, without blanks; see `_job_failed`."""
    found = re.search(r"Command '(?:set -euo pipefail;)?(.*)' (?:returned non-zero|died with)", message, re.DOTALL)
    return _words(found[1]) if found else ""


def _status(found: re.Match[str]) -> str:
    signal = found[2] or {"137": "SIGKILL", "143": "SIGTERM", "139": "SIGSEGV"}.get(found[1])
    if signal == "SIGKILL":
        return "ended by signal SIGKILL; without anyone's doing that is too little memory"
    return f"ended by signal {signal}" if signal else f"ended with exit status {found[1]}"


def install(logger: logging.Logger, settings: Any, tier: str) -> None:
    """Put the console in the place of Snakemake's handler of the terminal, where nothing else was asked for."""
    standard = [handler for handler in logger.handlers if handler.name == "DefaultStreamHandler"]
    wanted = not (
        settings.dryrun or settings.verbose or settings.printshellcmds or "all" in map(str, settings.quiet or ())
    )
    if not standard or not wanted:
        return
    logger.removeHandler(standard[0])
    # The targets are not known yet to the workflow that calls this.
    logger.addHandler(Console(sys.stderr, tier, "tokens" if "tokens" in sys.argv else ""))
