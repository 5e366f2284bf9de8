"""definition: what the terminal shows of a run, from log records as Snakemake makes them.

Does not cover that Snakemake makes such records (test_pipeline: a failing job, an interrupted run, a lock).
"""

from __future__ import annotations

import io
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.exceptions import LockException
from snakemake_interface_logger_plugins.common import LogEvent

from workflows.console import Board, Console, cause_in, in_words, install

RUN = {"setting": "A", "method": "drpo", "seed": "1"}


class Told:
    """A console with a clock of its own, and what it has written."""

    def __init__(self) -> None:
        self.now, self.stream = 0.0, io.StringIO()
        self.console = Console(self.stream, "mine", "", Board(clock=lambda: self.now))

    def __call__(self, event: LogEvent | None, message: str = "", level: int = logging.INFO, **given: Any) -> str:
        """What one record adds."""
        before = len(self.stream.getvalue())
        record = logging.LogRecord("snakemake", level, "", 0, message, (), None)
        vars(record).update({} if event is None else {"event": event}, **given)
        self.console.handle(record)
        return self.stream.getvalue()[before:]

    def start(
        self, jobid: int, rule: str = "train", heavy: bool = True, message: str | None = None, **wild: str
    ) -> str:
        return self(
            LogEvent.JOB_INFO,
            jobid=jobid,
            rule_name=rule,
            rule_msg=message,
            wildcards=wild,
            benchmark="b.tsv" if heavy else None,
        )

    def fail(self, jobid: int, log: Path | None = None, command: str = "python x") -> str:
        logs = [] if log is None else [str(log)]
        return self(LogEvent.JOB_ERROR, jobid=jobid, rule_name="train", log=logs, shellcmd=command)

    def end(self) -> str:
        return self(
            LogEvent.ERROR,
            "WorkflowError:\nAt least one job did not complete successfully.",
            logging.ERROR,
            exception="WorkflowError",
        )


@pytest.fixture
def told() -> Told:
    made = Told()
    made(LogEvent.RUN_INFO, stats={"all": 1, "train": 4, "tables": 1, "total": 6})
    return made


def test_a_finished_run_tells_count_and_time_left_of_its_kind(told: Told) -> None:
    """Two at a time: after 60 s one has ended and one is half through what the first took."""
    for jobid in (0, 1):
        assert told.start(jobid, **{**RUN, "seed": str(jobid)}) == ""
        told.now += 30 * (jobid == 0)
    told.now = 60
    # 60 s each for three others, of which 30 are behind; two at a time.
    assert told(LogEvent.JOB_FINISHED, job_id=0) == (
        "[train 1/4] A drpo seed 0: done in 60 s; about 75 s left for the other 3\n"
    )
    for jobid in (1, 2, 3):
        told.start(jobid, **RUN)
        line = told(LogEvent.JOB_FINISHED, job_id=jobid)
    assert line == "[train 4/4] A drpo seed 1: done in 0 s\n"


def test_a_short_job_and_snakemakes_own_remarks_are_not_told(told: Told) -> None:
    told.start(7, rule="tables", heavy=False)
    assert told(LogEvent.JOB_FINISHED, job_id=7) == ""
    assert told(None, "Select jobs to execute...") == told(LogEvent.PROGRESS, done=1, total=6) == ""
    assert told(LogEvent.SHELLCMD, cmd="python x") == told(None, "") == ""
    assert told(None, "Something that nobody foresaw", logging.WARNING) == "Something that nobody foresaw\n"
    assert told.start(8, rule="derive", message="proving the formulas") == "[derive] proving the formulas\n"


