"""README, docs and examples: links, commands, the tree and the example hold against the tree on disk.

Not covered: what pages say in words, and commands that take a training (their names and flags alone are looked at).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)\b")
COMMAND = re.compile(r"python -m ([a-z_.]+)((?: +[^\s`|#;]+)*)")
CODE = re.compile(r"```[a-z]*\n(.*?)```|`([^`\n]+)`", re.DOTALL)


def blocks(page: Path) -> list[str]:
    """The fenced blocks of a page."""
    return re.findall(r"^```[a-z]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def code(page: Path) -> str:
    """All code of a page, one piece a line; a backslash joins two lines."""
    pieces = [block or inline for block, inline in CODE.findall(page.read_text(encoding="utf-8"))]
    return "\n".join(pieces).replace("\\\n", " ")


def tracked() -> list[str]:
    """Files of the repository, new ones that are not ignored included; relative paths."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("no git checkout")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_relative_links_lead_to_files(page: Path) -> None:
    links = [target for target, _ in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    missing = [target for target in links if not (page.parent / target).exists()]
    assert not missing


def test_every_page_of_docs_is_linked_from_the_readme() -> None:
    linked = {target for target, _ in LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))}
    assert {f"docs/{page.name}" for page in PAGES[1:]} <= linked


def test_no_placeholder_is_left() -> None:
    assert not [page.name for page in PAGES if re.search(r"@[A-Z_]+@", page.read_text(encoding="utf-8"))]


def test_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {(page.name, target) for page in PAGES for target in MAKE.findall(code(page))}
    assert {"reproduce", "test", "check", "docs"} <= {target for _, target in named}
    assert not {(page, target) for page, target in named if target not in targets}


@pytest.fixture(scope="module")
def help_of() -> dict[tuple[str, ...], str]:
    """`--help` by module and subcommand, filled by `shown`."""
    return {}


def shown(words: tuple[str, ...], known: dict[tuple[str, ...], str]) -> str:
    """What `python -m WORDS... --help` prints; a command that does not exist fails the test."""
    if words not in known:
        call = [sys.executable, "-m", *words, "--help"]
        done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"python -m {' '.join(words)}: {done.stderr[-300:]}"
        known[words] = done.stdout
    return known[words]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_and_their_flags_exist(page: Path, help_of: dict[tuple[str, ...], str]) -> None:
    """Of `python -m MODULE [COMMAND] --flag ...`; values are not tried."""
    for module, rest in COMMAND.findall(code(page)):
        words = rest.split()
        text, command = shown((module,), help_of), (module,)
        if words and re.fullmatch(r"[a-z]+", words[0]):
            command = (module, words[0])
            text = shown(command, help_of)
        for flag in (word.split("=")[0] for word in words if word.startswith("--")):
            assert re.search(rf"(?<![\w-]){flag}(?![\w-])", text), f"python -m {' '.join(command)} has no {flag}"


def test_the_readmes_tree_is_the_tree_on_disk() -> None:
    """Every folder at the top, and every folder in a room, by name; and no other."""
    block = next(text for text in blocks(PAGES[0]) if "catalogue/ " in text)
    told: set[str] = set()
    parents: list[str] = []
    for line in block.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        names = re.match(r"(?:[\w.]+/ +)+", line.lstrip())
        assert names, line
        folders = names[0].split()
        prefix = "".join(parents[:depth])
        told |= {f"{prefix}{folder}" for folder in folders}
        parents = [*parents[:depth], folders[-1]]
    folders = {f"{parent}/" for name in tracked() for parent in Path(name).parents if parent != Path(".")}
    rooms = ("methods/", "methods/backend/", "derivations/", "eval/", "workflows/", "results/")
    wanted = {
        folder
        for folder in folders
        if not folder.startswith((".", "shared/"))
        and (folder.count("/") == 1 or folder[: folder[:-1].rfind("/") + 1] in rooms)
    }
    assert told == wanted


def readme_method() -> str:
    """The README's block of Python that registers a method."""
    return next(block for block in blocks(PAGES[0]) if "@register(" in block)


def test_the_readmes_method_keeps_the_contract(tmp_path: Path) -> None:
    """Written to the catalogue's folder of a process of its own; that it trains is another room's test."""
    names = [node.name for node in ast.parse(readme_method()).body if isinstance(node, ast.FunctionDef)]
    assert names == ["coefficient"]
    (tmp_path / "my_method.py").write_text(readme_method(), encoding="utf-8")
    program = (
        "import sys, methods.catalogue\n"
        "methods.catalogue.__path__.append(sys.argv.pop())\n"
        "from methods.__main__ import main\n"
        "sys.exit(main(['check', 'my_method']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "keeps its contract" in done.stdout


def test_adding_a_method_shows_the_readmes_method() -> None:
    assert readme_method() in (ROOT / "docs" / "adding_a_method.md").read_text(encoding="utf-8")


def test_one_step_learns() -> None:
    """In a process of its own, as a reader starts it: later rewards are above the first by far."""
    call = [sys.executable, "examples/one_step.py", "--steps", "24"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-500:]
    rewards = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step")]
    assert len(rewards) == 24
    assert sum(rewards[-4:]) > 1.5 * sum(rewards[:4])
