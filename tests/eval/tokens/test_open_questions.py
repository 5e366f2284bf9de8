"""Property tests of the open questions: planted effects are found, absent settings left out; agreement of the table of
axes with workflows/config; a workflow test from made-up records to both figures.

Does not cover whether a record's numbers are right (tests/backend/test_token_records.py), the rows by
hand (test_contrasts.py), nor how the figures look.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from eval.files import InputError, read_csv
from eval.tokens import axes, open_questions
from eval.tokens.__main__ import main
from eval.tokens.figures import open as token_open
from eval.tokens.figures import staleness as token_staleness
from eval.tokens.rates import merge, rates
from methods.tokens import schema as token_schema

CONFIG = Path("workflows/config")
IDENTITY: dict[str, Any] = {"staleness": 8, "lr": 3e-4, "top_k": 20, "vocab_size": 205, "update": "unmasked"}


def test_merged_parts_have_the_rates_of_their_tokens() -> None:
    """Property: counts of disjoint parts, added, give the rates of all tokens."""
    random = np.random.default_rng(0)
    flags = [random.random(200) < 0.5 for _ in range(3)]
    change, part = random.normal(size=200), random.random(200) < 0.3
    rows = [rates(flags[0] & side, flags[1], flags[2], change).row() for side in (part, ~part)]
    assert merge(rows) == rates(flags[0], flags[1], flags[2], change)


def test_the_table_of_axes_says_what_the_configurations_say() -> None:
    """Agreement: each setting of an axis differs from its tier's base in its field (or its precisions) alone."""
    fields = {"staleness": {"staleness"}, "lr": {"lr"}, "precision": {"rollout_precision", "train_precision"}}
    seen = set()
    for name in ("study", "axes", "real"):
        settings = yaml.safe_load((CONFIG / f"{name}.yaml").read_text())["settings"]
        base = settings[axes.base_of(settings)]
        for axis in axes.AXES:
            for setting in (setting for setting in axis.settings if setting in settings):
                differs = {key for key in base | settings[setting] if base.get(key) != settings[setting].get(key)}
                assert differs and differs <= fields[axis.name], (name, setting)
                seen.add(setting)
        for setting, shown in axes.PRECISIONS.items():
            if setting in settings:
                pair = (
                    settings[setting].get("train_precision", "fp32"),
                    settings[setting].get("rollout_precision", "bf16"),
                )
                assert " / ".join(pair) == shown, (name, setting)
    assert seen == {setting for axis in axes.AXES for setting in axis.settings}


def test_a_setting_that_is_not_what_its_name_says_is_refused() -> None:
    """A record's staleness and learning rate are believed, not the setting's name."""
    staleness, lr, precision = axes.AXES
    settings = {
        "A_probe": IDENTITY,
        "staleness_2": IDENTITY | {"staleness": 2},
        "lr_low": IDENTITY | {"lr": 1e-4, "staleness": 2},
    }
    assert (
        axes.present(staleness, settings) == ["staleness_2"]
        and axes.group(staleness, "staleness_2", settings["staleness_2"]) == "staleness 2"
    )
    assert (
        axes.present(staleness, {"staleness_2": settings["staleness_2"], "staleness_4": settings["staleness_2"]}) == []
    )
    assert axes.base_of(["mine", "bf16"]) == "bf16" and axes.base_of(["mine", "other"]) == "mine"
    with pytest.raises(InputError, match=r"'lr_low' differs from 'A_probe' in \['staleness', 'lr'\]"):
        axes.present(lr, settings)
    with pytest.raises(InputError, match=r"in \['staleness'\].* may differ in its precisions alone"):
        axes.present(precision, {"A_probe": IDENTITY, "rollout_fp8": IDENTITY | {"staleness": 2}})
    with pytest.raises(InputError, match="in nothing"):
        axes.present(staleness, {"A_probe": IDENTITY, "staleness_4": IDENTITY})


def made_rows(
    setting: str, gap: float, *, update: str = "unmasked", parts: Mapping[str, float] | None = None
) -> list[Any]:
    """Twenty runs: D rises with probability 0.6, on what only the prediction keeps with 0.6 + gap (by part, if
    given)."""
    rows = []
    for seed in range(20):
        random = np.random.default_rng([seed, len(setting), round(100 * abs(gap)), update == "own"])
        ratio = random.random(3000) < 0.5
        outward = ratio ^ (random.random(3000) < 0.3)
        part = random.integers(len(parts or {"": 0}), size=3000)
        gaps = np.array(list(parts.values()) if parts else [gap])[part]
        rises = np.where(random.random(3000) < 0.6 + np.where(~outward & ratio, gaps, 0.0), 1.0, -1.0)
        subsets = {"all": np.full(3000, True)} | {name: part == index for index, name in enumerate(parts or {})}
        for subset, inside in subsets.items():
            key = {"setting": setting, "update": update, "variant": "m", "seed": seed, "measure": "forward_kl"}
            key |= {"delta": 0.15, "truth": "reduced", "criterion": "aggregated", "subset": subset}
            rows.append(key | rates(inside, outward, ratio, rises).row())
    return rows


