"""Claim: the committed index lists our methods, the pages say what the catalogue says, and the commands the same.

A method that the index lacks (one that a user has just added) breaks nothing here. Not covered: how a figure looks.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import types
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import torch

from eval.method_pages import curve, page, svg
from eval.method_pages.facts import facts, needs_words
from methods import registry
from methods.__main__ import main
from methods.config import MethodConfig, MethodConfigError
from methods.registry import Needs
from methods.signals import Scope, sanitise
from tests.methods.helpers import SHIPPED

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all pages, as the command writes them."""
    folder = tmp_path_factory.mktemp("pages")
    assert main(["pages", "--output", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("name", SHIPPED)
def test_a_page_is_what_the_catalogue_says(name: str, built: Path) -> None:
    about = facts(registry.get(name))
    text = (built / f"{name}.md").read_text()
    for part in (about.summary, about.formula, about.method.source, *(option.meaning for option in about.options)):
        assert part.replace("|", "\\|") in text or part in text
    assert (built / f"{name}.svg").read_text() == page.figure(about)


def test_the_index_of_the_pages_links_each(built: Path) -> None:
    text = (built / "README.md").read_text()
    for name in registry.names():
        assert f"[`{name}`]({name}.md)" in text and (built / f"{name}.md").is_file()


def test_the_committed_index_links_the_catalogue() -> None:
    """It is the one that `make pages` writes, but for methods that a user has added since."""
    text = page.INDEX.read_text()
    listed = re.findall(r"^\| \[`(\w+)`\]\((\w+)\.py\)", text, re.MULTILINE)
    assert [name for name, _ in listed] == sorted(SHIPPED), "run `make pages`"
    assert text == page.index([facts(registry.get(name)) for name, _ in listed], ".py"), "run `make pages`"
    assert all((page.INDEX.parent / f"{file}.py").is_file() for _, file in listed)


def test_make_pages_writes_the_committed_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(page, "INDEX", tmp_path / "README.md")
    assert main(["pages"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert page.INDEX.read_text() == page.committed_index()


@pytest.mark.parametrize("name", SHIPPED)
def test_every_option_says_what_it_means_and_what_it_accepts(name: str) -> None:
    for option in facts(registry.get(name)).options:
        assert option.allowed and option.meaning, option


def test_facts_are_read_from_docstring_and_options() -> None:
    about = facts(registry.get("drpo"), {"delta": 0.15})
    assert about.formula.splitlines()[1] == "g = r · A · w,  w = 1 - sign(A (r - 1)) · |pi - mu| / delta"
    assert about.summary.startswith("DRPO: a smooth") and about.notes[0].startswith("w falls linearly")
    assert list(about.sections) == ["Source", "Shapes", "Detached", "Public code"]
    assert about.sections["Shapes"] == "signals [B, T] to g [B, T]."
    assert (about.paper, about.equation, about.needs) == ("arXiv 2606.09821", "Eqs. 8-9", "sampled")
    delta, cap = about.options
    assert (delta.name, delta.kind, delta.default, delta.value) == ("delta", "number", "12.5", "0.15")
    assert (
        delta.allowed == "a finite number > 0" and delta.meaning == "The shift |pi - mu| at which the weight is zero."
    )
    assert (cap.kind, cap.default, cap.allowed) == (
        "number or none",
        "none",
        "a finite number >= 1, or null for no cap",
    )
    low = facts(registry.get("ppo_clip_higher")).options[0]
    assert low.allowed == "0 < eps_low <= 1" and low.meaning == "Width of the band below 1: it begins at 1 - eps_low."
    assert facts(registry.get("dppo_topk_kl")).needs == "top-K"


@dataclass(frozen=True)
class AnyConfig(MethodConfig):
    size: int
    """How large."""
    low: float | None = None
    """Where the range begins,
    None for nowhere."""
    high: tuple[float, float] = (1.0, 2.0)
    rule: Literal["a", "b"] = "a"
    """Which one."""
    plain: bool = True
    """Whether it is."""

    def __post_init__(self) -> None:
        if self.rule not in ("a", "b"):
            raise MethodConfigError(f"rule = {self.rule!r}: allowed are a, b")
        if self.size < 1:
            raise MethodConfigError(f"size = {self.size!r}: allowed is 1 and above")


def test_options_of_any_config_are_described() -> None:
    """A check that stumbles over a value's type, a required option and types of several kinds are no obstacle."""
    drpo = registry.get("drpo")
    method = registry.Method("any", "Any", "none", "N", drpo.coefficient, AnyConfig, drpo.needs, drpo.module)
    about = facts(method, {"size": 3, "high": [1.0, 4.0]})
    assert [dataclasses.astuple(option) for option in about.options] == [
        ("size", "integer", "required", "3", "How large.", "1 and above"),
        ("low", "number or none", "none", "none", "Where the range begins, None for nowhere.", ""),
        ("high", "(number, number)", "(1.0, 2.0)", "(1.0, 4.0)", "", ""),
        ("rule", "`a` or `b`", "a", "a", "Which one.", "a, b"),
        ("plain", "true or false", "true", "true", "Whether it is.", ""),
    ]
    assert "any: {method: any, options: {high: [1.0, 2.0]}}" in page.page(about)
    assert "+actor_rollout_ref.actor.policy_loss.options.high=[1.0, 2.0]" in page.page(about)


def test_formulas_and_notes_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    document = (
        "First.\n\n    a = b\n      more\n\nThen\nthis.\n\n    c = d\n\nLast. Shapes: [B].\nEquals: pg_is at C = 1.\n"
    )
    module = types.ModuleType("methods_of_a_test", document)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    about = facts(dataclasses.replace(registry.get("pg_is"), module=module.__name__))
    assert about.formula == "a = b\n  more\n\nc = d"
    assert about.summary == "First." and about.notes == ("Then this.", "Last.")
    assert about.sections == {"Shapes": "[B].", "Equals": "pg_is at C = 1."}
    assert "## Equals\n\npg_is at C = 1.\n" in page.page(about) and "Equals: pg_is at C = 1." in page.text(about)


def test_needs_in_words() -> None:
    assert needs_words(Needs.SAMPLED) == "sampled"
    assert needs_words(Needs.TOP_K | Needs.RANDOM) == "top-K + random"
    assert len({needs_words(need) for need in Needs}) == len(Needs)
    depends = dataclasses.replace(registry.get("dppo_topk_kl"), needs=lambda config: Needs.FULL)
    about = facts(depends)
    assert about.needs == "full" and "Needs: full (depends on the options)" in page.text(about)
    assert "| full with the defaults; it depends on the options |" in page.page(about)
    assert "hands to a loss (full)" in page.page(about)


def test_curves_are_the_coefficient() -> None:
    """r A without a trust region; the DPPO mask at a radius no token reaches; both start at A."""
    assert sum(curve.SHARES) == pytest.approx(1, abs=1e-15)
    pg_is, dppo = registry.get("pg_is"), registry.get("dppo_topk_kl")
    plain = curve.curves(pg_is, pg_is.configure())
    assert [(c.mu, c.advantage) for c in plain] == [(mu, sign) for sign in (1.0, -1.0) for mu in curve.MUS]
    for one in plain:
        assert one.start == pytest.approx(one.advantage)
        assert one.g == pytest.approx([one.advantage * pi / one.mu for pi in one.pi])
    wide = curve.curves(dppo, dppo.configure({"delta": 100.0, "ratio_cap": None}))
    for one, other in zip(wide, plain, strict=True):
        assert one.g == pytest.approx(other.g)
    assert any(0.0 in one.g for one in curve.curves(dppo, dppo.configure()))


def test_the_signals_of_a_curve_are_one_pair_of_policies() -> None:
    """Whatever a method reads, it reads the same mu and pi."""
    mu, pi = torch.tensor([0.1, 0.3], dtype=torch.float64), torch.tensor([0.2, 0.05], dtype=torch.float64)
    signals = sanitise(curve._signals(mu, pi, -1.0))
    assert signals.full is not None and signals.support is not None and signals.uniforms is not None
    full_mu, full_pi = (logp.exp() for logp in signals.full)
    for full, sampled, logp in ((full_mu, mu, signals.logp_mu), (full_pi, pi, signals.logp_pi)):
        torch.testing.assert_close(full.sum(-1), torch.ones(2, 1, dtype=torch.float64))
        torch.testing.assert_close(full[:, 0, 0], sampled)
        torch.testing.assert_close(
            full[..., 1:] / (1 - full[..., :1]), torch.tensor(curve.SHARES).expand(2, 1, 4).double()
        )
        torch.testing.assert_close(logp.exp().squeeze(-1), sampled)
    assert signals.logp_old is not None and torch.equal(signals.logp_old, signals.logp_mu)
    torch.testing.assert_close(signals.sum_pi_squared, (full_pi**2).sum(-1))
    torch.testing.assert_close(signals.entropy, -(full_pi * full_pi.log()).sum(-1))
    support = signals.support
    assert support.ids.tolist() == [[[0, 1, 2, 0]]] * 2 and support.valid.tolist() == [[[True] * 3 + [False]]] * 2
    torch.testing.assert_close(support.logp_mu.exp()[..., :3], full_mu[..., :3])
    torch.testing.assert_close(support.logp_pi.exp()[..., :3], full_pi[..., :3])
    assert signals.vocab_size == 5 and (signals.uniforms == 0.5).all() and (signals.advantages == -1).all()
    assert signals.response_mask.all() and (signals.sampled == 0).all() and signals.scope is Scope.MINI_BATCH


def test_a_caption_says_what_was_assumed() -> None:
    words = {
        Needs.SAMPLED: "Responses of one token.",
        Needs.TOP_K: "share the rest 0.6 : 0.25 : 0.1 : 0.05",
        Needs.FULL: "Five tokens",
        Needs.SUM_PI_SQUARED: "Five tokens",
        Needs.RECOMPUTED_ANCHOR: "The recomputed anchor equals mu.",
        Needs.MINI_BATCH: "Each token is a mini-batch of its own.",
        Needs.RANDOM: "The random number is 0.5.",
    }
    assert set(words) == {Needs.SAMPLED, *Needs}
    for need, text in words.items():
        assert text in curve.assumptions(need)
        assert need is Needs.SAMPLED or curve.assumptions(need) != curve.assumptions(Needs.SAMPLED)


def test_methods_that_rank_a_mini_batch_see_one_token_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    method, seen = registry.get("dppo_topk_kl"), []

    def coefficient(signals: object, config: object) -> object:
        seen.append(signals)
        return method.coefficient(signals, config)  # type: ignore[arg-type]

    spy = registry.Method(
        "spy", "Spy", "none", "N", coefficient, method.config_type, Needs.MINI_BATCH | Needs.FULL | method.needs, "none"
    )
    alone = curve.curves(spy, spy.configure(), mus=(0.1,))
    assert len(seen) == 2 * (len(curve.LOGITS) + 1)
    assert seen[0].support.logp_pi.shape == (1, 1, 4) and seen[0].full[0].shape == (1, 1, 5)
    assert alone == curve.curves(method, method.configure(), mus=(0.1,))


def test_the_figure_shows_every_point_of_every_curve() -> None:
    about = facts(registry.get("dppo_topk_kl"), {"delta": 0.05})
    drawn = page.figure(about)
    assert drawn == page.figure(about)
    root = ET.fromstring(drawn)
    lines, dots = root.findall(f".//{SVG}polyline"), root.findall(f".//{SVG}g/{SVG}circle")
    want = curve.curves(about.method, about.config)
    assert len(lines) == len(dots) == len(want) == 10
    for line, one in zip(lines, want, strict=True):
        heights = [float(pair.split(",")[1]) for pair in line.get("points", "").split()]
        assert len(heights) == len(one.g)
        # A larger g is drawn higher (a smaller y), up to the rounding of a tenth of a pixel.
        pairs = sorted(zip(one.g, heights, strict=True))
        assert all(b <= a + 0.11 for (_, a), (_, b) in zip(pairs[:-1], pairs[1:], strict=True))
    shown = [text.text for text in root.findall(f"{SVG}text")]
    assert "DPPO Top-K KL (dppo_topk_kl), delta = 0.05" in shown and ".01" in shown and "π = μ" in shown
    cues = {(line.get("stroke"), line.get("stroke-dasharray")) for line in lines}
    assert len(cues) == len(svg.COLOURS) == len(set(svg.DASHES))


@pytest.mark.parametrize(
    ("low", "high", "want"),
    [(0, 5, [0, 1, 2, 3, 4, 5]), (-1.2, 0, [-1.2, -1, -0.8, -0.6, -0.4, -0.2, 0]), (0, 0, None)],
)
def test_ticks_are_round_and_cover_the_range(low: float, high: float, want: list[float] | None) -> None:
    ticks = svg._ticks(low, high)
    assert ticks[0] <= low and ticks[-1] >= high and ticks[-1] > ticks[0] and len(ticks) <= 8
    if want:
        assert ticks == pytest.approx(want)


def test_pages_are_written_where_they_differ_and_removed_with_their_method(tmp_path: Path) -> None:
    written, gone = page.write(tmp_path)
    assert len(written) == 2 * len(registry.names()) + 1 and not gone
    (tmp_path / "drpo.md").write_text("old")
    (tmp_path / "retired.md").write_text("old")
    (tmp_path / "notes.txt").write_text("kept")
    assert page.write(tmp_path) == (["drpo.md"], ["retired.md"])
    assert (tmp_path / "notes.txt").exists() and len(list(tmp_path.iterdir())) == len(written) + 1


def test_list_prints_a_line_per_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(registry.names())
    start = header.index("paper")
    assert all(line[start - 1] == " " and line[start] != " " for line in lines), "columns are aligned"
    assert main(["list", "--json"]) == 0
    rows = {row.pop("name"): row for row in json.loads(capsys.readouterr().out)}
    assert rows["drpo"] == {
        "title": "DRPO",
        "paper": "arXiv 2606.09821",
        "equation": "Eqs. 8-9",
        "mark": "F",
        "needs": "sampled",
    }


def test_show_prints_facts_and_writes_the_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure = tmp_path / "ppo.svg"
    command = ["show", "ppo_clip_higher", "--option", "eps_low=.1", "--option", "ratio_cap=null", "--svg", str(figure)]
    assert main(command) == 0
    out = capsys.readouterr().out
    for part in ("g = min(r, C) · A,  or 0", "Needs: sampled", "Detached: r.", "Public code: verl's", "[F: exact"):
        assert part in out
    assert "  eps_low    number          0.2      0.1    0 < eps_low <= 1" in out
    assert "  ratio_cap  number or none  5.0      none " in out
    options = {"eps_low": 0.1, "ratio_cap": None}
    assert figure.read_text() == page.figure(facts(registry.get("ppo_clip_higher"), options))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ppo_clip_higer"], "unknown method 'ppo_clip_higer'; near: ppo_clip_higher"),
        (["predictiv"], "near: predictive"),
        (["kl"], "dppo_topk_kl"),
        (["xyz"], "unknown method 'xyz'; `python -m methods list` prints all"),
        (["drpo", "--option", "delta"], "--option 'delta': allowed is KEY=VALUE"),
        (["drpo", "--option", "delta=wide"], "delta = 'wide': allowed is a finite number > 0"),
        (["drpo", "--option", "beta=1"], "unknown option 'beta'; its options are: delta, ratio_cap"),
        (["drpo", "--svg", "a.png"], "--svg a.png: allowed is a file that ends in .svg"),
        (["drpo", "--svg", "nowhere/a.svg"], "in a folder that exists"),
    ],
)
def test_a_call_that_makes_no_sense_says_why(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_facts_refuse_bad_options() -> None:
    with pytest.raises(MethodConfigError, match="delta = -1"):
        facts(registry.get("drpo"), {"delta": -1})


def test_a_method_that_tells_little_still_has_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's example: one sentence, no formula block, no sections but the source."""
    module = types.ModuleType("methods_of_a_test", "Ones: g = 1.  Source: this work.")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    real = registry.get("pg_is")
    method = registry.Method(
        "ones", "Ones", "this work", "N", real.coefficient, real.config_type, real.needs, module.__name__
    )
    text = page.page(facts(method))
    assert "# Ones (`ones`)\n\nOnes: g = 1.\n\n| source" in text and "| this work | N: ours | sampled |" in text


def test_a_command_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2 and "required" in capsys.readouterr().err
