"""ExpeL: one insight an outcome, the latest are shown."""

import math

import pytest

from finevolve_pipeline.errors import BackboneError
from finevolve_pipeline.mechanisms.base import UpdateFailed
from finevolve_pipeline.mechanisms.expel import ExpeL

SETTINGS = {"insights": 10, "k_scope": "all"}


@pytest.fixture
def expel(bench):
    return bench(ExpeL, **SETTINGS)


def learn(bench, day, *outcomes):
    """Outcomes of a day, each answered by the insight `day/horizon`."""
    bench.script(*({"insight": f"{day}/{horizon}"} for _, horizon, _ in outcomes))
    return bench.mature(day, *outcomes)


def shown(bench, day):
    return [one.shown.text for one in bench.retrieve(day)]


# Insights named by the day they were made on and their horizon. On day 40 three predictions mature: of day 0 at 40, of
# day 20 at 20, of day 30 at 10 sessions. On day 41 two do. Made last first; of one day the latest prediction first.
THREE_ON_ONE_DAY = [
    # shown on day, the insights in order
    (39, []),
    (40, ["40/10", "40/20", "40/40"]),
    (41, ["41/10", "41/40", "40/10", "40/20", "40/40"]),
]


@pytest.mark.parametrize(("day", "order"), THREE_ON_ONE_DAY)
def test_insights_are_shown_made_last_first_then_by_the_latest_prediction(expel, day, order):
    for source in (0, 1, 20, 30, 31):
        expel.remember(source)
    if day >= 40:
        learn(expel, 40, (0, 40, 0.03), (20, 20, 0.02), (30, 10, -0.01))
    if day >= 41:
        learn(expel, 41, (1, 40, 0.03), (31, 10, -0.01))
    assert shown(expel, day) == order


def test_of_one_day_the_latest_prediction_comes_first_then_the_shortest_horizon(expel):
    # No trading calendar lets these mature together; the order is the mechanism's own and not that of the outcomes.
    expel.remember(0)
    expel.remember(1)
    learn(expel, 40, (0, 20, 0.01), (1, 40, 0.01), (0, 10, 0.01))
    assert shown(expel, 40) == ["40/40", "40/10", "40/20"]


def test_experience_is_listed_oldest_first(expel):
    for source in (0, 10, 30):
        expel.remember(source)
    learn(expel, 10, (0, 10, 0.01))
    learn(expel, 30, (10, 20, 0.01))
    learn(expel, 40, (0, 40, 0.01), (30, 10, 0.01))
    assert [one.text for one in expel.mechanism.experiences("801170")] == ["10/10", "30/20", "40/40", "40/10"]


def test_the_latest_ten_of_the_sector_are_shown_and_all_are_kept(expel):
    for source in range(12):
        expel.remember(source)
        learn(expel, source + 10, (source, 10, 0.01))
    assert shown(expel, 22) == [f"{day}/10" for day in range(21, 11, -1)]
    assert [one.text for one in expel.mechanism.experiences("801170")] == [f"{day}/10" for day in range(10, 22)]


def test_horizons_share_the_places_or_have_their_own(bench):
    def latest(k_scope):
        expel = bench(ExpeL, insights=2, k_scope=k_scope)
        for source in (0, 1, 20, 28, 29, 30, 31):
            expel.remember(source)
        learn(expel, 38, (28, 10, 0.01))
        learn(expel, 39, (29, 10, 0.01))
        learn(expel, 40, (0, 40, 0.01), (20, 20, 0.01), (30, 10, 0.01))
        learn(expel, 41, (1, 40, 0.01), (31, 10, 0.01))
        return shown(expel, 41)

    assert latest("all") == ["41/10", "41/40"]
    assert latest("per_horizon") == ["41/10", "41/40", "40/10", "40/20", "40/40"]


def test_an_insight_is_told_one_prediction_and_its_outcome(expel):
    expel.remember(0, scores={10: 0.7})
    expel.script({"insight": "抢运潮利好。"})
    expel.mature(10, (0, 10, 0.0021))
    (request,) = expel.asked
    assert (request.industry.code, request.session.isoformat()) == ("801170", expel.id(10)[:10])
    assert request.episode.memory_id == expel.id(0)
    assert (request.episode.horizon, request.episode.score, request.episode.alpha) == (10, 0.7, 0.0021)
    assert request.episode.news == expel.past.news(expel.id(0))