def test_a_failed_run_is_told_by_name_cause_and_log_and_again_at_the_end(told: Told, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("loading\nerror: lr = -1: allowed is a positive number\n")
    told.start(0, **RUN)
    text = f"FAILED train A drpo seed 1\n  error: lr = -1: allowed is a positive number\n  log: {log}\n"
    noise = "RuleException:\nCalledProcessError in file x:\nCommand 'python x' returned non-zero exit status 2."
    assert told(LogEvent.ERROR, noise, logging.ERROR, exception="RuleException") == ""
    assert told.fail(0, log) == text
    told.start(1, **RUN)
    told(LogEvent.JOB_FINISHED, job_id=1)
    end = told.end()
    assert end.startswith(f"\n1 job failed:\n{text}1 of 5 jobs are done (train 1/4). ")
    assert "run the same command again" in end


def test_a_job_ended_by_a_signal_is_told_so(told: Told) -> None:
    """Without a log there is the exit status; of two failed jobs each has its own."""
    for jobid, status in ((0, "137"), (1, "3")):
        message = f"Command 'set -euo pipefail;  run {jobid}  now' returned non-zero exit status {status}."
        told(LogEvent.ERROR, message, logging.ERROR, exception="RuleException")
        told.start(jobid, **RUN)
    assert "error: ended by signal SIGKILL; without" in told.fail(0, command="run 0 now")
    assert "error: ended with exit status 3" in told.fail(1, command="run 1 now")


def test_an_interrupted_run_says_how_to_go_on_and_names_no_failure(told: Told, tmp_path: Path) -> None:
    """Whether the jobs' end or Snakemake's own comes first."""
    log = tmp_path / "run.log"
    log.write_text("Traceback (most recent call last):\n  File x\nKeyboardInterrupt\n")
    for jobid in (0, 1):
        told.start(jobid, **RUN)
    assert told.fail(0, log) == ""
    assert told(None, "Terminating processes on user request, this might take some time.") == ""
    assert told.fail(1) == ""
    assert told.end().startswith("stopped: 0 of 5 jobs are done (train 0/4). The same command goes on from there")


def test_a_failure_before_ctrl_c_is_still_told(told: Told, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("error: bad\n")
    told.start(0, **RUN)
    told.fail(0, tmp_path / "run.log")
    told(None, "Terminating processes on user request, this might take some time.")
    end = told.end()
    assert "1 job failed:\nFAILED train A drpo seed 1\n  error: bad\n" in end and "\nstopped: " in end


def test_a_lock_says_what_to_do(told: Told) -> None:
    text = told(LogEvent.ERROR, str(LockException()), logging.ERROR, exception="LockException")
    assert "make recover TIER=mine" in text and "--unlock" in text and text.count("\n") == 1


def test_other_errors_are_told_as_they_are(told: Told) -> None:
    text = told(
        LogEvent.ERROR, "MissingInputException in rule x:\nfile y", logging.ERROR, exception="MissingInputException"
    )
    assert text == "MissingInputException in rule x:\nfile y\n"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("a\nerror: x = 1\nafterwards\n", "error: x = 1"),
        ("eval.tables: error: no rows\n", "eval.tables: error: no rows"),
        ("step 1\rstep 2\rerror: full\n", "error: full"),
        ("Traceback (most recent call last):\n  File\nValueError: bad\n\nmore\n", "ValueError: bad"),
        ("torch.OutOfMemoryError: no memory\n[rank0] bye\n", "torch.OutOfMemoryError: no memory"),
        ("Killed\n", "Killed"),
        ("", None),
    ],
)
def test_the_cause_in_a_log(text: str, cause: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(text)
    assert cause_in(tmp_path / "a.log") == cause
    assert cause_in(tmp_path / "none.log") is None


def test_a_duration_in_words() -> None:
    assert [in_words(x) for x in (8.4, 240, 9000)] == ["8 s", "4 min", "2.5 h"]


@pytest.mark.parametrize("asked", [None, "dryrun", "verbose", "printshellcmds"])
def test_it_stands_back_where_snakemakes_own_words_are_asked_for(asked: str | None, monkeypatch: Any) -> None:
    settings = SimpleNamespace(dryrun=False, verbose=False, printshellcmds=False, quiet={"host"})
    if asked:
        setattr(settings, asked, True)
    logger, own = logging.Logger("snakemake"), logging.StreamHandler(io.StringIO())
    own.name = "DefaultStreamHandler"
    logger.addHandler(own)
    monkeypatch.setattr("sys.argv", ["snakemake", "tokens"])
    install(logger, settings, "mine")
    (handler,) = logger.handlers
    assert (handler is own) == (asked is not None)
    if isinstance(handler, Console):
        assert (handler.tier, handler.target) == ("mine", "tokens")
