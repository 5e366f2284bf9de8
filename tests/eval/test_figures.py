"""The curves figure: bytes, numbers behind it, refusals. Whether it looks good takes an eye."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval.figures.curves import choose_accuracy, main, moving_mean, read_series, seed_note
from eval.figures.style import PALETTE, looks, new_figure, plt, read_variants, spread
from eval.files import InputError, read_csv
from eval.tables import main as tables
from eval.variants import distinct_titles

Paths = tuple[list[str], list[str]]
DELTAS = {"a": 0.05, "b": 0.15, "c": 12.5}


@pytest.fixture
def curves(paths: Paths, tmp_path: Path) -> Path:
    """curves.csv of the small grid."""
    path = tmp_path / "curves.csv"
    assert tables(["curves", "--runs", *paths[0], "--scores", *paths[1], "--output", str(path)]) == 0
    return path


def draw(curves: Path, results: Path, output: Path, *options: str) -> int:
    """Run the figure's command."""
    given = ["--curves", str(curves), "--variants", str(results / "variants.json"), "--output", str(output)]
    return main([*given, *options])


def test_same_data_same_bytes(curves: Path, results: Path, tmp_path: Path) -> None:
    """Two runs give the same SVG, without a date; other data give another."""
    for name in ("a.svg", "b.svg"):
        assert draw(curves, results, tmp_path / name) == 0
    first = (tmp_path / "a.svg").read_bytes()
    assert first == (tmp_path / "b.svg").read_bytes()
    assert b"<dc:date>" not in first and not re.search(rb"20\d\d-\d\d-\d\d", first)
    changed = tmp_path / "changed.csv"
    changed.write_text(curves.read_text().replace("0.62", "0.66"))
    assert draw(changed, results, tmp_path / "c.svg") == 0
    assert first != (tmp_path / "c.svg").read_bytes()


def test_caption_says_what_the_band_is(curves: Path, results: Path, tmp_path: Path) -> None:
    """The SVG carries the description that the report shows as its caption."""
    assert draw(curves, results, tmp_path / "a.svg") == 0
    text = (tmp_path / "a.svg").read_text()
    assert "Line: mean over 3 seeds. Band: lowest to highest seed." in text
    assert "[F] exact from the paper" in text
    assert "Accuracy: lm-eval, the scored checkpoints; the rollout reward is another scale" in text
    assert seed_note({1}) == "One seed per method, so no band."
    assert "2 to 3 seeds" in seed_note({2, 3})


def test_series_are_seed_by_step(curves: Path) -> None:
    """Values [seeds, steps] at the steps that all seeds share."""
    rows = read_csv(curves, "curves")
    steps, values = read_series(rows, "reward/mean")["B"]["dppo_topk_kl"]
    assert steps.tolist() == [1, 2, 3, 4]
    assert values == pytest.approx(np.array([[0.9, 0.9, 0.5, 0.5], [0.9, 0.9, 0.51, 0.51], [0.9, 0.9, 0.52, 0.52]]))
    lacking = [row for row in rows if not (row["seed"] == "1" and row["step"] == "3")]
    assert read_series(lacking, "reward/mean")["B"]["dppo_topk_kl"][0].tolist() == [1, 2, 4]
    nothing = [row for row in rows if (row["seed"] == "0") == (row["step"] == "4")]
    with pytest.raises(InputError, match="share no step"):
        read_series(nothing, "reward/mean")


def test_moving_mean_is_centred() -> None:
    """Window 3: (0+3)/2, (0+3+6)/3, (3+6+3)/3, (6+3)/2; window 1 changes nothing."""
    values = np.array([[0.0, 3.0, 6.0, 3.0]])
    assert moving_mean(values, 3).tolist() == [[1.5, 3.0, 4.0, 4.5]]
    assert moving_mean(values, 1).tolist() == values.tolist()


def test_accuracy_with_most_steps_is_chosen(curves: Path) -> None:
    """As many lines and steps: the first by name; then the denser one; a setting without scores counts more; none is an
    error."""
    rows = read_csv(curves, "curves")
    assert choose_accuracy(rows) == "avg@16"
    extra = {**rows[0], "metric": "val/accuracy", "step": "2"}
    assert choose_accuracy([*rows, extra]) == "val/accuracy"
    scored = [{**rows[0], "metric": "avg@16", "step": str(step)} for step in range(9)]
    assert choose_accuracy([*rows, *scored]) == "avg@16"
    assert choose_accuracy([*rows, *scored, {**extra, "setting": "unscored"}]) == "val/accuracy"
    with pytest.raises(InputError, match="neither"):
        choose_accuracy([row for row in rows if row["metric"] == "reward/mean"])


def test_labels_keep_their_distance_and_order() -> None:
    """Label heights stay in order, a gap apart, inside the axes, and untouched where there is room."""
    assert spread([0.2, 0.8], 0.1, 0.0, 1.0) == [0.2, 0.8]
    assert spread([0.5, 0.5], 0.1, 0.0, 1.0) == pytest.approx([0.45, 0.55])
    generator = np.random.default_rng(0)
    for count in range(1, 14):
        targets = list(generator.uniform(size=count) ** 3)
        heights = spread(targets, 0.066, 0.0, 1.0)
        assert min(heights) >= -1e-9 and max(heights) <= 1 + 1e-9
        ordered = [heights[i] for i in np.argsort(targets)]
        assert all(b - a >= 0.066 - 1e-9 for a, b in zip(ordered, ordered[1:], strict=False))


