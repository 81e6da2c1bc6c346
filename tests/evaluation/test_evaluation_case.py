"""Case studies: what is put together, that it is as it was that day, and which case a report shows."""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pytest

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import MissingPartitionError, SettingsError
from finevolve_pipeline.evaluation.case import (
    CaseRun,
    CaseStudy,
    Realised,
    Scored,
    SectorDay,
    build_case,
    choose_cases,
    most_disputed,
)
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.llm.requests import ShownFact
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.mechanisms.base import (
    Event,
    Experience,
    Mechanism,
    Recalled,
    Situation,
    Trajectory,
    memory_id,
    next_session,
    recall,
)
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import Parts, run
from finevolve_pipeline.settings import Experiment, load_settings
from finevolve_pipeline.universe import CODES, industry

sys.path.insert(0, str(Path(__file__).parent.parent / "replay"))

from replay_world import small_parts, small_settings

CODE = "801170"
SETTINGS = small_settings(last="2025-01-15")
SESSIONS = SETTINGS.benchmark.sessions
HORIZONS = SETTINGS.benchmark.horizons
CASE = SectorDay(industry(CODE), SESSIONS[5])
MECHANISMS = ("pipe", "mem0", "memrl", "reflexion", "expel")


def labels(known: Sequence[tuple[str, str, int, float]], closes_until: dt.date = SESSIONS[-1]) -> pd.DataFrame:
    """`Outcomes` of all cells of the window; alpha is 0.01, or as `known` says, and NaN after `closes_until`."""
    given = {(session, code, horizon): alpha for session, code, horizon, alpha in known}
    rows = []
    for session in SESSIONS:
        for horizon in HORIZONS:
            end = calendar.shift(session, horizon)
            for code in CODES:
                alpha = given.get((session.isoformat(), code, horizon), 0.01)
                alpha = alpha if end <= closes_until else math.nan
                rows.append(
                    {
                        "predicted_on": session.isoformat(),
                        "matured_on": end.isoformat(),
                        "code": code,
                        "horizon": horizon,
                        "close_from": 1000.0,
                        "close_to": 1000.0 * (1 + alpha),
                        "industry_return": alpha,
                        "benchmark_return": 0.0,
                        "alpha": alpha,
                    }
                )
    return pd.DataFrame(rows)


ALPHA = labels([])


def replay(root: Path, mechanism: str, parts: Parts, backbone: str = "rules", until: int | None = None) -> ReplayStore:
    store = ReplayStore(root)
    run(Experiment(mechanism=mechanism, backbone=backbone), SESSIONS[:until], parts, store, lambda _: None)
    return store


@pytest.fixture(scope="module")
def parts() -> Parts:
    return small_parts(SETTINGS, backbone=RulesBackbone())


