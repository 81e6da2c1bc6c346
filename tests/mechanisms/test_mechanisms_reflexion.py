"""Reflexion: one reflection a sector, written anew whenever outcomes become known."""

import math

import pytest

from finevolve_pipeline.errors import BackboneError
from finevolve_pipeline.mechanisms.base import UpdateFailed
from finevolve_pipeline.mechanisms.reflexion import Reflexion, cut_at_sentence

SETTINGS = {"max_characters": 4000, "signal": "index_points", "shown": 1}


@pytest.fixture
def reflexion(bench):
    return bench(Reflexion, **SETTINGS)


def says(text):
    return {"reflection": text}


def shown(bench, day):
    return [one.shown.text for one in bench.retrieve(day)]


def test_before_the_first_outcome_nothing_is_shown(reflexion):
    reflexion.remember(0)
    assert reflexion.retrieve(1) == ()
    assert reflexion.mechanism.experiences("801170") == ()


def test_one_call_covers_all_horizons_that_matured_oldest_source_first(reflexion):
    for day in (0, 20, 30):
        reflexion.remember(day)
    reflexion.script(says("关税缓和利好运输。"))
    (event,) = reflexion.mature(40, (0, 40, 0.03), (20, 20, 0.02), (30, 10, -0.01))
    (request,) = reflexion.asked
    assert [(one.memory_id, one.horizon, one.alpha) for one in request.episodes] == [
        (reflexion.id(0), 40, 0.03),
        (reflexion.id(20), 20, 0.02),
        (reflexion.id(30), 10, -0.01),
    ]
    assert event.memory == f"{reflexion.id(40)}/reflection"
    assert event.made == (event.memory,)
    assert event.sources == (reflexion.id(0), reflexion.id(20), reflexion.id(30))
    assert [(one.predicted_on.isoformat(), one.horizon, one.code, one.alpha) for one in event.evidence] == [
        (reflexion.id(0)[:10], 40, "801170", 0.03),
        (reflexion.id(20)[:10], 20, "801170", 0.02),
        (reflexion.id(30)[:10], 10, "801170", -0.01),
    ]
    assert reflexion.read_back(event) == event


def test_the_model_is_told_prediction_news_and_the_change_of_the_index(reflexion):
    # The change is that of the paper (C.3.1: +34.16 points); the closes are made up.
    reflexion.remember(0, scores={10: 0.7})
    reflexion.script(says("好。"))
    reflexion.mature(10, (0, 10, 0.0021, 2310.25, 2344.41))
    (request,) = reflexion.asked
    (episode,) = request.episodes
    assert episode.points == pytest.approx(34.16)
    assert (episode.score, episode.key_factor, episode.logic_chain) == (0.7, "因素0", "链")
    assert episode.news == reflexion.past.news(reflexion.id(0))
    assert (request.signal, request.max_characters, request.industry.code) == ("index_points", 4000, "801170")
    assert request.session.isoformat() == reflexion.id(10)[:10]


def test_the_signal_of_the_settings_is_asked_for(bench):
    reflexion = bench(Reflexion, **{**SETTINGS, "signal": "percent_excess"})
    reflexion.remember(0)
    reflexion.script(says("好。"))
    reflexion.mature(10, (0, 10, 0.01))
    assert reflexion.asked[0].signal == "percent_excess"


def test_the_newest_reflection_replaces_the_one_before_and_is_written_from_it(reflexion):
    for day in range(3):
        reflexion.remember(day)
    reflexion.script(says("一。"), says("二。"), says("三。"))
    for day in range(3):
        reflexion.mature(day + 10, (day, 10, 0.01))
    assert [request.previous for request in reflexion.asked] == [(), ("一。",), ("二。",)]
    assert shown(reflexion, 12) == ["三。"]
    assert [one.text for one in reflexion.mechanism.experiences("801170")] == ["三。"]


def test_with_more_shown_the_newest_comes_first_and_the_oldest_is_forgotten(bench):
    reflexion = bench(Reflexion, **{**SETTINGS, "shown": 2})
    for day in range(3):
        reflexion.remember(day)
    reflexion.script(says("一。"), says("二。"), says("三。"))
    for day in range(3):
        reflexion.mature(day + 10, (day, 10, 0.01))
    assert reflexion.asked[2].previous == ("一。", "二。")
    assert shown(reflexion, 12) == ["三。", "二。"]
    assert [one.text for one in reflexion.mechanism.experiences("801170")] == ["二。", "三。"]