def entries(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"title": f"M {name}", "mark": "N"} for name in names}


def test_looks_follow_the_labels_file(tmp_path: Path) -> None:
    """A method keeps its look when others are not drawn; a colour of its own is kept."""
    content = entries(f"m{i}" for i in range(40))
    content["m3"]["colour"] = "#123456"
    path = tmp_path / "variants.json"
    path.write_text(json.dumps(content))
    few, many = read_variants(path, ["m8", "m3"]), read_variants(path, content)
    assert list(few) == ["m3", "m8"] and few["m8"] == many["m8"] and few["m3"].colour == "#123456"


@pytest.mark.parametrize("count", [7, 28, 40, 140])
def test_no_two_labels_look_alike(count: int) -> None:
    """The whole catalogue in one setting: colour, dash and marker tell all apart; the first seven differ in colour."""
    found = list(looks(dict.fromkeys(f"m{i}" for i in range(count))).values())
    assert len({(colour, str(dashes), marker) for colour, dashes, marker in found}) == count
    assert {colour for colour, _, _ in found[:7]} == set(PALETTE)


def test_more_labels_than_looks_are_refused(tmp_path: Path, curves: Path, results: Path, capsys: Any) -> None:
    """One line, with the number that there is; so with more variants of one pinned colour than that has dashes."""
    path = results / "variants.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries(f"m{i}" for i in range(139))}))
    assert draw(curves, results, tmp_path / "a.svg") == 2
    assert "a figure has 140 looks" in capsys.readouterr().err
    with pytest.raises(ValueError, match="m20 is one label too many"):
        looks(dict.fromkeys((f"m{i}" for i in range(21)), "#123456"))


def test_a_label_added_leaves_the_others_as_they_are() -> None:
    """At the end: none changes, ever. In front of six: fewer than two lose their colour on average (by place in the
    order all six would), and a pinned colour stays."""
    names = [f"m{i}" for i in range(40)]
    for count in range(len(names)):
        before, after = (looks(dict.fromkeys(names[:n])) for n in (count, count + 1))
        assert {name: after[name] for name in before} == before
    changed = []
    for number in range(200):
        six = [f"{number}.{i}" for i in range(6)]
        before, after = looks(dict.fromkeys(six)), looks(dict.fromkeys(["new", *six]))
        changed.append(sum(before[name][0] != after[name][0] for name in six))
    assert np.mean(changed) < 2
    pinned = looks({"new": None, "a": "#0072B2", "b": None})
    assert pinned["a"][0] == "#0072B2"


def test_titles_that_collide_are_told_apart() -> None:
    """By the options that differ, else by the label; titles of their own stay, and doing it twice changes nothing."""
    drpo = {look: {"title": "DRPO", "mark": "F", "options": {"delta": d, "cap": None}} for look, d in DELTAS.items()}
    titles = distinct_titles({"pg_is": {"title": "PG-IS"}, **drpo})
    assert titles == {"pg_is": "PG-IS", "a": "DRPO, delta 0.05", "b": "DRPO, delta 0.15", "c": "DRPO, delta 12.5"}
    again = {look: {**entry, "title": titles[look]} for look, entry in drpo.items()}
    assert distinct_titles(again) == {look: titles[look] for look in drpo}
    same = {"a": {"title": "X", "options": {"d": 1}}, "b": {"title": "X", "options": {"d": 1}}}
    assert distinct_titles(same) == {"a": "X (a)", "b": "X (b)"}
    many = {name: {"title": "X", "options": dict.fromkeys("abc", number)} for number, name in enumerate("pq")}
    assert distinct_titles(many) == {"p": "X (p)", "q": "X (q)"}
    assert distinct_titles({"a": {"title": "X (b)"}, "b": {"title": "X"}, "c": {"title": "X"}})["a"] != "X (b)"


def test_a_made_title_may_not_meet_another() -> None:
    """`DRPO, delta 0.05` is also the own title of a third label: all three still differ."""
    given = {"a": {"title": "DRPO", "options": {"delta": 0.05}}, "b": {"title": "DRPO", "options": {"delta": 0.1}}}
    assert len(set(distinct_titles({**given, "c": {"title": "DRPO, delta 0.05"}}).values())) == 3


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ({"pg_is": {"title": "PG-IS", "mark": "N"}}, "no entry for ['dppo_topk_kl']; it has ['pg_is']"),
        ({"pg_is": {"title": "PG-IS", "mark": "X"}, "dppo_topk_kl": {}}, "variant pg_is: needs a title and a mark"),
        ({"pg_is": {"title": "P", "mark": "N", "colour": "red"}, "dppo_topk_kl": {}}, "colour must look like"),
        ([], "expected an object"),
    ],
)
def test_bad_labels(variants: Any, message: str, curves: Path, results: Path, tmp_path: Path, capsys: Any) -> None:
    """The message names the file and the label."""
    (results / "variants.json").write_text(json.dumps(variants))
    assert draw(curves, results, tmp_path / "a.svg") == 2
    error = capsys.readouterr().err
    assert message in error and "variants.json" in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--accuracy", "val/nothing"], "no 'val/nothing'; it has ["),
        (["--smooth", "4"], "--smooth must be an odd number"),
    ],
)
def test_bad_options(
    options: list[str], message: str, curves: Path, results: Path, tmp_path: Path, capsys: Any
) -> None:
    """One line on stderr, no figure."""
    assert draw(curves, results, tmp_path / "a.svg", *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "a.svg").exists()


