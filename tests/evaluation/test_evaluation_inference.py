"""The table `inference` against the slow oracle, and its rules one by one."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

sys.path.insert(0, str(Path(__file__).resolve().parent))

import oracle

from finevolve_pipeline.evaluation import ic
from finevolve_pipeline.evaluation.comparison import compare_with_pipe, ic_matrix
from finevolve_pipeline.evaluation.ic import Panel, make_axes
from finevolve_pipeline.evaluation.inference import holm_adjusted, infer, inference
from finevolve_pipeline.evaluation.stages import split_stages
from finevolve_pipeline.settings import EvaluationSettings, Experiment, load_settings
from finevolve_pipeline.tables import Inference
from finevolve_pipeline.universe import CODES

PIPE = Experiment(mechanism="pipe", backbone="rules")
MEM0 = Experiment(mechanism="mem0", backbone="rules")
SESSIONS = [session.isoformat() for session in load_settings().benchmark.sessions]
PLACE = ["mechanism", "stage", "metric", "method", "horizon", "quantity"]


def evaluation(**changes: object) -> EvaluationSettings:
    few = {"bootstrap_draws": 100, "min_industries": 2, "min_sessions": 3}
    return EvaluationSettings.model_validate({**load_settings().evaluation.model_dump(), **few, **changes})


def panel(score: np.ndarray, alpha: np.ndarray, horizons: Sequence[int]) -> Panel:
    return Panel(make_axes(SESSIONS[: score.shape[1]], horizons, CODES[: score.shape[2]]), score, alpha)


def random_values(rng: np.random.Generator, shape: tuple[int, ...], missing: float, levels: int) -> np.ndarray:
    """Normal values, rounded to few `levels` so that many are equal, with holes and a constant row and column."""
    values = np.round(rng.normal(size=shape) * levels) / levels
    values[rng.random(shape) < missing] = np.nan
    if rng.random() < 0.3:
        values[..., rng.integers(shape[-2]), :] = 0.5
    if rng.random() < 0.3:
        values[..., rng.integers(shape[-1])] = -0.5
    return values


def expected(
    score: Mapping[Experiment, np.ndarray], alpha: np.ndarray, horizons: Sequence[int], chosen: EvaluationSettings
) -> dict[tuple[object, ...], dict[str, float]]:
    """Rows by place, by the oracle, for runs of one backbone with one seed each."""
    together = np.isfinite(alpha) & np.logical_and.reduce([np.isfinite(s) for s in score.values()])
    rows: dict[tuple[object, ...], dict[str, float]] = {}
    for stage in split_stages(SESSIONS[: alpha.shape[1]], chosen):
        at = slice(stage.first, stage.end)
        long = max(oracle.block_of(h, stage.size) for h in horizons)
        for method in ("spearman", "pearson"):
            found: dict[tuple[str, str, int], tuple[oracle.Estimate, oracle.Estimate]] = {}
            for (experiment, values), (k, h) in itertools.product(score.items(), enumerate(horizons)):
                s = np.where(together[k], values[k], np.nan)[at].tolist()
                a, ok = alpha[k, at].tolist(), together[k, at].tolist()
                cross = oracle.cross_sectional(s, a, chosen.min_industries, method)
                found[experiment.mechanism, "csIC", h] = cross, cross
                blocks = (oracle.block_of(h, stage.size), long)
                dates = [
                    oracle.drawn_dates(stage.size, b, chosen.bootstrap_draws, chosen.bootstrap_seed) for b in blocks
                ]
                own, joint = (
                    oracle.time_series(s, a, ok, alpha.shape[2], chosen.min_sessions, method, d) for d in dates
                )
                found[experiment.mechanism, "tsIC", h] = own, joint
                for metric in ("csIC", "tsIC"):
                    level = found[experiment.mechanism, metric, h][0]
                    rows[experiment.mechanism, stage.name, metric, method, h, "level"] = {
                        **oracle.tests(level, h, stage.size, chosen),
                        **oracle.of_scores(s, a),
                    }
            others = [e.mechanism for e in score if e.mechanism != "pipe"] if PIPE in score else []
            for name, metric in itertools.product(others, ("csIC", "tsIC")):
                place = name, stage.name, metric, method
                averaged = []
                for h in horizons:
                    pairs = zip(found[name, metric, h], found["pipe", metric, h], strict=True)
                    own, joint = (oracle.combined([mine, pipe], [1.0, -1.0]) for mine, pipe in pairs)
                    rows[(*place, h, "difference")] = oracle.tests(own, h, stage.size, chosen)
                    averaged.append(joint)
                mean = oracle.combined(averaged, [1 / len(averaged)] * len(averaged))
                rows[(*place, 0, "difference")] = oracle.tests(mean, max(horizons), stage.size, chosen)
    for stage, method, quantity in itertools.product(
        ("cold_start", "exploitation", "overall"), ("spearman", "pearson"), ("level", "difference")
    ):
        family = [
            place
            for place, row in rows.items()
            if (place[1], place[3], place[5]) == (stage, method, quantity) and oracle.known(row["p"])
        ]
        p = [rows[place]["p"] for place in family]
        for place, by_holm, by_bh in zip(family, oracle.holm(p), oracle.benjamini_hochberg(p), strict=True):
            rows[place] |= {"p_holm": by_holm, "p_bh": by_bh}
    return rows


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[Experiment, np.ndarray], np.ndarray, tuple[int, ...]]:
    seed = draw(st.integers(0, 2**32 - 1))
    sessions = draw(st.sampled_from([1, 2, 4, 9, 24]))
    industries = draw(st.sampled_from([1, 2, 4]))
    horizons = draw(st.sampled_from([(1,), (2, 5), (1, 3, 8)]))
    missing = draw(st.sampled_from([0.0, 0.1, 0.5]))
    levels = draw(st.sampled_from([1, 4, 1000]))
    rng = np.random.default_rng(seed)
    shape = (len(horizons), sessions, industries)
    alpha = random_values(rng, shape, missing, levels)
    runs = (PIPE, MEM0) if draw(st.booleans()) else (MEM0,)
    return {run: random_values(rng, shape, missing, levels) for run in runs}, alpha, horizons


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # The oracle is too slow to look for the smallest world that fails.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(worlds())
def test_every_number_of_the_table_equals_the_slow_oracle(
    world: tuple[dict[Experiment, np.ndarray], np.ndarray, tuple[int, ...]],
) -> None:
    score, alpha, horizons = world
    chosen = evaluation()
    both = np.isfinite(alpha) & np.logical_and.reduce([np.isfinite(s) for s in score.values()])
    if not both.any() or not all((np.isfinite(s) & np.isfinite(alpha)).any() for s in score.values()):
        return  # which runs are compared at all has tests of its own
    found = infer({run: panel(s, alpha, horizons) for run, s in score.items()}, chosen)
    right = expected(score, alpha, horizons, chosen)
    assert set(found[PLACE].itertuples(index=False, name=None)) == set(right)
    for _, row in found.iterrows():
        for name, value in right[tuple(row[PLACE])].items():
            assert row[name] == pytest.approx(value, rel=1e-10, abs=1e-10, nan_ok=True), (tuple(row[PLACE]), name)


def walk(
    seed: int, sessions: int = 90, horizons: Sequence[int] = (2, 5), industries: int = 8
) -> tuple[np.ndarray, ...]:
    """Scores of two runs, and outcomes that overlap."""
    rng = np.random.default_rng(seed)
    shape = (len(horizons), sessions, industries)
    index = np.vstack([np.zeros(industries), rng.normal(size=(sessions + max(horizons), industries)).cumsum(axis=0)])
    alpha = np.stack([index[h : sessions + h] - index[:sessions] for h in horizons])
    return rng.normal(size=shape), rng.normal(size=shape), alpha


def pick(frame: pd.DataFrame, **where: object) -> pd.Series:
    for name, value in where.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1, where
    return frame.iloc[0]


def long_form(grid: np.ndarray, horizons: Sequence[int], day: str, value: str) -> pd.DataFrame:
    _, sessions, industries = grid.shape
    places = itertools.product(range(len(horizons)), range(sessions), range(industries))
    rows = [{day: SESSIONS[t], "code": CODES[n], "horizon": horizons[h], value: grid[h, t, n]} for h, t, n in places]
    return pd.DataFrame(rows)


def test_estimates_are_those_of_the_ic_matrix_and_of_the_comparison() -> None:
    pipe, mem0, alpha = walk(1)
    mem0[0, 4] = np.nan
    predictions = {PIPE: long_form(pipe, (2, 5), "session", "score"), MEM0: long_form(mem0, (2, 5), "session", "score")}
    outcomes = long_form(alpha, (2, 5), "predicted_on", "alpha")
    arguments = (outcomes, SESSIONS[:90], evaluation(), CODES[:8])
    table, matrix = inference(predictions, *arguments), ic_matrix(predictions, *arguments)
    where = ["mechanism", "stage", "metric", "method", "horizon"]
    levels = table[table["quantity"] == "level"].merge(matrix[matrix["cells"] == "common"], on=where)
    assert len(levels) == 2 * 3 * 2 * 2 * 2
    np.testing.assert_allclose(levels["estimate"], levels["value"], atol=1e-14)
    assert (levels["defined_x"] == levels["defined_y"]).all()
    assert (levels["undefined_x"] == levels["undefined_y"]).all()
    np.testing.assert_allclose(levels["coverage_x"], levels["coverage_y"])
    gains = compare_with_pipe(matrix)
    differences = table[table["quantity"] == "difference"].merge(gains[gains["mechanism"] == "mem0"], on=where)
    assert len(differences) == 3 * 2 * 2 * 3
    np.testing.assert_allclose(differences["estimate"], differences["gain"], atol=1e-14)


def test_a_difference_is_paired_so_a_twin_of_pipe_differs_by_nothing() -> None:
    pipe, other, alpha = walk(2)
    close = np.where(np.arange(90)[None, :, None] % 30 == 0, other, pipe)
    table = infer({PIPE: panel(pipe, alpha, (2, 5)), MEM0: panel(close, alpha, (2, 5))}, evaluation())
    for metric in ("csIC", "tsIC"):
        where = {"stage": "overall", "metric": metric, "method": "spearman", "horizon": 5, "mechanism": "mem0"}
        level, difference = (pick(table, quantity=q, **where) for q in ("level", "difference"))
        assert difference["standard_error"] < 0.7 * level["standard_error"]
    twin = infer({PIPE: panel(pipe, alpha, (2, 5)), MEM0: panel(pipe, alpha, (2, 5))}, evaluation())
    differences = twin[twin["quantity"] == "difference"]
    assert (differences["estimate"] == 0).all()
    assert differences[["standard_error", "p", "p_holm", "low", "p_naive"]].isna().all(axis=None)


def test_levels_and_differences_are_two_families_and_undefined_tests_belong_to_none() -> None:
    pipe, mem0, alpha = walk(3)
    table = infer({PIPE: panel(pipe, alpha, (2, 5)), MEM0: panel(mem0, alpha, (2, 5))}, evaluation())
    for _, family in table.groupby(["stage", "method", "quantity"]):
        tested = family[family["p"].notna()]
        assert len(tested) > 3
        for column, method in (("p_holm", "holm"), ("p_bh", "fdr_bh")):
            np.testing.assert_allclose(tested[column], multipletests(tested["p"], method=method)[1], atol=1e-14)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_is_that_of_statsmodels(p: list[float]) -> None:
    with patch("gc.collect"):  # statsmodels collects all garbage of the process at each call
        theirs = multipletests(p, method="holm")[1]
    np.testing.assert_allclose(holm_adjusted(np.array(p)), theirs, atol=1e-15)


def test_the_order_of_runs_and_their_company_change_nothing() -> None:
    pipe, mem0, alpha = walk(4)
    panels = {PIPE: panel(pipe, alpha, (2, 5)), MEM0: panel(mem0, alpha, (2, 5))}
    forwards, backwards = infer(panels, evaluation()), infer(dict(reversed(panels.items())), evaluation())
    key = [*PLACE]
    pd.testing.assert_frame_equal(
        forwards.sort_values(key).reset_index(drop=True), backwards.sort_values(key).reset_index(drop=True)
    )
    alone = infer({MEM0: panels[MEM0]}, evaluation())
    columns = [*PLACE, "estimate", "standard_error", "p"]
    both = alone[columns].merge(forwards[columns], on=PLACE)
    assert len(both) == len(alone) == 24
    np.testing.assert_array_equal(both["standard_error_x"], both["standard_error_y"])


def test_backbones_never_meet() -> None:
    pipe, mem0, alpha = walk(5)
    foreign = Experiment(mechanism="mem0", backbone="other")
    table = infer({PIPE: panel(pipe, alpha, (2, 5)), foreign: panel(mem0, alpha, (2, 5))}, evaluation())
    assert (table["quantity"] == "level").all()
    assert set(zip(table["backbone"], table["mechanism"], strict=True)) == {("rules", "pipe"), ("other", "mem0")}


def test_another_pipe_is_a_mechanism_like_any_other() -> None:
    pipe, again, alpha = walk(6)
    second = Experiment(mechanism="pipe_aa", backbone="rules")
    table = infer({PIPE: panel(pipe, alpha, (2, 5)), second: panel(again, alpha, (2, 5))}, evaluation())
    assert set(table.loc[table["quantity"] == "difference", "mechanism"]) == {"pipe_aa"}


def test_a_run_without_a_cell_has_rows_and_takes_nothing_from_the_others() -> None:
    pipe, mem0, alpha = walk(7)
    nothing = panel(np.full_like(mem0, np.nan), alpha, (2, 5))
    table = infer({MEM0: nothing, PIPE: panel(pipe, alpha, (2, 5))}, evaluation())
    alone = infer({PIPE: panel(pipe, alpha, (2, 5))}, evaluation())
    mine = table[table["mechanism"] == "pipe"].drop(columns=["p_holm", "p_bh"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(mine, alone.drop(columns=["p_holm", "p_bh"]))
    absent = table[table["mechanism"] == "mem0"]
    assert absent[["estimate", "standard_error", "p"]].isna().all(axis=None)
    assert (absent["defined"] == 0).all()


def test_a_stage_in_which_all_days_overlap_has_an_estimate_and_no_test() -> None:
    pipe, mem0, alpha = walk(8, sessions=60, horizons=(30,))
    table = infer({PIPE: panel(pipe, alpha, (30,)), MEM0: panel(mem0, alpha, (30,))}, evaluation())
    cold = table[table["stage"] == "cold_start"]
    assert set(cold["sessions"]) == {20}
    assert cold["estimate"].notna().all()
    assert cold[["standard_error", "p", "low", "p_fixed_b", "p_hansen_hodrick"]].isna().all(axis=None)
    assert table.loc[table["stage"] == "overall", "p"].notna().all()


def test_an_empty_comparison_has_the_columns_and_no_row() -> None:
    alpha = long_form(walk(9)[2], (2, 5), "predicted_on", "alpha")
    table = inference({}, alpha, SESSIONS[:90], evaluation())
    assert list(table.columns) == list(Inference.to_schema().columns)
    assert table.empty


def test_hits_count_cells_where_score_and_outcome_point_somewhere() -> None:
    score = np.array([[[0.5, 0.0, -0.5, 0.2, np.nan]] * 30])
    alpha = np.array([[[0.1, 0.1, 0.3, 0.0, 0.1]] * 30])
    level = pick(
        infer({PIPE: panel(score, alpha, (2,))}, evaluation()), stage="overall", metric="csIC", method="pearson"
    )
    assert level["hit_rate"] == 0.5
    assert level["coverage"] == 0.8
    assert level["dispersion"] == pytest.approx(np.std([0.5, 0.0, -0.5, 0.2], ddof=1))


def test_a_signal_is_found_and_its_interval_holds_it() -> None:
    noise, _, alpha = walk(10, sessions=250, horizons=(2,), industries=31)
    signal = noise + 0.15 * alpha
    table = infer({PIPE: panel(noise, alpha, (2,)), MEM0: panel(signal, alpha, (2,))}, evaluation(min_sessions=20))
    for metric in ("csIC", "tsIC"):
        row = pick(table, stage="overall", metric=metric, method="pearson", horizon=2, quantity="difference")
        assert row["p_holm"] < 0.001
        assert (
            row["low"] < ic.correlate(signal, alpha, axis=1, min_pairs=5, method="pearson").value.mean() < row["high"]
        )
        assert row["minimum_detectable"] < row["estimate"]


def test_no_number_depends_on_the_scale_of_scores_or_outcomes() -> None:
    pipe, mem0, alpha = walk(11)
    plain = infer({PIPE: panel(pipe, alpha, (2, 5)), MEM0: panel(mem0, alpha, (2, 5))}, evaluation())
    scaled = infer(
        {PIPE: panel(pipe * 1e-150, alpha * 1e9, (2, 5)), MEM0: panel(mem0 * 1e-150, alpha * 1e9, (2, 5))}, evaluation()
    )
    for column in ("estimate", "standard_error", "p", "p_fixed_b"):
        np.testing.assert_allclose(scaled[column], plain[column], rtol=1e-9, atol=1e-12)
    assert math.isfinite(float(plain["p"].sum()))


def seeded(mechanism: str, seed: int) -> Experiment:
    return Experiment(mechanism=mechanism, backbone="rules", seed=seed)


def test_runs_that_differ_in_their_seed_are_averaged_and_paired_with_the_mean_of_pipes_seeds() -> None:
    first, second, alpha = walk(12)
    third, fourth, _ = walk(13)
    scores = {("pipe", 0): first, ("pipe", 1): second, ("mem0", 0): third, ("mem0", 1): fourth}
    together = infer({seeded(*run): panel(score, alpha, (2, 5)) for run, score in scores.items()}, evaluation())
    alone = {
        run: infer({seeded(run[0], 0): panel(score, alpha, (2, 5))}, evaluation()) for run, score in scores.items()
    }
    for metric, method in itertools.product(("csIC", "tsIC"), ("spearman", "pearson")):
        where = {"stage": "overall", "metric": metric, "method": method, "horizon": 5}
        each = {run: float(pick(table, quantity="level", **where)["estimate"]) for run, table in alone.items()}
        level = pick(together, mechanism="mem0", quantity="level", **where)
        assert level["estimate"] == pytest.approx(np.mean([each["mem0", 0], each["mem0", 1]]), abs=1e-12)
        assert level["seed_sd"] == pytest.approx(np.std([each["mem0", 0], each["mem0", 1]], ddof=1), abs=1e-12)
        difference = pick(together, mechanism="mem0", quantity="difference", **where)
        pipe = np.mean([each["pipe", 0], each["pipe", 1]])
        assert difference["estimate"] == pytest.approx(level["estimate"] - pipe, abs=1e-12)
        assert level["seeds"] == difference["seeds"] == 2
    assert not together.duplicated(PLACE).any()


def test_a_seed_that_has_not_run_leaves_the_others_alone() -> None:
    first, second, alpha = walk(14)
    nothing = np.full_like(first, np.nan)
    panels = {seeded("pipe", 0): panel(first, alpha, (2, 5)), seeded("mem0", 0): panel(second, alpha, (2, 5))}
    without = infer(panels, evaluation())
    waiting = infer({seeded("mem0", 1): panel(nothing, alpha, (2, 5)), **panels}, evaluation())
    assert set(waiting["seeds"]) == {1}
    both = without.merge(waiting, on=PLACE)
    assert len(both) == len(without) == len(waiting)
    np.testing.assert_array_equal(both["p_x"], both["p_y"])