def test_a_reflection_is_shown_on_the_very_day_it_is_written(reflexion):
    reflexion.remember(0)
    reflexion.remember(10)
    reflexion.script(says("好。"))
    reflexion.mature(10, (0, 10, 0.01))
    (recalled,) = reflexion.retrieve(10)
    (kept,) = reflexion.mechanism.experiences("801170")
    assert recalled.available_from == recalled.shown.made_on == kept.made_on
    assert kept.made_on.isoformat() == reflexion.id(10)[:10]
    assert (recalled.kind, recalled.horizons, recalled.sources) == ("reflection", (10, 20, 40), (reflexion.id(0),))


@pytest.mark.parametrize(
    ("scores", "alpha"), [({20: 0.5}, 0.05), ({10: 0.5}, math.nan)], ids=["invalid score", "undefined alpha"]
)
def test_what_teaches_nothing_is_not_asked_about(reflexion, scores, alpha):
    reflexion.remember(0, scores=scores)
    assert reflexion.mature(10, (0, 10, alpha)) == []
    assert reflexion.asked == []


def test_of_the_outcomes_of_a_day_the_usable_ones_are_reflected_on(reflexion):
    reflexion.remember(0)
    reflexion.remember(10, scores={40: 0.5})
    reflexion.script(says("好。"))
    reflexion.mature(20, (0, 20, 0.0), (10, 10, 0.05))
    assert [(one.memory_id, one.alpha) for one in reflexion.asked[0].episodes] == [(reflexion.id(0), 0.0)]


def test_an_answer_that_cannot_be_read_keeps_the_old_reflection_and_is_reported(reflexion):
    for day in range(2):
        reflexion.remember(day)
    reflexion.script(says("旧。"), "no answer", says(""))
    reflexion.mature(10, (0, 10, 0.01))
    (event,) = reflexion.mature(11, (1, 10, 0.01))
    assert isinstance(event, UpdateFailed)
    assert event.code == "801170"
    assert "answer" in event.reason
    assert shown(reflexion, 11) == ["旧。"]


def test_a_backbone_that_refuses_stops_the_run(reflexion):
    reflexion.remember(0)
    reflexion.script(BackboneError("no money"))
    with pytest.raises(BackboneError, match="no money"):
        reflexion.mature(10, (0, 10, 0.01))


def test_a_long_reflection_is_cut_at_the_end_of_a_sentence(bench):
    reflexion = bench(Reflexion, **{**SETTINGS, "max_characters": 10})
    reflexion.remember(0)
    reflexion.script(says("第一句。第二句！第三句很长很长。"))
    (event,) = reflexion.mature(10, (0, 10, 0.01))
    assert event.text == "第一句。第二句！"
    assert shown(reflexion, 10) == ["第一句。第二句！"]


@pytest.mark.parametrize(
    ("text", "most", "kept"),
    [
        ("一二三。", 4, "一二三。"),  # fits
        ("一。三。五", 4, "一。三。"),  # a sentence ends at the limit
        ("一二。三四。", 5, "一二。"),
        ("一二？三四", 4, "一二？"),
        ("Up. Down now.", 8, "Up."),
        ("Up! Down?", 8, "Up!"),
        ("升\n降三四", 3, "升"),  # a line ends a sentence too
        ("好。升34.16点。", 6, "好。"),  # not 升34. : that is another number
        ("一二三四五六", 4, "一二三四"),  # no sentence ends within the limit
    ],
)
def test_cut_at_sentence(text, most, kept):
    assert cut_at_sentence(text, most) == kept


class OnlyFailures(Reflexion):
    def worth_reflecting(self, matured):
        return [one for one in matured if one.score * one.outcome.alpha < 0]


def test_a_subclass_says_what_is_worth_reflecting(bench):
    reflexion = bench(OnlyFailures, **SETTINGS)
    for day in (0, 10):
        reflexion.remember(day)
    reflexion.script(says("错。"))
    assert reflexion.mature(10, (0, 10, 0.05)) == []
    (event,) = reflexion.mature(20, (0, 20, 0.05), (10, 10, -0.05))
    assert event.sources == (reflexion.id(10),)
    assert [one.memory_id for one in reflexion.asked[0].episodes] == [reflexion.id(10)]


def test_another_sector_sees_nothing(reflexion):
    reflexion.remember(0)
    reflexion.script(says("好。"))
    reflexion.mature(10, (0, 10, 0.01))
    assert len(reflexion.mechanism.experiences("801170")) == 1
    assert reflexion.mechanism.experiences("801780") == ()
