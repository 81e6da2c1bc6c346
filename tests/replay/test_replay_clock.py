"""The gateway shows the past and the present, and nothing else."""

import datetime as dt

import pandas as pd
import pytest
from replay_world import small_reader, small_settings

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import LookAheadError, MissingPartitionError, TableError
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.replay.clock import Gateway, Visible
from finevolve_pipeline.universe import CODES

SETTINGS = small_settings(last="2025-01-08")
SESSIONS = SETTINGS.benchmark.sessions
FIRST, SECOND, THIRD = SESSIONS[:3]


@pytest.fixture
def reader():
    return small_reader(SESSIONS, SETTINGS.benchmark.horizons)


@pytest.fixture
def gateway(reader):
    return Gateway(reader, Visible.of(SETTINGS, estimate_tokens))


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda view: view.news(SECOND), "news"),
        (lambda view: view.outcomes(SECOND), "outcomes"),
        (lambda view: view.market(SECOND, CODES[0]), "market data"),
    ],
)
def test_asking_for_tomorrow_names_who_asked_and_for_what(gateway, reader, ask, what):
    gateway.advance(FIRST)
    with pytest.raises(LookAheadError) as caught:
        ask(gateway.view("mechanism 'canary'"))
    assert str(caught.value) == (
        f"mechanism 'canary' asked for {what} of 2025-01-03 while the clock stood at 2025-01-02"
    )
    assert all(partition <= "2025-01-02" for _, partition in reader.reads)


def test_before_the_first_session_nothing_is_known(gateway):
    with pytest.raises(LookAheadError, match="while the clock had not started"):
        gateway.view("someone").news(FIRST)


def test_the_clock_never_goes_back(gateway):
    gateway.advance(SECOND)
    with pytest.raises(LookAheadError, match="stands at 2025-01-03 and cannot be set back to 2025-01-02"):
        gateway.advance(FIRST)


def test_earlier_sessions_stay_visible_as_they_were(gateway):
    gateway.advance(FIRST)
    then = {code: block.text for code, block in gateway.news(FIRST, "test").items()}
    gateway.advance(SECOND)
    gateway.advance(THIRD)
    assert {code: gateway.block(FIRST, code, "test").text for code in CODES} == then
    assert gateway.outcomes(SECOND, "test")[0].matured_on == SECOND


def test_an_article_is_one_object_in_all_blocks_and_sessions(gateway):
    gateway.advance(FIRST)
    gateway.news(FIRST, "test")
    gateway.advance(SECOND)
    both = [item for day in (FIRST, SECOND) for block in gateway.news(day, "test").values() for item in block.items]
    assert len({id(item) for item in both}) == len({item.article_id for item in both})


def test_an_article_at_the_cutoff_is_refused(gateway, reader):
    frame = reader.frames["news_window", FIRST.isoformat()].copy()
    frame.loc[3, "published_at"] = pd.Timestamp(calendar.cutoff(FIRST))
    reader.replace("news_window", FIRST.isoformat(), frame)
    gateway.advance(FIRST)
    with pytest.raises(LookAheadError, match=rf"article {frame['article_id'][3]} was published 2025-01-03 00:00:00"):
        gateway.news(FIRST, "test")


def test_an_outcome_from_after_the_session_is_refused(gateway, reader):
    late = reader.frames["matured_alpha", SECOND.isoformat()]
    reader.replace("matured_alpha", FIRST.isoformat(), late)
    gateway.advance(FIRST)
    with pytest.raises(LookAheadError, match="is known on 2025-01-03 only"):
        gateway.outcomes(FIRST, "test")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda frame: frame.iloc[1:], "no row for 801010 at horizon 1"),
        (lambda frame: pd.concat([frame, frame.iloc[:1]]), "stands there twice"),
        (lambda frame: frame.assign(predicted_on="2024-12-02"), "is not 1 sessions up to 2025-01-02"),
    ],
)
def test_outcomes_that_do_not_belong_to_the_session_are_refused(gateway, reader, spoil, message):
    reader.replace("matured_alpha", FIRST.isoformat(), spoil(reader.frames["matured_alpha", FIRST.isoformat()]))
    gateway.advance(FIRST)
    with pytest.raises(TableError, match=message):
        gateway.outcomes(FIRST, "test")


def test_a_session_without_tables_says_which_is_missing(gateway):
    gateway.advance(dt.date(2025, 2, 5))
    with pytest.raises(MissingPartitionError, match="news_window 2025-02-05"):
        gateway.news(dt.date(2025, 2, 5), "test")


def test_market_context_is_the_close_and_the_trailing_returns_of_the_session(gateway, reader):
    gateway.advance(FIRST)
    rows = reader.frames["matured_alpha", FIRST.isoformat()].query("code == '801170'").set_index("horizon")
    context = gateway.market(FIRST, "801170", "test")
    assert context.close == rows.loc[4, "close_to"]
    assert [(one.sessions, one.industry, one.benchmark) for one in context.trailing] == [
        (h, rows.loc[h, "industry_return"], rows.loc[h, "benchmark_return"]) for h in (1, 2, 4)
    ]
    assert context.trailing[0].excess == pytest.approx(rows.loc[1, "alpha"])