def test_an_insight_is_shown_on_the_very_day_with_where_it_comes_from(expel):
    expel.remember(0, scores={20: -0.4})
    learn(expel, 20, (0, 20, 0.05))
    (recalled,) = expel.retrieve(20)
    one = recalled.shown
    assert (one.memory_id, one.text, one.horizon, one.score, one.alpha) == (
        f"{expel.id(20)}/20d",
        "20/20",
        20,
        -0.4,
        0.05,
    )
    assert (one.predicted_on.isoformat(), one.made_on.isoformat()) == (expel.id(0)[:10], expel.id(20)[:10])
    assert (recalled.kind, recalled.horizons, recalled.sources) == ("insight", (20,), (expel.id(0),))
    assert recalled.available_from == one.made_on
    (kept,) = expel.mechanism.experiences("801170")
    assert (kept.memory_id, kept.kind, kept.horizons, kept.available_from) == (
        one.memory_id,
        "insight",
        (20,),
        one.made_on,
    )


def test_insights_of_one_day_are_asked_for_together_and_kept_in_the_order_of_the_outcomes(expel):
    for source in (0, 20, 30):
        expel.remember(source)
    events = learn(expel, 40, (0, 40, 0.03), (20, 20, 0.02), (30, 10, -0.01))
    assert expel.backbone.most_at_once == 3
    assert [(event.text, event.memory) for event in events] == [
        ("40/40", f"{expel.id(40)}/40d"),
        ("40/20", f"{expel.id(40)}/20d"),
        ("40/10", f"{expel.id(40)}/10d"),
    ]


def test_a_question_that_fails_lets_the_others_be_answered_first(expel):
    expel.remember(0)
    expel.remember(10)
    # The second question is answered first, by an error; the answer to the first one is paid for.
    expel.script({"insight": "好。"}, BackboneError("no money"))
    with pytest.raises(BackboneError, match="no money"):
        expel.mature(20, (0, 20, 0.01), (10, 10, 0.01))
    assert expel.backbone.answered == 2


@pytest.mark.parametrize(
    ("scores", "alpha"), [({20: 0.5}, 0.05), ({10: 0.5}, math.nan)], ids=["invalid score", "undefined alpha"]
)
def test_what_teaches_nothing_is_not_asked_about(expel, scores, alpha):
    expel.remember(0, scores=scores)
    assert expel.mature(10, (0, 10, alpha)) == []
    assert expel.asked == []


@pytest.mark.parametrize(("score", "alpha"), [(0.0, 0.05), (0.5, 0.0)])
def test_a_score_or_an_alpha_of_zero_is_an_outcome_like_any_other(expel, score, alpha):
    expel.remember(0, scores={10: score})
    learn(expel, 10, (0, 10, alpha))
    assert shown(expel, 10) == ["10/10"]


def test_an_answer_that_cannot_be_read_costs_its_own_insight_only(expel):
    # Both are asked about together, so the first one is asked about again after the second one's first time.
    expel.remember(0)
    expel.remember(10)
    expel.script("no answer", {"insight": "好。"}, "no answer")
    failed, learnt = expel.mature(20, (0, 20, 0.01), (10, 10, 0.01))
    assert isinstance(failed, UpdateFailed)
    assert (failed.code, learnt.text) == ("801170", "好。")
    assert shown(expel, 20) == ["好。"]


def test_each_insight_names_the_outcome_it_rests_on_and_comes_back_from_the_journal(expel):
    expel.remember(0)
    (event,) = learn(expel, 10, (0, 10, 0.25))
    (evidence,) = event.evidence
    assert (evidence.predicted_on.isoformat(), evidence.horizon, evidence.code, evidence.alpha) == (
        "2025-01-02",
        10,
        "801170",
        0.25,
    )
    assert event.made == (f"{expel.id(10)}/10d",)
    assert expel.read_back(event) == event


def test_another_sector_sees_nothing(expel):
    expel.remember(0)
    learn(expel, 10, (0, 10, 0.01))
    assert len(expel.mechanism.experiences("801170")) == 1
    assert expel.mechanism.experiences("801780") == ()
