"""Information coefficients against plain loops over scipy, and at their edges."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from finevolve_pipeline.errors import TableError
from finevolve_pipeline.evaluation import ic
from finevolve_pipeline.evaluation.comparison import ic_matrix
from finevolve_pipeline.evaluation.stages import split_stages
from finevolve_pipeline.settings import EvaluationSettings, Experiment, load_settings
from finevolve_pipeline.universe import CODES

HORIZONS = (10, 20, 40)
PIPE = Experiment(mechanism="pipe", backbone="rules")
MEM0 = Experiment(mechanism="mem0", backbone="rules")


def evaluation(**changes: object) -> EvaluationSettings:
    return EvaluationSettings.model_validate({**load_settings().evaluation.model_dump(), **changes})


def window(count: int) -> list[str]:
    return [session.isoformat() for session in load_settings().benchmark.sessions[:count]]


def long_form(grid: np.ndarray, sessions: list[str], horizons: tuple[int, ...], day: str, value: str) -> pd.DataFrame:
    codes = CODES[: grid.shape[2]]
    rows = [
        {day: sessions[t], "code": codes[n], "horizon": horizons[h], value: grid[h, t, n]}
        for h, t, n in itertools.product(*map(range, grid.shape))
    ]
    return pd.DataFrame(rows)


def tables(score: np.ndarray, alpha: np.ndarray, horizons: tuple[int, ...]) -> tuple[pd.DataFrame, pd.DataFrame, list]:
    sessions = window(score.shape[1])
    return (
        long_form(score, sessions, horizons, "session", "score"),
        long_form(alpha, sessions, horizons, "predicted_on", "alpha"),
        sessions,
    )


def naive(x: np.ndarray, y: np.ndarray, minimum: int, method: str) -> float:
    ok = ~np.isnan(x) & ~np.isnan(y)
    x, y = x[ok], y[ok]
    if len(x) < minimum or len(set(x)) < 2 or len(set(y)) < 2:
        return math.nan
    return float((stats.spearmanr if method == "spearman" else stats.pearsonr)(x, y).statistic)


def random_grids(seed: int, shape: tuple[int, int, int], missing: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    score = np.round(rng.uniform(-1, 1, shape), 1)
    alpha = rng.normal(0, 0.05, shape) + 0.02 * score
    score[rng.random(shape) < missing] = np.nan
    alpha[rng.random(shape) < missing] = np.nan
    return score, alpha


def pick(frame: pd.DataFrame, **where: object) -> pd.Series:
    for column, value in where.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1
    return frame.iloc[0]


@pytest.mark.parametrize("method", ic.METHODS)
def test_every_row_equals_a_plain_loop_over_scipy(method: ic.Method) -> None:
    score, alpha = random_grids(1, (3, 75, 31))
    predictions, outcomes, sessions = tables(score, alpha, HORIZONS)
    found = ic.information_coefficients(PIPE, predictions, outcomes, sessions, evaluation())
    for stage, part in (
        ("cold_start", slice(0, 25)),
        ("exploitation", slice(25, 75)),
        ("overall", slice(0, 75)),
    ):
        for position, horizon in enumerate(HORIZONS):
            s, a = score[position, part], alpha[position, part]
            across = np.array([naive(s[t], a[t], 5, method) for t in range(len(s))])
            along = np.array([naive(s[:, n], a[:, n], 20, method) for n in range(31)])
            for metric, values in (("csIC", across), ("tsIC", along)):
                row = pick(found, stage=stage, horizon=horizon, metric=metric, method=method)
                defined = values[~np.isnan(values)]
                expected = defined.mean() if len(defined) else math.nan
                assert row["value"] == pytest.approx(expected, abs=1e-12, nan_ok=True)
                assert row["defined"] == len(defined)
                assert row["undefined"] == len(values) - len(defined)
                assert row["value_undefined_zero"] == pytest.approx(np.nan_to_num(values).mean(), abs=1e-12)
                both = int((~np.isnan(s) & ~np.isnan(a)).sum())
                assert row["pairs"] == both
                assert row["coverage"] == pytest.approx(both / (~np.isnan(a)).sum())


tied = st.one_of(st.just(math.nan), st.integers(-3, 3).map(lambda n: n / 4), st.floats(-1, 1, width=16))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), rows=st.integers(1, 4), length=st.integers(1, 9), method=st.sampled_from(ic.METHODS))
def test_correlations_with_any_gaps_and_ties_equal_scipy(
    data: st.DataObject, rows: int, length: int, method: ic.Method
) -> None:
    size = rows * length
    x = np.array(data.draw(st.lists(tied, min_size=size, max_size=size))).reshape(rows, length)
    y = np.array(data.draw(st.lists(tied, min_size=size, max_size=size))).reshape(rows, length)
    found = ic.correlate(x, y, axis=1, min_pairs=3, method=method)
    expected = [naive(x[row], y[row], 3, method) for row in range(rows)]
    np.testing.assert_allclose(found.value, expected, atol=1e-7)
    np.testing.assert_array_equal(found.pairs, (~np.isnan(x) & ~np.isnan(y)).sum(axis=1))
    turned = ic.correlate(x.T, y.T, axis=0, min_pairs=3, method=method)
    np.testing.assert_array_equal(found.value, turned.value)


def test_a_gap_of_one_horizon_never_touches_another() -> None:
    score, alpha = random_grids(2, (3, 60, 31), missing=0.0)
    predictions, outcomes, sessions = tables(score, alpha, HORIZONS)
    whole = ic.information_coefficients(PIPE, predictions, outcomes, sessions, evaluation())
    holed = predictions.assign(score=predictions["score"].mask(predictions["horizon"] == 20))
    gaps = ic.information_coefficients(PIPE, holed, outcomes, sessions, evaluation())
    others = whole["horizon"] != 20
    pd.testing.assert_frame_equal(whole[others], gaps[others])
    assert gaps.loc[~others, "value"].isna().all()
    assert (gaps.loc[~others, "coverage"] == 0).all()


@pytest.mark.parametrize("constant", [0.0, 0.1, -0.7, 1e-9])
@pytest.mark.parametrize("method", ic.METHODS)
def test_constant_scores_are_undefined_whatever_their_rounding(constant: float, method: ic.Method) -> None:
    y = np.random.default_rng(3).normal(size=(1, 31))
    noisy = np.full((1, 31), constant)
    noisy[0, ::3] = np.nextafter(constant, 2) if constant else 0.0
    for x in (np.full((1, 31), constant), noisy):
        assert math.isnan(ic.correlate(x, y, axis=1, min_pairs=5, method=method).value[0])


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1.0, 1e150])
def test_the_scale_of_scores_does_not_matter(scale: float) -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(1, 31)), rng.normal(size=(1, 31))
    plain = ic.correlate(x, y, axis=1, min_pairs=5, method="pearson").value
    np.testing.assert_allclose(ic.correlate(x * scale, y, axis=1, min_pairs=5, method="pearson").value, plain)


def test_perfect_order_is_one_and_its_reverse_minus_one() -> None:
    x = np.arange(31.0)[None]
    assert ic.correlate(x, np.exp(x / 10), axis=1, min_pairs=5, method="spearman").value[0] == 1.0
    assert ic.correlate(x, -x, axis=1, min_pairs=5, method="pearson").value[0] == -1.0


def test_too_few_pairs_are_undefined_at_exactly_the_minimum() -> None:
    score, alpha = random_grids(5, (1, 60, 31), missing=0.0)
    score[:, :, 4:] = np.nan  # four industries a day: one short
    predictions, outcomes, sessions = tables(score, alpha, (10,))
    four = ic.information_coefficients(PIPE, predictions, outcomes, sessions, evaluation())
    row = pick(four, stage="overall", metric="csIC", method="spearman")
    assert (row["defined"], row["undefined"]) == (0, 60)
    assert math.isnan(row["value"])
    assert row["value_undefined_zero"] == 0.0
    five = ic.information_coefficients(PIPE, predictions, outcomes, sessions, evaluation(min_industries=4))
    assert pick(five, stage="overall", metric="csIC", method="spearman")["defined"] == 60
    cold = pick(four, stage="cold_start", metric="tsIC", method="pearson")
    assert (cold["defined"], cold["undefined"]) == (4, 27)  # 20 sessions, the minimum itself


def test_tsic_is_recomputed_within_a_stage() -> None:
    score, alpha = random_grids(6, (1, 60, 31), missing=0.0)
    predictions, outcomes, sessions = tables(score, alpha, (10,))
    whole = ic.information_coefficients(PIPE, predictions, outcomes, sessions, evaluation())
    alone = ic.information_coefficients(PIPE, predictions, outcomes, sessions[20:], evaluation(stage_split="half"))
    later = pick(whole, stage="exploitation", metric="tsIC", method="spearman")["value"]
    assert later == pytest.approx(pick(alone, stage="overall", metric="tsIC", method="spearman")["value"])
    assert later != pytest.approx(pick(whole, stage="overall", metric="tsIC", method="spearman")["value"], abs=1e-6)


def test_common_cells_are_valid_in_every_run_of_a_backbone_and_no_other() -> None:
    score, alpha = random_grids(7, (2, 60, 31), missing=0.1)
    other, _ = random_grids(8, (2, 60, 31), missing=0.1)
    foreign = Experiment(mechanism="pipe", backbone="other")
    few = np.where(np.arange(60)[None, :, None] < 3, score, np.nan)
    frames = {}
    for experiment, grid in ((PIPE, score), (MEM0, other), (foreign, few)):
        frames[experiment], outcomes, sessions = tables(grid, alpha, (10, 20))
    matrix = ic_matrix(frames, outcomes, sessions, evaluation())
    both = ~np.isnan(score) & ~np.isnan(other) & ~np.isnan(alpha)
    for experiment in (PIPE, MEM0):
        for position, horizon in enumerate((10, 20)):
            where = {"experiment": experiment.key, "horizon": horizon, "stage": "overall"}
            row = pick(matrix, cells="common", metric="csIC", method="spearman", **where)
            assert row["pairs"] == both[position].sum()
            own = pick(matrix, cells="own", metric="csIC", method="spearman", **where)
            assert own["pairs"] > row["pairs"]
    alone = ic.information_coefficients(PIPE, frames[PIPE], outcomes, sessions, evaluation())
    mine = matrix[(matrix["experiment"] == PIPE.key) & (matrix["cells"] == "own")].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, mine)


def test_a_run_not_replayed_yet_takes_no_cell_from_the_others() -> None:
    score, alpha = random_grids(9, (1, 60, 31))
    predictions, outcomes, sessions = tables(score, alpha, (10,))
    for frames in (
        {PIPE: predictions, MEM0: predictions.iloc[:0]},
        {MEM0: predictions.iloc[:0], PIPE: predictions},
    ):
        matrix = ic_matrix(frames, outcomes, sessions, evaluation())
        where = {
            "experiment": PIPE.key,
            "stage": "overall",
            "metric": "csIC",
            "method": "spearman",
            "horizon": 10,
        }
        assert pick(matrix, cells="common", **where)["pairs"] == pick(matrix, cells="own", **where)["pairs"] > 0
        nothing = pick(matrix, **{**where, "experiment": MEM0.key}, cells="common")
        assert nothing["pairs"] == 0
        assert nothing["coverage"] == 0


def test_days_outside_the_window_and_infinite_numbers_are_left_out() -> None:
    score, alpha = random_grids(10, (1, 60, 31), missing=0.0)
    predictions, outcomes, sessions = tables(score, alpha, (10,))
    predictions.loc[0, "score"] = np.inf
    outcomes.loc[5, "alpha"] = -np.inf
    row = pick(
        ic.information_coefficients(PIPE, predictions, outcomes, sessions[:30], evaluation()),
        stage="overall",
        metric="csIC",
        method="pearson",
    )
    assert row["pairs"] == 30 * 31 - 2
    assert row["coverage"] == pytest.approx((30 * 31 - 2) / (30 * 31 - 1))


def test_a_cell_twice_or_an_unknown_industry_is_refused_by_name() -> None:
    score, alpha = random_grids(11, (1, 20, 31))
    predictions, outcomes, sessions = tables(score, alpha, (10,))
    twice = pd.concat([predictions, predictions.iloc[[40]]])
    with pytest.raises(TableError, match=f"{sessions[1]} {CODES[9]} horizon 10 occurs twice"):
        ic.information_coefficients(PIPE, twice, outcomes, sessions, evaluation())
    with pytest.raises(TableError, match="'801020'"):
        ic.information_coefficients(PIPE, predictions.assign(code="801020"), outcomes, sessions, evaluation())


def test_series_for_figures_average_to_the_reported_coefficients() -> None:
    score, alpha = random_grids(12, (2, 60, 31))
    predictions, outcomes, sessions = tables(score, alpha, (10, 20))
    table = ic.information_coefficients(PIPE, predictions, outcomes, sessions, evaluation())
    panel = ic.make_panel(predictions, outcomes, ic.make_axes(sessions, (10, 20)))
    daily = ic.daily_ic(panel, evaluation(), "spearman")
    industries = ic.industry_ic(panel, evaluation(), "pearson", "exploitation")
    for horizon in (10, 20):
        row = pick(table, stage="overall", horizon=horizon, metric="csIC", method="spearman")
        assert daily.loc[daily["horizon"] == horizon, "ic"].mean() == pytest.approx(row["value"])
        row = pick(table, stage="exploitation", horizon=horizon, metric="tsIC", method="pearson")
        assert industries.loc[industries["horizon"] == horizon, "ic"].mean() == pytest.approx(row["value"])


def test_running_means_skip_undefined_sessions() -> None:
    daily = pd.DataFrame({"session": window(6), "horizon": 10, "ic": [0.2, np.nan, 0.4, 0.6, np.nan, np.nan]})
    running = ic.with_running_means(daily, window=2)
    np.testing.assert_allclose(running["rolling"], [0.2, 0.2, 0.4, 0.5, 0.6, np.nan])
    np.testing.assert_allclose(running["cumulative"], [0.2, 0.2, 0.6, 1.2, 1.2, 1.2])


@pytest.mark.parametrize(
    ("changes", "count", "cold"),
    [
        ({}, 299, 99),
        ({}, 60, 20),
        ({}, 2, 0),
        ({"stage_split": "half"}, 299, 149),
        ({"stage_split": "first_n", "stage_first_n": 7}, 60, 7),
        ({"stage_split": "first_n", "stage_first_n": 70}, 60, 60),
        (
            {"stage_split": "date", "stage_date": "2025-01-04"},
            60,
            2,
        ),  # a Saturday: 01-02 and 01-03 lie before
        ({"stage_split": "date", "stage_date": "2025-01-06"}, 60, 2),
    ],
)
def test_stages_split_by_prediction_date(changes: dict[str, object], count: int, cold: int) -> None:
    sessions = window(count)
    first, second, whole = split_stages(sessions, evaluation(**changes))
    assert (first.size, second.size, whole.size) == (cold, count - cold, count)
    assert sessions[first.positions] + sessions[second.positions] == sessions[whole.positions] == sessions


def test_a_split_by_date_without_a_date_is_refused() -> None:
    with pytest.raises(ValidationError, match="stage_date must say the first later session"):
        evaluation(stage_split="date")


def test_an_empty_window_has_nothing_and_says_so() -> None:
    score, alpha = random_grids(13, (1, 20, 31))
    predictions, outcomes, _ = tables(score, alpha, (10,))
    found = ic.information_coefficients(PIPE, predictions, outcomes, [], evaluation())
    assert found["value"].isna().all()
    assert found["coverage"].isna().all()
    assert (found["pairs"] == 0).all()


def test_a_trial_of_some_industries_is_measured_on_these_alone() -> None:
    score, alpha = random_grids(5, (1, 40, 6), missing=0.0)
    predictions, outcomes, sessions = tables(score[:, :, :3], alpha, (10,))
    chosen = CODES[:3]
    of_three = ic.information_coefficients(PIPE, predictions, outcomes, sessions, evaluation(), codes=chosen)
    row = pick(of_three, stage="overall", metric="tsIC", method="spearman")
    assert row["coverage"] == 1.0
    assert (row["defined"], row["undefined"]) == (3, 0)
    of_all = ic.information_coefficients(PIPE, predictions, outcomes, sessions, evaluation())
    assert pick(of_all, stage="overall", metric="tsIC", method="spearman")["undefined"] == 28
    both = ic_matrix({PIPE: predictions}, outcomes, sessions, evaluation(), codes=chosen)
    assert set(both["coverage"]) == {1.0}


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_daily_rank_ics_are_those_of_alphalens(missing: float) -> None:
    alphalens = pytest.importorskip("alphalens.performance")
    score, alpha = random_grids(14, (1, 60, 31), missing)
    sessions = window(60)
    index = pd.MultiIndex.from_product([pd.DatetimeIndex(sessions), CODES], names=["date", "asset"])
    frame = pd.DataFrame({"10D": alpha.reshape(-1), "factor": score.reshape(-1)}, index=index).dropna()
    theirs = alphalens.factor_information_coefficient(frame)["10D"]
    panel = ic.Panel(ic.make_axes(sessions, (10,)), score, alpha)
    mine = ic.cross_sectional_ic(panel, evaluation(), "spearman").value[0]
    np.testing.assert_allclose(mine, theirs.to_numpy(), atol=1e-12)