def test_other_formats_and_half_drawn_methods_are_refused(
    curves: Path, results: Path, tmp_path: Path, capsys: Any
) -> None:
    """Only SVG (or PNG, to look at); a method with reward but no accuracy would be a line without a name."""
    assert draw(curves, results, tmp_path / "a.pdf") == 2
    assert "must end in .svg" in capsys.readouterr().err
    lines = curves.read_text().splitlines(keepends=True)
    curves.write_text("".join(line for line in lines if not ("pg_is" in line and "avg@16" in line)))
    assert draw(curves, results, tmp_path / "a.svg", "--accuracy", "avg@16") == 2
    assert "not there for the same methods" in capsys.readouterr().err


def test_titles_are_text(curves: Path, results: Path, tmp_path: Path) -> None:
    """Dollar signs, angle brackets and ampersands in a title are drawn, not interpreted."""
    variants = {
        name: {"title": f"$x_{i}$ <b> & {name}", "mark": "N"} for i, name in enumerate(["pg_is", "dppo_topk_kl"])
    }
    (results / "variants.json").write_text(json.dumps(variants))
    assert draw(curves, results, tmp_path / "a.svg") == 0
    assert "<b>" not in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize("rows", [1, 3, 6])
def test_small_print_is_clear_of_the_axes(rows: int) -> None:
    """Whatever the number of settings: the lowest axis label ends above the small print. Its width is not covered."""
    figure, axes = new_figure(rows, 1, (6.0, 0.5 + 3.9 * rows), "one line\nand another")
    for (each,) in axes:
        each.set_xlabel("training step")
    figure.draw_without_rendering()
    lowest = min(each.xaxis.label.get_window_extent().y0 for (each,) in axes)
    (note,) = figure.texts
    assert note.get_window_extent().y1 < lowest and note.get_window_extent().y0 >= 0
    plt.close(figure)


def many_settings(curves: Path, names: Sequence[str]) -> Path:
    """curves.csv with the rows of its setting B under each of these names."""
    head, *lines = curves.read_text().splitlines(keepends=True)
    curves.write_text(head + "".join(line.replace("B,", f"{name},", 1) for name in names for line in lines))
    return curves


def test_settings_stand_in_the_order_given(curves: Path, results: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """--settings, not the alphabet; a setting that it does not name comes behind. Ticks of steps are whole numbers."""
    drawn = []
    monkeypatch.setattr("eval.figures.curves.save", lambda figure, *_: drawn.append(figure))
    assert draw(many_settings(curves, "bca"), results, tmp_path / "a.svg", "--settings", "c", "a") == 0
    axes = drawn[0].axes
    assert [each.get_title(loc="left") for each in axes[::2]] == [f"{name}: Rollout reward" for name in "cab"]
    assert all(float(tick).is_integer() for each in axes for tick in each.get_xticks())
    plt.close(drawn[0])


def test_axes_say_what_they_show(curves: Path, results: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Another --reward is not called a reward; accuracy names its scale and, where known, its temperature."""
    extra = ["B,pg_is,0,1,kl,0.1,\n", "B,dppo_topk_kl,0,1,kl,0.2,\n"]
    extra += ["B,pg_is,0,4,sampling/temperature,0.5,\n", "B,pg_is,0,4,val/temperature,0.7,\n"]
    curves.write_text(curves.read_text() + "".join(extra))
    drawn = []
    monkeypatch.setattr("eval.figures.curves.save", lambda figure, output, texts: drawn.append((figure, texts)))
    assert draw(curves, results, tmp_path / "a.svg", "--reward", "kl", "--smooth", "1") == 0
    assert draw(curves, results, tmp_path / "a.svg", "--accuracy", "val/accuracy") == 0
    (left, right), (_, validation) = (figure.axes for figure, _ in drawn)
    assert (left.get_title(loc="left"), left.get_ylabel()) == ("kl", "kl")
    assert right.get_ylabel() == "accuracy (lm-eval avg@16, temperature 0.5)"
    assert validation.get_ylabel() == "accuracy (validation samples, temperature 0.7)"
    assert drawn[0][1]["Title"] == "kl and accuracy against training step"
    assert "Accuracy: verl's validation" in drawn[1][1]["Description"]
    for figure, _ in drawn:
        plt.close(figure)
