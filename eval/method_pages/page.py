"""The Markdown page of a method, the index of all pages, and the same facts as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eval.method_pages.curve import assumptions, curves
from eval.method_pages.facts import SECTIONS, Facts, facts
from eval.method_pages.svg import draw
from methods import registry
from methods.files import write_text
from methods.provenance import MARKS
from methods.registry import Needs

# The one page that is committed: it links each method to its file, which stands beside it.
INDEX = Path(__file__).resolve().parents[2] / "methods" / "catalogue" / "README.md"
# Losses that verl 0.9.1 brings along (tests/backend holds this against verl); ours of that name carries a prefix.
VERL_LOSSES = frozenset(
    {"bypass_mode", "cispo", "clip_cov", "dppo_kl", "dppo_tv", "dro", "geo_mean", "gpg", "gspo", "kl_cov", "sapo"}
    | {"vanilla"}
)
GENERATED = "<!-- Made by `make pages` from the catalogue; edit methods/catalogue and run it again. -->"


def figure(about: Facts) -> str:
    """The coefficient against pi as SVG."""
    needs = about.method.requires(about.config)
    caption = (
        f"Coefficient g of gradient = E[g · ∇ log π] against π; the rollout policy μ is fixed. {assumptions(needs)}"
    )
    changed = [f"{option.name} = {option.value}" for option in about.options if option.value != option.default]
    title = ", ".join([f"{about.method.title} ({about.method.name})", *changed])
    return draw(title, curves(about.method, about.config), caption)


def text(about: Facts) -> str:
    """What `show` prints."""
    method = about.method
    lines = [f"{method.name}: {method.title}", "", about.summary]
    if about.formula:
        lines += ["", *(f"    {line}".rstrip() for line in about.formula.splitlines())]
    for note in about.notes:
        lines += ["", note]
    lines += ["", f"Source: {method.source} [{method.mark}: {MARKS[method.mark]}]"]
    lines += [f"Needs: {about.needs}{' (depends on the options)' if about.needs_depend_on_options else ''}"]
    lines += [f"{name}: {about.sections[name]}" for name in SECTIONS if name in about.sections]
    lines += ["", "Options:" if about.options else "Options: none"]
    rows = [("name", "type", "default", "value", "allowed", "meaning")]
    rows += [(o.name, o.kind, o.default, o.value, o.allowed or "not checked", o.meaning) for o in about.options]
    return "\n".join([*lines, *(f"  {line}" for line in columns(rows) if about.options)])


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of texts as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def page(about: Facts) -> str:
    """The method's page in Markdown."""
    method = about.method
    lines = [GENERATED, "", f"# {method.title} (`{method.name}`)", "", about.summary, ""]
    if about.formula:
        lines += ["```text", about.formula, "```", ""]
    for note in about.notes:
        lines += [note, ""]
    depends = " with the defaults; it depends on the options" if about.needs_depend_on_options else ""
    lines += [
        *_table(
            ("source", "mark", "needs"),
            [(method.source, f"{method.mark}: {MARKS[method.mark]}", about.needs + depends)],
        ),
        "",
        f"![Coefficient against pi]({method.name}.svg)",
        "",
        "## Options",
        "",
    ]
    rows = [(f"`{o.name}`", o.kind, o.default, o.allowed or "not checked", o.meaning) for o in about.options]
    lines += _table(("option", "type", "default", "allowed", "meaning"), rows) if rows else ["None."]
    for name in SECTIONS:
        if name in about.sections:
            lines += ["", f"## {name}", "", about.sections[name]]
    return "\n".join([*lines, "", "## Use", "", *_use(about), ""])


def _use(about: Facts) -> list[str]:
    method = about.method
    loss = f"tether_{method.name}" if method.name in VERL_LOSSES else method.name
    example = next((o for o in about.options if o.default not in ("none", "required")), None)
    option = f", options: {{{example.name}: {_plain(example.default)}}}" if example else ""
    lines = [
        "In a grid of this project, a line under `methods:` of a configuration:",
        "",
        "```yaml",
        f"{method.name}: {{method: {method.name}{option}}}",
        "```",
        "",
        "In your own verl run (README, *Use one loss in your own verl run*, has the settings that go with it):",
        "",
        "```text",
        f"actor_rollout_ref.actor.policy_loss.loss_mode={loss}",
    ]
    if example:
        lines += [
            "actor_rollout_ref.actor.policy_loss._target_=methods.backend.loss.TetherPolicyLossConfig",
            f"+actor_rollout_ref.actor.policy_loss.options.{example.name}={_plain(example.default)}",
        ]
    lines.append("```")
    if method.requires(about.config) != Needs.SAMPLED:
        lines += [
            "",
            f"It needs more than verl's stock worker hands to a loss ({about.needs}): train with this package's.",
        ]
    return lines


def _plain(value: str) -> str:
    """A shown value as YAML and Hydra write it."""
    return f"[{value[1:-1]}]" if value.startswith("(") else value


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(header), "|" + "---|" * len(header), *map(line, rows)]


def index(every: Sequence[Facts], suffix: str = ".md") -> str:
    """The list of all methods with links to their pages, or to their files of the catalogue (`.py`)."""
    rows = [
        (f"[`{a.method.name}`]({a.method.name}{suffix})", a.method.title, a.paper, a.equation, a.method.mark, a.needs)
        for a in every
    ]
    marks = "; ".join(f"{mark} {words}" for mark, words in MARKS.items())
    return "\n".join(
        [
            GENERATED,
            "",
            "# Methods",
            "",
            f"{len(every)} methods, each one file in `methods/catalogue/`. Marks: {marks}.",
            "`needs`, with the default options: what a method must be given beyond the sampled token's log-probs.",
            "`python -m methods show NAME` prints a method's page; `python -m methods pages --output DIR` writes all.",
            "",
            *_table(("name", "title", "paper", "equation", "mark", "needs"), rows),
            "",
        ]
    )


def render() -> dict[str, str]:
    """{file name: content} of all pages, figures and the index."""
    every = [facts(registry.get(name)) for name in registry.names()]
    files = {"README.md": index(every)}
    for about in every:
        files[f"{about.method.name}.md"] = page(about)
        files[f"{about.method.name}.svg"] = figure(about)
    return files


def write(folder: Path) -> tuple[list[str], list[str]]:
    """Write the pages that differ; returns (files written, files removed because their method is gone)."""
    files = render()
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in files.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            write_text(path, content)
            written.append(name)
    gone = sorted(p.name for p in folder.iterdir() if p.suffix in (".md", ".svg") and p.name not in files)
    for name in gone:
        (folder / name).unlink()
    return written, gone


def committed_index() -> str:
    """What `INDEX` should hold."""
    return index([facts(registry.get(name)) for name in registry.names()], ".py")