@pytest.fixture(scope="module")
def replayed(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> ReplayStore:
    """All mechanisms over the whole window."""
    root = tmp_path_factory.mktemp("replay")
    for mechanism in MECHANISMS:
        replay(root, mechanism, parts)
    return ReplayStore(root)


@pytest.fixture(scope="module")
def study(replayed: ReplayStore, parts: Parts) -> CaseStudy:
    return build_case(CASE, all_of(parts), replayed, ALPHA)


def all_of(parts: Parts) -> dict[Experiment, Parts]:
    return {Experiment(mechanism=mechanism, backbone="rules"): parts for mechanism in MECHANISMS}


def run_of(study: CaseStudy, mechanism: str) -> CaseRun:
    return next(one for one in study.runs if one.experiment.mechanism == mechanism)


# -- what it holds


def test_every_run_has_its_stored_prediction(study: CaseStudy, replayed: ReplayStore) -> None:
    assert [one.experiment.mechanism for one in study.runs] == list(MECHANISMS)
    for one in study.runs:
        stored = replayed.read_predictions(one.experiment.key, [CASE.session])
        stored = stored[stored["code"] == CODE].set_index("horizon")
        assert [scored.realised.horizon for scored in one.scores] == list(HORIZONS)
        assert [scored.score for scored in one.scores] == stored.loc[list(HORIZONS), "score"].tolist()
        assert (one.key_factor, one.logic_chain) == tuple(stored.iloc[0][["key_factor", "logic_chain"]])


def test_what_was_retrieved_is_told_as_the_log_has_it(study: CaseStudy, replayed: ReplayStore) -> None:
    for mechanism in MECHANISMS[1:]:
        log = replayed.read_retrievals(f"{mechanism}-rules", [CASE.session])
        log = log[log["code"] == CODE].sort_values("rank")
        found = run_of(study, mechanism).retrieved
        assert [one.memory_id for one in found] == log["memory_id"].tolist() != []
        assert [one.rank for one in found] == list(range(1, len(found) + 1))
        for name in ("kind", "age", "matured_share", "news_overlap", "in_prompt"):
            assert [getattr(one, name) for one in found] == log[name].tolist()
        for name in ("similarity", "q", "selection_score"):
            told = [math.nan if getattr(one, name) is None else getattr(one, name) for one in found]
            assert told == pytest.approx(log[name].tolist(), nan_ok=True)


def test_only_a_mechanism_with_a_utility_has_visits(study: CaseStudy) -> None:
    assert {one.visits for one in run_of(study, "mem0").retrieved} == {None}
    assert all(isinstance(one.visits, int) for one in run_of(study, "memrl").retrieved)


def test_the_text_of_a_trajectory_is_its_prediction(study: CaseStudy, replayed: ReplayStore) -> None:
    first = run_of(study, "mem0").retrieved[0]
    stored = replayed.read_predictions("mem0-rules", [first.made_on])
    stored = stored[stored["code"] == CODE].iloc[0]
    assert first.text == f"{stored['key_factor']}\n{stored['logic_chain']}"


def test_the_experience_known_that_day_is_counted_with_what_its_outcomes_taught(study: CaseStudy) -> None:
    """Day 5 (from 0): five earlier predictions; of horizons 1, 2 and 4 there have matured 5, 4 and 2 insights."""
    assert run_of(study, "pipe").known == 0
    assert run_of(study, "mem0").known == 5
    assert run_of(study, "expel").known == 5 + 4 + 2
    assert run_of(study, "reflexion").known == 1
    assert run_of(study, "reflexion").retrieved[0].made_on == CASE.session


def test_what_a_memory_rests_on_is_told_for_the_horizons_it_is_for(study: CaseStudy, replayed: ReplayStore) -> None:
    (source,) = run_of(study, "mem0").retrieved[0].sources
    assert [one.realised.horizon for one in source.scores] == list(HORIZONS)
    insight = run_of(study, "expel").retrieved[0]
    (source,) = insight.sources
    (only,) = source.scores
    assert insight.horizons == (only.realised.horizon,)
    assert only.realised.known_on == CASE.session
    stored = replayed.read_predictions("expel-rules", [source.session])
    cell = stored[(stored["code"] == CODE) & (stored["horizon"] == only.realised.horizon)]
    assert only.score == cell["score"].item()


def test_the_market_is_the_one_that_the_prompt_told(study: CaseStudy, parts: Parts) -> None:
    rows = parts.reader.read("matured_alpha", CASE.session.isoformat())
    rows = rows[rows["code"] == CODE].set_index("horizon")
    assert study.market.close == rows["close_to"].iloc[0]
    assert [one.industry for one in study.market.trailing] == rows.loc[list(HORIZONS), "industry_return"].tolist()


class Wordy(RulesBackbone):
    """Counts four times the tokens, so that less news fits."""

    def count_tokens(self, text: str) -> int:
        return 4 * super().count_tokens(text)


def test_news_is_the_longest_that_a_run_was_shown_and_more(tmp_path: Path) -> None:
    settings = small_settings(last="2025-01-03", prompts={"news_tokens": 800})
    place = SectorDay(industry(CODE), settings.benchmark.sessions[-1])
    experiments = {}
    for name, backbone in (("wordy", Wordy()), ("rules", RulesBackbone())):
        experiment, made_of = Experiment(mechanism="pipe", backbone=name), small_parts(settings, backbone=backbone)
        run(experiment, settings.benchmark.sessions, made_of, ReplayStore(tmp_path), lambda _: None)
        experiments[experiment] = made_of
    found = build_case(place, experiments, ReplayStore(tmp_path), ALPHA)
    less, more = (one.articles for one in found.runs)
    assert 0 < less < more < len(found.news)
    assert found.news_shown == more
    assert all(one.articles + one.articles_cut == len(found.news) for one in found.runs)
    order = [(-item.importance, -item.published_at.timestamp()) for item in found.news]
    assert order == sorted(order)
    assert all(CODE in item.industries for item in found.news)


# -- as it was that day


def test_days_after_the_case_change_nothing_of_it(
    study: CaseStudy, replayed: ReplayStore, parts: Parts, tmp_path: Path
) -> None:
    for mechanism in MECHANISMS:
        replay(tmp_path, mechanism, parts, until=SESSIONS.index(CASE.session) + 1)
    assert len(replayed.sessions("mem0-rules")) > len(ReplayStore(tmp_path).sessions("mem0-rules"))
    assert build_case(CASE, all_of(parts), ReplayStore(tmp_path), ALPHA) == study


@dataclass(frozen=True)
class Written(Event):
    """The one page of the diary says something else now."""

    kind: ClassVar[str] = "written"

    text: str


class Diary(Mechanism):
    """Keeps one page a sector and overwrites it every day."""

    events = (Written,)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.pages: dict[str, str] = {}

    async def append(self, trajectory: Trajectory, model: Model) -> Sequence[Event]:
        return (Written(trajectory.code, f"page of {trajectory.session}"),)

    def apply(self, session: dt.date, event: Event) -> None:
        assert isinstance(event, Written)
        self.pages[event.code] = event.text

    def experiences(self, code: str) -> tuple[Experience, ...]:
        first, page = SESSIONS[0], self.pages.get(code)
        made = f"{memory_id(first, code)}/fact/1"
        return (Experience(made, "fact", HORIZONS, first, next_session(first), (), page),) if page else ()

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        return tuple(
            recall(ShownFact(one.memory_id, one.made_on, text=one.text), one, situation, self.world.past)
            for one in self.experiences(situation.industry.code)
        )


class SilentDiary(Diary):
    """Does not list what it keeps."""

    def retrieve(self, situation: Situation) -> tuple[Recalled, ...]:
        return tuple(
            recall(ShownFact(one.memory_id, one.made_on, text=one.text), one, situation, self.world.past)
            for one in Diary.experiences(self, situation.industry.code)
        )

    experiences = Mechanism.experiences


def diary_of(kind: type[Mechanism], root: Path) -> CaseRun:
    made_of = small_parts(SETTINGS, backbone=RulesBackbone(), kind=kind)
    store = replay(root, "pipe", made_of)
    (only,) = build_case(CASE, {Experiment(mechanism="pipe", backbone="rules"): made_of}, store, ALPHA).runs
    return only


def test_a_memory_that_was_changed_since_has_the_text_of_that_day(tmp_path: Path) -> None:
    (page,) = diary_of(Diary, tmp_path).retrieved
    assert page.text == f"page of {SESSIONS[4]}"
    assert page.sources == ()


def test_a_mechanism_that_lists_nothing_leaves_the_text_open(tmp_path: Path) -> None:
    found = diary_of(SilentDiary, tmp_path)
    assert [one.text for one in found.retrieved] == [None]
    assert found.known == 0


# -- outcomes


def realised(alpha: float, is_over: bool = True) -> Realised:
    return Realised(10, dt.date(2025, 6, 16), math.nan, math.nan, math.nan, alpha, is_over)


@pytest.mark.parametrize(
    ("score", "alpha", "verdict", "told"),
    [
        (0.4, 0.02, "ok", "+0.400 ok"),
        (-0.4, -0.02, "ok", "-0.400 ok"),
        (0.4, -0.02, "wrong", "+0.400 wrong"),
        (-0.4, 0.02, "wrong", "-0.400 wrong"),
        (0.0, 0.02, "no direction", "+0.000 no direction"),
        (-0.0, 0.02, "no direction", "+0.000 no direction"),
        (-0.0004, 0.02, "wrong", "-0.0004 wrong"),
        (3e-7, 0.02, "ok", "+3e-07 ok"),
        (0.4, 0.0, "no direction", "+0.400 no direction"),
        (0.4, math.nan, "", "+0.400"),
        (math.nan, 0.02, "invalid", "invalid"),
        (math.nan, math.nan, "invalid", "invalid"),
    ],
)
def test_a_direction_is_right_where_score_and_excess_return_have_the_same_sign(
    score: float, alpha: float, verdict: str, told: str
) -> None:
    scored = Scored(score, "", realised(alpha))
    assert (scored.verdict, scored.told) == (verdict, told)


def test_an_outcome_without_a_number_is_missing_or_not_known_yet() -> None:
    assert realised(-0.0237).told == "-2.37%"
    assert [realised(alpha).told for alpha in (0.0, -0.0, -0.00001)] == ["+0.00%", "+0.00%", "-0.001%"]
    assert realised(math.nan, is_over=True).told == "missing"
    assert realised(math.nan, is_over=False).told == "not known yet"


def test_the_closes_tell_a_missing_outcome_from_one_that_lies_ahead(replayed: ReplayStore, parts: Parts) -> None:
    """Closes reach two sessions beyond the case; the industry's own close of that last session is missing."""
    day = CASE.session.isoformat()
    alpha = labels([(day, CODE, 1, -0.05), (day, CODE, 2, math.nan)], closes_until=SESSIONS[7])
    found = build_case(CASE, all_of(parts), replayed, alpha)
    assert [one.told for one in found.realised] == ["-5.00%", "missing", "not known yet"]
    assert found.realised[0].points == pytest.approx(-50)
    assert [one.known_on for one in found.realised] == [SESSIONS[6], SESSIONS[7], SESSIONS[9]]


def test_where_no_outcome_is_known_all_lie_ahead(replayed: ReplayStore, parts: Parts) -> None:
    found = build_case(CASE, all_of(parts), replayed, ALPHA.assign(alpha=math.nan))
    assert {one.told for one in found.realised} == {"not known yet"}


def test_a_horizon_that_ends_beyond_the_calendar_is_not_known(replayed: ReplayStore, parts: Parts) -> None:
    alpha = ALPHA[ALPHA["horizon"] != 4]
    last = build_case(CASE, all_of(parts), replayed, alpha).realised[-1]
    assert (last.known_on, last.told) == (None, "not known yet")


# -- who takes part


def test_runs_that_have_not_replayed_the_session_are_named(replayed: ReplayStore, parts: Parts) -> None:
    elsewhere = Experiment(mechanism="mem0", backbone="elsewhere")
    found = build_case(CASE, {elsewhere: parts, **all_of(parts)}, replayed, ALPHA)
    assert found.absent == ("mem0-elsewhere",)
    assert len(found.runs) == len(MECHANISMS)


def test_without_any_run_the_command_that_makes_one_is_named(parts: Parts, tmp_path: Path) -> None:
    with pytest.raises(MissingPartitionError, match=r"case 801170 2025-01-09: .*`finevolve run --to 2025-01-09`"):
        build_case(CASE, all_of(parts), ReplayStore(tmp_path), ALPHA)


def test_an_industry_that_is_not_predicted_is_refused(tmp_path: Path) -> None:
    settings = small_settings(
        last="2025-01-03",
        benchmark={
            "first_session": dt.date(2025, 1, 2),
            "last_session": dt.date(2025, 1, 3),
            "horizons": [1, 2, 4],
            "industries": ["801080"],
        },
    )
    made_of = small_parts(settings, backbone=RulesBackbone())
    experiment = Experiment(mechanism="pipe", backbone="rules")
    run(experiment, settings.benchmark.sessions, made_of, ReplayStore(tmp_path), lambda _: None)
    place = SectorDay(industry(CODE), settings.benchmark.sessions[0])
    with pytest.raises(MissingPartitionError, match=r"pipe-rules does not predict this industry"):
        build_case(place, {experiment: made_of}, ReplayStore(tmp_path), ALPHA)


# -- which case is shown

DAY0, DAY1, DAY2 = (session.isoformat() for session in SESSIONS[:3])


def scores(*rows: tuple[str, str, float, float], asked: str = "prompt") -> pd.DataFrame:
    """Scores of two runs, the same for every horizon: session, code, of a, of b."""
    return pd.DataFrame(
        [
            {"session": s, "experiment": e, "code": c, "horizon": h, "score": score, "prompt_digest": asked}
            for s, c, a, b in rows
            for e, score in (("a", a), ("b", b))
            for h in HORIZONS
        ]
    )


def test_the_most_disputed_day_is_the_one_with_scores_furthest_apart() -> None:
    rows = scores((DAY0, "801010", 0.1, 0.2), (DAY1, "801170", -0.3, 0.5), (DAY2, "801010", 0.9, 0.8))
    assert most_disputed(rows, ALPHA) == SectorDay(industry("801170"), SESSIONS[1])


def test_among_equally_disputed_ones_it_is_the_earliest_then_the_lowest_code() -> None:
    rows = scores((DAY2, "801010", 0.1, 0.4), (DAY1, "801170", 0.3, 0.6), (DAY1, "801080", -0.2, 0.1))
    assert most_disputed(rows, ALPHA) == SectorDay(industry("801080"), SESSIONS[1])


@pytest.mark.parametrize("why", ["an outcome is unknown", "a score is invalid", "a run has not been there"])
def test_days_that_cannot_be_judged_for_every_run_and_horizon_are_passed_over(why: str) -> None:
    rows = scores((DAY0, "801010", -1.0, 1.0), (DAY1, "801010", 0.1, 0.2))
    alpha = ALPHA
    first = (rows["session"] == DAY0) & (rows["horizon"] == 4) & (rows["experiment"] == "b")
    if why == "an outcome is unknown":
        alpha = labels([(DAY0, "801010", 2, math.nan)])
    elif why == "a score is invalid":
        rows.loc[first, "score"] = math.nan
    else:
        rows = rows[~((rows["session"] == DAY0) & (rows["experiment"] == "b"))]
    assert most_disputed(rows, alpha) == SectorDay(industry("801010"), SESSIONS[1])


def test_runs_that_ask_no_model_have_no_say_unless_there_are_no_others() -> None:
    asked = scores((DAY0, "801010", 0.1, 0.4), (DAY1, "801010", 0.1, 0.2))
    random = scores((DAY0, "801010", 0.0, 0.0), (DAY1, "801010", -1.0, 1.0), asked="")
    random["experiment"] = "random-" + random["experiment"]
    together = pd.concat([asked, random], ignore_index=True)
    assert most_disputed(together, ALPHA) == SectorDay(industry("801010"), SESSIONS[0])
    assert most_disputed(random, ALPHA) == SectorDay(industry("801010"), SESSIONS[1])


def test_named_cases_are_shown_where_a_run_has_been_there_and_the_others_are_told() -> None:
    rows = scores((DAY0, "801010", 0.1, 0.2), (DAY1, "801170", -0.3, 0.5))
    wanted = (("801010", SESSIONS[0]), ("801170", dt.date(2025, 5, 30)))
    choice = choose_cases(wanted, rows, ALPHA)
    assert choice.places == (SectorDay(industry("801010"), SESSIONS[0]),)
    assert choice.reason().endswith("not replayed: 801170 2025-05-30.")


def test_without_a_named_case_the_most_disputed_one_is_shown_and_the_rule_is_told() -> None:
    rows = scores((DAY0, "801010", 0.1, 0.2), (DAY1, "801170", -0.3, 0.5))
    choice = choose_cases((("801170", dt.date(2025, 5, 30)),), rows, ALPHA)
    assert choice.places == (SectorDay(industry("801170"), SESSIONS[1]),)
    assert "No run has replayed 801170 2025-05-30" in choice.reason()
    assert "scores of the runs lie furthest apart" in choice.reason()
    assert choose_cases((), rows, ALPHA).reason().startswith("evaluation.cases is empty.")


def test_where_no_outcome_is_known_no_case_is_shown() -> None:
    rows = scores((DAY0, "801010", 0.1, 0.2))
    choice = choose_cases((), rows, ALPHA.assign(alpha=math.nan))
    assert choice.places == ()
    assert "No sector-day of the runs has all its outcomes known yet" in choice.reason()


def test_without_any_prediction_no_case_is_shown() -> None:
    assert choose_cases((), scores((DAY0, "801010", 0.1, 0.2)).iloc[:0], ALPHA).places == ()


def test_the_papers_case_is_the_default() -> None:
    assert load_settings().evaluation.sector_days == (("801170", dt.date(2025, 5, 30)),)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("801170", "'801170' is not of the form 'CODE YYYY-MM-DD'"),
        ("801170 20250530", "is not of the form"),
        ("801171 2025-05-30", "'801171' is none of the 31 codes"),
        ("801170 2025-02-30", "not a calendar day"),
        ("801170 2025-05-31", "the exchange was closed; nearest sessions are 2025-05-30 and 2025-06-03"),
    ],
)
def test_a_case_that_cannot_be_is_refused_by_name(case: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        load_settings(overrides={"evaluation": {"cases": [case]}})
    assert "evaluation: cases" in str(refused.value)
