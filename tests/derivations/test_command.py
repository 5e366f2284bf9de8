"""`python -m derivations`: table, steps, files, exit status. LaTeX is checked for balance, not compiled."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from derivations import theorem
from derivations.__main__ import main
from derivations.report import write_atomically, write_new

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    """One run over all theorems: its files by kind, what it printed, its CPU seconds."""

    files: dict[str, Path]
    out: str
    seconds: float


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder, out, start = tmp_path_factory.mktemp("derivations"), io.StringIO(), time.process_time()
    files = {kind: folder / f"results.{kind}" for kind in ("json", "text", "tex", "html")}
    options = [part for kind in ("json", "text", "tex") for part in (f"--{kind}", str(files[kind]))]
    with contextlib.redirect_stdout(out):
        assert main(options) == 0
    assert sorted(folder.iterdir()) == sorted(files.values()), "a temporary file was left"
    return Run(files, out.getvalue(), time.process_time() - start)


def test_whole_run_is_green_and_fast(whole):
    """Three minutes on one core are allowed for all, half a minute for each."""
    assert whole.seconds < 180
    for name in theorem.names():
        row = re.search(rf"^{name} .* yes .* ([\d.]+)$", whole.out, re.MULTILINE)
        assert row and float(row[1]) < 30, name
    assert f"{len(theorem.names())} of {len(theorem.names())} theorems proved" in whole.out
    assert "seconds" in whole.out


def test_steps_of_one_theorem(capsys):
    assert main(["--theorem", "predictive_direction"]) == 0
    out = capsys.readouterr().out
    assert "π_k - μ_k + Σ_i((μ_i - π_i)*π_i)" in out
    assert "d/dc {" in out and "at c=0" in out
    assert "arXiv 2607.10848, Eq. 7 [S]" in out
    assert "local_global_split  arXiv" not in out
    assert "\\" not in out and "$" not in out, "LaTeX reached the terminal"


def test_another_process_writes_the_same_bytes(whole, tmp_path):
    """With a hash seed of its own, as the order of sets must not show."""
    again = {kind: tmp_path / path.name for kind, path in whole.files.items()}
    options = [part for kind in ("json", "text", "tex") for part in (f"--{kind}", str(again[kind]))]
    environment = {**os.environ, "PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") != "2" else "1"}
    command = [sys.executable, "-m", "derivations", *options]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    for kind, path in whole.files.items():
        assert again[kind].read_bytes() == path.read_bytes(), kind


def test_json_holds_everything_but_timings(whole):
    text = whole.files["json"].read_text(encoding="utf-8")
    content = json.loads(text)
    assert [entry["name"] for entry in content["theorems"]] == list(theorem.names())
    for entry in content["theorems"]:
        assert entry["proved"] is True and entry["error"] is None
        assert entry["steps"] and entry["claims"] and entry["certificate"]["cases"] > 0
    assert "seconds" not in text


def test_text_holds_no_latex(whole):
    content = whole.files["text"].read_text(encoding="utf-8")
    assert "\\" not in content and "$" not in content, "LaTeX reached the text"


def test_tex_is_balanced(whole):
    content = whole.files["tex"].read_text(encoding="utf-8")
    assert content.isascii()
    assert content.count("{") == content.count("}")
    opened, closed = (re.findall(rf"\\{word}{{(\w+\*?)}}", content) for word in ("begin", "end"))
    assert sorted(opened) == sorted(closed)
    assert content.count("$") % 2 == 0
    for name in theorem.names():
        assert theorem.get(name).title in content
        assert theorem.get(name).latex in content


def test_page_holds_every_theorem(whole):
    page = whole.files["html"].read_text(encoding="utf-8")
    for name in theorem.names():
        assert f'<section id="{name}">' in page


def test_the_page_stands_beside_the_latex(tmp_path, capsys):
    assert main(["--theorem", "tail_gap", "--tex", str(tmp_path / "results.tex")]) == 0
    assert "Gap between the two tail rules" in (tmp_path / "results.html").read_text(encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(["--tex", str(tmp_path / "results.html")])
    assert stopped.value.code == 2
    assert "is the name of the page" in capsys.readouterr().err


def test_unknown_theorem_lists_the_known_ones(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--theorem", "eq_7"])
    assert stopped.value.code == 2
    message = capsys.readouterr().err
    assert "unknown theorem 'eq_7'" in message
    assert all(name in message for name in theorem.names())


def test_refuted_theorem_fails_the_run_and_is_named(tmp_path, capsys, monkeypatch):
    good = theorem.get("uniform_tail")
    wrong = good.with_claim("direction", -good.claim("direction"))
    monkeypatch.setitem(theorem._REGISTRY, "uniform_tail", wrong)
    file, tex = tmp_path / "results.json", tmp_path / "results.tex"
    chosen = ["--theorem", "uniform_tail", "--theorem", "tail_gap"]
    assert main([*chosen, "--json", str(file), "--tex", str(tex)]) == 1
    captured = capsys.readouterr()
    assert re.search(r"^uniform_tail .* NO ", captured.out, re.MULTILINE)
    assert "theorem uniform_tail: " in captured.err
    entry = next(e for e in json.loads(file.read_text())["theorems"] if e["name"] == "uniform_tail")
    assert entry["proved"] is False and "differ by" in entry["error"]
    assert "Not proved" in tex.read_text()


@pytest.mark.parametrize("option", ["--json", "--text", "--tex"])
def test_missing_folder_is_named_before_the_work(option, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([option, str(tmp_path / "nowhere" / "file")])
    assert stopped.value.code == 2
    assert "nowhere does not exist" in capsys.readouterr().err


def test_too_few_digits_are_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--dps", "24"])
    assert stopped.value.code == 2
    assert "--dps is 24, allowed are 25 and above" in capsys.readouterr().err


def test_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
    file = tmp_path / "kept.txt"
    write_atomically(file, "old")

    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(file, "new")
    assert file.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept.txt"]


def test_room_never_imports_torch():
    code = "import sys, derivations.__main__, derivations.formulas; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


DIVERGENCE = "sum((mu-pi)^2)/2"


def test_own_code_is_written_to_a_new_file_under_a_name_of_ones_choice(tmp_path, capsys):
    """What is written is what was shown, it runs, and no temporary file stays."""
    path = tmp_path / "half_l2.py"
    assert main(["--new", DIVERGENCE, "--write", str(path), "--name", "my_l2"]) == 0
    out, code = capsys.readouterr().out, path.read_text()
    assert code in out and "predictive_direction(signals, MY_L2, rule)" in out and f"written: {path}" in out
    space = {}
    exec(compile(code, str(path), "exec"), space)
    assert space["MY_L2"].name == "my_l2" and space["MY_L2"].title == DIVERGENCE
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--new", DIVERGENCE, "--write", "there.py"], "--write there.py: it exists; allowed is a new file"),
        (["--new", DIVERGENCE, "--write", "no/x.py"], "the folder no does not exist"),
        (["--new", DIVERGENCE, "--write", "x.txt"], "allowed is a file that ends in .py"),
        (["--new", DIVERGENCE, "--write", "x.py", "--name", "My Measure"], "--name My Measure: allowed are lower-case"),
        (["--new", DIVERGENCE, "--write", "class.py"], "--name class: allowed are"),
        (["--new", DIVERGENCE, "--name", "x"], "--name is of --write"),
        (["--write", "x.py"], "--write and --name are of --new"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_algebra(options, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("derivations.new.derive", lambda *_: pytest.fail("the algebra was begun"))
    Path("there.py").write_text("mine")
    with pytest.raises(SystemExit) as stopped:
        main(options)
    assert stopped.value.code == 2 and said in capsys.readouterr().err
    assert Path("there.py").read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


def test_a_file_that_appears_meanwhile_stays(tmp_path):
    (tmp_path / "x.py").write_text("mine")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "x.py", "other")
    assert (tmp_path / "x.py").read_text() == "mine" and len(list(tmp_path.iterdir())) == 1
