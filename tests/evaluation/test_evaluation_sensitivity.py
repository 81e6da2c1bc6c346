"""Sensitivity: every variant against its own computation, and worlds in which a conclusion must or must not survive."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from finevolve_pipeline.evaluation import ic
from finevolve_pipeline.evaluation.inference import inference
from finevolve_pipeline.evaluation.sensitivity import (
    CUTOFF_CHANGE,
    HEADLINE,
    Place,
    change,
    conclusions,
    finding,
    sensitivity,
    survivals,
    variants,
    within_span,
)
from finevolve_pipeline.market.alpha import BASES
from finevolve_pipeline.settings import Experiment, Settings, load_settings
from finevolve_pipeline.universe import CODES

HORIZONS = (1, 2)
SHAPE_CODES = CODES[:12]
PIPE = Experiment(mechanism="pipe", backbone="rules")
MEM0 = Experiment(mechanism="mem0", backbone="rules")
MEMRL = Experiment(mechanism="memrl", backbone="rules")


def small_settings(last: str = "2025-06-30", **sections: Any) -> Settings:
    """118 sessions by default, 12 industries, horizons 1 and 2, few draws."""
    evaluation = {"bootstrap_draws": 200, "min_sessions": 10, **sections.pop("evaluation", {})}
    return load_settings(
        overrides={
            "benchmark": {
                "first_session": "2025-01-02",
                "last_session": last,
                "horizons": list(HORIZONS),
                "industries": list(SHAPE_CODES),
            },
            "experiments": {"mechanisms": ["pipe", "mem0", "memrl"], "backbones": ["rules"]},
            "evaluation": evaluation,
            **sections,
        }
    )


SETTINGS = small_settings()
DAYS = [session.isoformat() for session in SETTINGS.benchmark.sessions]
SHAPE = (len(HORIZONS), len(DAYS), len(SHAPE_CODES))


def long_form(grid: np.ndarray, day: str, value: str) -> pd.DataFrame:
    """Horizons x sessions x industries as a long table."""
    places = pd.MultiIndex.from_product([HORIZONS, DAYS[: grid.shape[1]], SHAPE_CODES], names=["horizon", day, "code"])
    return pd.DataFrame({value: grid.reshape(-1)}, index=places).reset_index()


def labels_of(**by_base: np.ndarray) -> pd.DataFrame:
    """`LabelBases` with one grid per base; a base that is not given has the labels of close_t."""
    grids = {base: by_base.get(base, by_base["close_t"]) for base in BASES}
    return pd.concat([long_form(grid, "predicted_on", "alpha").assign(base=base) for base, grid in grids.items()])


def runs_of(scores: dict[Experiment, np.ndarray]) -> dict[Experiment, pd.DataFrame]:
    return {experiment: long_form(grid, "session", "score") for experiment, grid in scores.items()}


def noisy(rng: np.random.Generator, signal: np.ndarray, strength: float) -> np.ndarray:
    """Scores in [-1, 1] that know the signal as well as `strength` says; 0: not at all."""
    return np.tanh(strength * signal + rng.normal(size=SHAPE))


@pytest.fixture(scope="module")
def alpha() -> np.ndarray:
    return np.random.default_rng(3).normal(0, 0.03, SHAPE)


def scored(alpha: np.ndarray, pipe: float, mem0: float, memrl: float) -> dict[Experiment, np.ndarray]:
    rng, signal = np.random.default_rng(4), alpha / alpha.std()
    return {e: noisy(rng, signal, size) for e, size in ((PIPE, pipe), (MEM0, mem0), (MEMRL, memrl))}


def pick(
    table: pd.DataFrame, variant: str, experiment: Experiment, metric: str, horizon: int, **where: Any
) -> pd.Series:
    chosen = {"variant": variant, "mechanism": experiment.mechanism, "metric": metric, "horizon": horizon}
    for column, value in {"quantity": "level", "stage": "overall", **chosen, **where}.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


def outcome_of(table: pd.DataFrame, variant: str) -> str:
    (fate,) = [fate for fate in survivals(table) if fate.variant == variant]
    return fate.outcome


def test_each_variant_changes_one_thing_of_the_headline() -> None:
    evaluation = SETTINGS.evaluation
    listed = {(one.name, one.stage): one for one in variants(evaluation, splits_at_cutoff=True)}
    assert [name for name, stage in listed if stage == "overall"] == [
        *("headline", "pearson", "own_cells", "undefined_zero"),
        *("open_next", "close_next", "before_cutoff", "after_cutoff"),
    ]
    assert [name for name, stage in listed if stage == "exploitation"] == ["headline", "split_half"]
    first = listed["headline", "overall"]
    for one in listed.values():
        changed = [key for key in evaluation.model_dump() if getattr(one.settings, key) != getattr(evaluation, key)]
        others = [one.cells != first.cells, not math.isnan(one.undefined), one.span != "all"]
        assert len(changed) + sum(others) == (one.name != HEADLINE)


def test_without_a_declared_cutoff_nothing_is_split() -> None:
    names = [one.name for one in variants(SETTINGS.evaluation, splits_at_cutoff=False)]
    assert not any(name.endswith("_cutoff") for name in names)


def test_another_headline_has_the_other_variants() -> None:
    settings = small_settings(evaluation={"headline": "pearson", "label_base": "open_next", "stage_split": "half"})
    names = [one.name for one in variants(settings.evaluation, splits_at_cutoff=False)]
    expected = ["headline", "spearman", "own_cells", "undefined_zero", "close_t", "close_next", "headline"]
    assert names == [*expected, "split_third"]


@pytest.mark.parametrize(
    ("estimate", "p", "expected"),
    [
        (0.1, 0.049, "above"),
        (-0.1, 0.049, "below"),
        (0.1, 0.05, "noise"),
        (0.1, math.nan, "untested"),
        (math.nan, 0.01, "untested"),
    ],
)
def test_what_a_test_says(estimate: float, p: float, expected: str) -> None:
    assert finding(estimate, p, 0.95) == expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("above", "above", "same"),
        ("noise", "noise", "same"),
        ("noise", "below", "new"),
        ("above", "noise", "weaker"),
        ("above", "below", "reversed"),
        ("above", "untested", "untested"),
        ("untested", "noise", "untested"),
    ],
)
def test_how_a_finding_changes(before: Any, now: Any, expected: str) -> None:
    assert change(before, now) == expected


def test_the_headline_is_the_table_of_inference(alpha: np.ndarray) -> None:
    runs, labels = runs_of(scored(alpha, 0.2, 0.5, 0.2)), labels_of(close_t=alpha)
    found = sensitivity(runs, labels, SETTINGS)
    of_the_paper = labels[labels["base"] == "close_t"]
    table = inference(runs, of_the_paper, DAYS, SETTINGS.evaluation, codes=SHAPE_CODES)
    for stage in ("overall", "exploitation"):
        mine = found[(found["variant"] == HEADLINE) & (found["stage"] == stage)]
        theirs = table[(table["method"] == "spearman") & (table["stage"] == stage)]
        columns = ["mechanism", "metric", "horizon", "quantity", "estimate", "low", "high", "p", "p_holm", "sessions"]
        pd.testing.assert_frame_equal(mine[columns].reset_index(drop=True), theirs[columns].reset_index(drop=True))


def test_a_clear_difference_survives_every_change(alpha: np.ndarray) -> None:
    table = sensitivity(runs_of(scored(alpha, 0.2, 1.2, 0.2)), labels_of(close_t=alpha), SETTINGS)
    (headline,) = [one for one in conclusions(table) if (one.variant, one.stage) == (HEADLINE, "overall")]
    assert {headline.findings[Place("mem0", metric, h)] for metric in ic.METRICS for h in HORIZONS} == {"above"}
    assert {headline.findings[Place("memrl", metric, h)] for metric in ic.METRICS for h in HORIZONS} == {"noise"}
    assert {fate.variant: fate.outcome for fate in survivals(table)} == dict.fromkeys(
        ["pearson", "own_cells", "undefined_zero", "open_next", "close_next", "split_half"], "same"
    )


def test_one_wild_return_a_day_turns_the_conclusion_under_pearson(alpha: np.ndarray) -> None:
    """Ranks see eleven industries in the right order; the numbers are carried by the twelfth, in the wrong one."""
    rng = np.random.default_rng(9)
    wild = alpha.copy()
    wild[:, :, 0] = 3.0 + rng.random(SHAPE[:2])
    runs = scored(alpha, 0.0, 1.5, 0.0)
    runs[MEM0][:, :, 0] = -1.0
    table = sensitivity(runs_of(runs), labels_of(close_t=wild), SETTINGS)
    (fate,) = [fate for fate in survivals(table) if fate.variant == "pearson"]
    assert {fate.changes[Place("mem0", "csIC", h)] for h in HORIZONS} == {"reversed"}
    assert fate.outcome == "reversed"
    assert outcome_of(table, "undefined_zero") == "same"


def test_labels_from_another_base_are_those_that_count(alpha: np.ndarray) -> None:
    table = sensitivity(runs_of(scored(alpha, 0.1, 1.2, 0.1)), labels_of(close_t=alpha, open_next=-alpha), SETTINGS)
    assert outcome_of(table, "open_next") == "reversed"
    assert outcome_of(table, "close_next") == "same"
    for metric in ic.METRICS:
        row, other = (pick(table, name, MEM0, metric, 1) for name in (HEADLINE, "open_next"))
        assert other["estimate"] == pytest.approx(-row["estimate"], abs=1e-12)
        assert other["label_base"] == "open_next"


def test_undefined_as_zero_is_the_mean_over_all_days_and_industries(alpha: np.ndarray) -> None:
    runs = scored(alpha, 0.3, 0.6, 0.3)
    runs[MEM0][:, 10:40] = 0.5  # constant: no correlation over industries
    runs[MEM0][:, :, 2] = 0.5  # nor over days
    table = sensitivity(runs_of(runs), labels_of(close_t=alpha), SETTINGS)
    axes = ic.make_axes(DAYS, HORIZONS, SHAPE_CODES)
    panels = {e: ic.Panel(axes, grid, alpha) for e, grid in runs.items()}
    for position, horizon in enumerate(HORIZONS):
        by_day = {
            e: ic.cross_sectional_ic(p, SETTINGS.evaluation, "spearman").value[position] for e, p in panels.items()
        }
        assert np.isnan(by_day[MEM0]).sum() == 30
        filled = {e: np.where(np.isnan(series), 0.0, series) for e, series in by_day.items()}
        level = pick(table, "undefined_zero", MEM0, "csIC", horizon)
        paired = pick(table, "undefined_zero", MEM0, "csIC", horizon, quantity="difference")
        left_out = pick(table, HEADLINE, MEM0, "csIC", horizon)
        assert level["estimate"] == pytest.approx(filled[MEM0].sum() / len(DAYS), abs=1e-12)
        assert paired["estimate"] == pytest.approx((filled[MEM0] - filled[PIPE]).mean(), abs=1e-12)
        assert left_out["estimate"] == pytest.approx(np.nanmean(by_day[MEM0]), abs=1e-12)
        by_industry = ic.correlate(
            panels[MEM0].score[position], alpha[position], axis=0, min_pairs=10, method="spearman"
        ).value
        assert np.isnan(by_industry).sum() == 1
        of_industries = pick(table, "undefined_zero", MEM0, "tsIC", horizon)
        assert of_industries["estimate"] == pytest.approx(np.nansum(by_industry) / len(SHAPE_CODES), abs=1e-12)


def test_own_cells_compare_each_mechanism_with_pipe_whatever_a_third_run_lacks(alpha: np.ndarray) -> None:
    runs = scored(alpha, 0.2, 0.9, 0.4)
    runs[MEMRL][:, 60:] = np.nan
    runs[MEM0][:, :5] = np.nan
    table = sensitivity(runs_of(runs), labels_of(close_t=alpha), SETTINGS)
    axes = ic.make_axes(DAYS, HORIZONS, SHAPE_CODES)
    series = {
        e: ic.cross_sectional_ic(ic.Panel(axes, grid, alpha), SETTINGS.evaluation, "spearman").value[0]
        for e, grid in runs.items()
    }
    own = pick(table, "own_cells", MEM0, "csIC", 1)
    assert own["estimate"] == pytest.approx(series[MEM0][5:].mean(), abs=1e-12)
    paired = pick(table, "own_cells", MEM0, "csIC", 1, quantity="difference")
    assert paired["estimate"] == pytest.approx((series[MEM0] - series[PIPE])[5:].mean(), abs=1e-12)
    headline = pick(table, HEADLINE, MEM0, "csIC", 1, quantity="difference")
    assert headline["estimate"] == pytest.approx((series[MEM0] - series[PIPE])[5:60].mean(), abs=1e-12)


def with_cutoff(day: str) -> Settings:
    return small_settings(backbones={"rules": {"knowledge_cutoff": day}})


def test_an_ability_that_ends_at_the_cutoff_is_found_as_contamination(alpha: np.ndarray) -> None:
    cutoff = DAYS[58]
    runs = scored(alpha, 1.0, 1.0, 1.0)
    rng = np.random.default_rng(8)
    for grid in runs.values():
        grid[:, 59:] = rng.uniform(-1, 1, grid[:, 59:].shape)
    table = sensitivity(runs_of(runs), labels_of(close_t=alpha), with_cutoff(cutoff))
    for horizon in HORIZONS:
        before, after, both = (
            pick(table, name, PIPE, "csIC", horizon) for name in ("before_cutoff", "after_cutoff", CUTOFF_CHANGE)
        )
        assert (before["finding"], after["finding"], both["finding"]) == ("above", "noise", "below")
        assert (before["sessions"], after["sessions"]) == (59, len(DAYS) - 59)
        assert both["estimate"] == pytest.approx(after["estimate"] - before["estimate"], abs=1e-12)
        assert both["low"] < both["estimate"] < both["high"] < 0


def test_an_ability_that_stays_is_no_contamination(alpha: np.ndarray) -> None:
    table = sensitivity(runs_of(scored(alpha, 1.0, 1.0, 1.0)), labels_of(close_t=alpha), with_cutoff(DAYS[58]))
    changes = table[(table["variant"] == CUTOFF_CHANGE) & (table["metric"] == "csIC")]
    assert set(changes["finding"]) == {"noise"}
    assert ((changes["low"] < 0) & (changes["high"] > 0)).all()


def test_a_side_with_too_few_sessions_is_untested(alpha: np.ndarray) -> None:
    table = sensitivity(runs_of(scored(alpha, 1.0, 1.0, 1.0)), labels_of(close_t=alpha), with_cutoff(DAYS[0]))
    assert set(table.loc[table["variant"] == "before_cutoff", "finding"]) == {"untested"}
    assert set(table.loc[table["variant"] == CUTOFF_CHANGE, "finding"]) == {"untested"}
    assert outcome_of(table, "before_cutoff") == "untested"


@pytest.mark.parametrize(("day", "sides"), [("2024-12-31", ["after_cutoff"]), ("2026-01-01", ["before_cutoff"])])
def test_a_cutoff_beyond_the_window_leaves_one_side_empty(alpha: np.ndarray, day: str, sides: list[str]) -> None:
    table = sensitivity(runs_of(scored(alpha, 0.2, 0.2, 0.2)), labels_of(close_t=alpha), with_cutoff(day))
    assert [name for name in dict.fromkeys(table["variant"]) if name.endswith(("_cutoff", "_change"))] == sides
    assert outcome_of(table, sides[0]) == "same"


def test_the_day_of_the_cutoff_lies_before_it(alpha: np.ndarray) -> None:
    axes = ic.make_axes(DAYS, HORIZONS, SHAPE_CODES)
    panel = ic.Panel(axes, alpha, alpha)
    cutoffs = {"rules": dt.date.fromisoformat(DAYS[3])}
    before, after = (within_span({PIPE: panel}, cutoffs, span)[PIPE] for span in ("before", "after"))
    assert before.axes.sessions == tuple(DAYS[:4])
    assert after.axes.sessions == tuple(DAYS[4:])
    np.testing.assert_array_equal(np.concatenate([before.score, after.score], axis=1), alpha)


def test_nothing_replayed_is_an_empty_table(alpha: np.ndarray) -> None:
    assert len(sensitivity({}, labels_of(close_t=alpha), SETTINGS)) == 0