def test_planted_effects_are_found_and_nothing_is_made_up() -> None:
    """Base: a gap of -0.3 in the first half of responses, none in the second; staleness 2: none; staleness 4: the
    base's mean.

    Questions whose settings, sweeps or causes are not there have no row.
    """
    parts = {"first half of response": -0.3, "second half of response": 0.0}
    seeds = made_rows("A_probe", 0.0, parts=parts) + made_rows("staleness_2", 0.0) + made_rows("staleness_4", -0.15)
    identities = {
        "A_probe": IDENTITY,
        "staleness_2": IDENTITY | {"staleness": 2},
        "staleness_4": IDENTITY | {"staleness": 4},
    }
    found = open_questions.rows(seeds, [], [], identities)
    gaps = {row["contrast"]: row for row in found if row["quantity"] == "gap" and row["criterion"] == "aggregated"}
    assert {row["question"] for row in found} == {"staleness", "position"}
    place = gaps["second half of response against first half of response"]
    assert place["low"] < 0.3 < place["high"] and place["low"] > 0 and place["n_seeds"] == 20
    assert gaps["staleness 2 against staleness 8"]["low"] > 0
    same = gaps["staleness 4 against staleness 8"]
    assert same["low"] < 0 < same["high"]
    assert gaps["mean over staleness 8, staleness 2, staleness 4"]["high"] < 0
    # Without the base no setting is compared, and without the probe nothing is.
    assert open_questions.rows(made_rows("staleness_2", 0.0), [], [], {"staleness_2": IDENTITY}) == []
    assert open_questions.rows(made_rows("A_own", -0.3, update="own", parts=parts), [], [], {}) == []


def made_record(path: Path, **identity: Any) -> None:
    """A record whose numbers are noise: 2,000 tokens of 6 steps with 4 mini-batches."""
    identity = {"version": 2, "method": "dppo_topk_kl", "variant": "dppo_topk_kl", "seed": 0} | IDENTITY | identity
    random = np.random.default_rng([identity["seed"], identity["staleness"], identity["update"] == "own"])
    columns: dict[str, pa.Array] = {}
    for name, kind in token_schema.columns((1, 20)).items():
        values: Any = random.normal(scale=0.5, size=2000)
        if name.endswith(("_before", "_after", "_divergence")):
            values = np.abs(values)
        if name.startswith("logp"):
            values = -np.abs(4 * values)
        if not kind.startswith("list"):
            columns[name] = pa.array(values.astype({"int16": "i2", "int32": "i4", "float32": "f4", "bool": "?"}[kind]))
    step = random.integers(1, 7, size=2000)
    place = {
        "step": step,
        "age": np.minimum(step - 1, identity["staleness"]),
        "mini_batch": random.integers(4, size=2000),
    }
    place |= {"position": random.integers(7, size=2000), "length": np.full(2000, 7)}
    columns |= {name: pa.array(values.astype("i2")) for name, values in place.items()}
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table(columns).replace_schema_metadata({"tether_token_record": json.dumps(identity)}), path)


def test_from_records_to_figures(tmp_path: Path) -> None:
    """Workflow: every question that the settings allow has rows of numbers; figures are the same bytes twice."""
    for seed in range(2):
        settings = (
            {"setting": "A_probe", "staleness": 3},
            {"setting": "staleness_2", "staleness": 2},
            {"setting": "A_own", "update": "own"},
        )
        for setting in settings:
            made_record(tmp_path / f"{setting['setting']}/{seed}/tokens.parquet", seed=seed, **setting)
    tables = ["--tables", str(tmp_path / "tables"), "--verdicts", str(tmp_path / "verdicts.csv")]
    assert main(["study", str(tmp_path), *tables]) == 0
    rows = read_csv(tmp_path / "tables/tokens_open.csv", "open questions", open_questions.COLUMNS)
    known = ["K", "delta", "staleness", "mini-batch index", "position", "mu of the sampled token", "update"]
    assert list(dict.fromkeys(row["question"] for row in rows)) == [*known, "curvature or other tokens"]
    assert {(row["question"], row["axis"]) for row in rows} <= {(q.name, q.axis) for q in open_questions.QUESTIONS}
    for row in rows:  # numbers, and names of a few words: no sentence
        assert all(row[name] in ("", "V", "nan") or float(row[name]) < 100 for name in ("value", "low", "high"))
        assert not any(". " in text or text.endswith(".") for text in row.values())
    contrasts = {row["contrast"] for row in rows}
    assert {
        "age 3 against age 0 to 2",
        "mini-batch 2 to 3 against mini-batch 0 to 1",
        "staleness 2 against staleness 3",
    } <= contrasts
    shares = [float(row["value"]) for row in rows if row["contrast"] in ("curvature", "other tokens' gradients")]
    assert len(shares) == 2 and sum(shares) == pytest.approx(1.0)
    groups = {row["setting"] for row in read_csv(tmp_path / "verdicts.csv", "verdicts")}
    assert {"setting A_probe, unmasked update", "setting A_own, own update of dppo_topk_kl"} <= groups
    for figure, name in ((token_open, "tokens_open"), (token_staleness, "tokens_seeds")):
        drawn = []
        for place in ("a.svg", "b.svg"):
            given = ["--table", str(tmp_path / f"tables/{name}.csv"), "--output", str(tmp_path / place)]
            assert figure.main(given) == 0
            drawn.append((tmp_path / place).read_bytes())
        assert drawn[0] == drawn[1] and b"95 % t interval over seeds" in drawn[0]


@pytest.mark.parametrize("figure", [token_open, token_staleness])
def test_figures_of_a_tier_without_the_settings(
    figure: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty table of differences, or settings without a base, end in one line that says what is missing."""
    columns = (
        [*open_questions.COLUMNS]
        if figure is token_open
        else ["setting", "subset", "seed", "measure", "delta", "truth"]
    )
    columns += ["criterion", "update"] if figure is token_staleness else []
    (tmp_path / "table.csv").write_text(",".join(columns) + "\n")
    assert figure.main(["--table", str(tmp_path / "table.csv"), "--output", str(tmp_path / "f.svg")]) == 2
    assert "table.csv: no rows with" in capsys.readouterr().err and not (tmp_path / "f.svg").exists()
