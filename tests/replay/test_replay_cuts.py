"""What the budgets cut of experience is retrieved and not shown: nothing rests on it, and the log says so."""

import pytest
from replay_world import EchoBackbone, contents, replayed, small_parts, small_settings

from finevolve_pipeline.llm import render
from finevolve_pipeline.llm.requests import PredictRequest, ReflectRequest
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.mechanisms.memrl import MemRL, Rewarded
from finevolve_pipeline.replay.runner import experience_at, identity
from finevolve_pipeline.settings import Experiment

SCARCE = {"experience_tokens": 700}
"""Tokens for two or three past predictions with their numbers, and for the beginnings of their news."""


CODES = ["801080", "801170", "801780"]


def settings(**prompts):
    benchmark = {
        "first_session": "2025-01-02",
        "last_session": "2025-01-14",
        "horizons": [1, 2, 4],
        "industries": CODES,
    }
    return small_settings(benchmark=benchmark, prompts=prompts)


SESSIONS = settings().benchmark.sessions


class Listening(RulesBackbone):
    """`rules`, with a record of what it was asked and of what the prompts told."""

    def __init__(self):
        super().__init__()
        self.calls = []

    async def answer(self, call):
        self.calls.append(call)
        return await super().answer(call)


def test_the_log_tells_what_stood_in_the_prompt_from_what_did_not(tmp_path):
    backbone = Listening()
    store, done = replayed(tmp_path, "memrl", small_parts(settings(**SCARCE), backbone=backbone))
    log = store.read_retrievals("memrl-rules")
    stood = log["in_prompt"].value_counts().to_dict()
    assert set(stood) <= {"whole", "shortened", "left out"}
    assert stood["left out"] == sum(day.manifest.counts.memories_cut for day in done) > 0
    assert stood["shortened"] == sum(day.manifest.counts.memory_news_cut for day in done) > 0
    assert len(log) == sum(day.manifest.counts.retrievals for day in done)
    for call in backbone.calls:
        day, code = call.request.session.isoformat(), call.request.industry.code
        own = log[(log["session"] == day) & (log["code"] == code)].sort_values("rank")
        shown = own[own["in_prompt"] != "left out"]
        assert shown["rank"].tolist() == list(range(1, len(shown) + 1))
        assert shown["memory_id"].tolist() == [one.memory_id for one in call.told.memories]
        assert call.prompt.messages[1].content.count("## 经验 ") == len(shown)


def test_where_all_fits_all_is_whole(tmp_path):
    backbone = Listening()
    ample = settings(experience_tokens=60_000)
    store, _ = replayed(tmp_path, "memrl", small_parts(ample, backbone=backbone))
    assert set(store.read_retrievals("memrl-rules")["in_prompt"]) == {"whole"}
    assert all(call.told is call.request for call in backbone.calls)


def test_only_what_was_shown_is_rewarded(tmp_path):
    store, _ = replayed(tmp_path, "memrl", small_parts(settings(**SCARCE), backbone=RulesBackbone()))
    log = store.read_retrievals("memrl-rules")
    shown = {
        (row["session"], row["code"], row["memory_id"])
        for row in log.to_dict("records")
        if row["in_prompt"] != "left out"
    }
    rewarded = [
        event
        for day in SESSIONS
        for event in map(MemRL.decode, store.events("memrl-rules", day))
        if isinstance(event, Rewarded)
    ]
    assert max(len(event.memories) for event in rewarded) > 1
    for event in rewarded:
        own, *others = event.memories
        assert all((own[:10], own[11:], memory) in shown for memory in others)


def test_a_resumed_run_rests_on_what_was_shown_too(tmp_path):
    parts = small_parts(settings(**SCARCE), backbone=RulesBackbone())
    replayed(tmp_path / "at once", "memrl", parts)
    for at in range(0, len(SESSIONS), 3):
        replayed(tmp_path / "stopped", "memrl", parts, SESSIONS[at : at + 3])
    assert contents(tmp_path / "at once") == contents(tmp_path / "stopped")


def scores(root, mechanism, **prompts):
    store, _ = replayed(root / mechanism, mechanism, small_parts(settings(**prompts), backbone=RulesBackbone()))
    return store.read_predictions(f"{mechanism}-rules")["score"].tolist()


@pytest.mark.parametrize("mechanism", ["mem0", "memrl", "reflexion", "expel", "reasoningbank"])
def test_the_offline_backbone_reads_no_experience_that_its_prompt_does_not_show(tmp_path, mechanism):
    pipe = scores(tmp_path, "pipe", experience_tokens=0)
    assert scores(tmp_path, mechanism, experience_tokens=0) == pipe
    assert scores(tmp_path / "all", mechanism) != pipe


def test_the_offline_backbone_learns_from_no_news_that_its_question_does_not_show(tmp_path):
    backbone = Listening()
    parts = small_parts(settings(update_news_tokens=100), backbone=backbone)
    _, done = replayed(tmp_path, "reflexion", parts)
    asked = [call for call in backbone.calls if isinstance(call.request, ReflectRequest)]
    assert sum(day.manifest.counts.update_news_cut for day in done) > 0
    for call in asked:
        for told, whole in zip(call.told.episodes, call.request.episodes, strict=True):
            assert len(told.news.items) <= 1 <= len(whole.news.items)
            assert told.news.cut == whole.news.cut + len(whole.news.items) - len(told.news.items)
    store, _ = replayed(tmp_path / "whole", "reflexion", small_parts(settings(), backbone=RulesBackbone()))
    made_of = [
        experience_at(Experiment(mechanism="reflexion", backbone="rules"), one, where, SESSIONS[5], "801170")[0].text
        for one, where in ((parts, type(store)(tmp_path)), (small_parts(settings(), backbone=RulesBackbone()), store))
    ]
    assert made_of[0] != made_of[1]


# -- identity


def identity_of(mechanism, **prompts):
    parts = small_parts(settings(**prompts), backbone=EchoBackbone())
    return identity(Experiment(mechanism=mechanism, backbone="rules"), parts)


@pytest.mark.parametrize(
    ("mechanism", "what_counts"),
    [
        ("pipe", {"news_tokens"}),
        ("momentum", {"news_tokens"}),
        ("mem0", {"news_tokens", "experience_tokens"}),
        ("memrl", {"news_tokens", "experience_tokens"}),
        ("reflexion", {"news_tokens", "experience_tokens", "update_news_tokens"}),
        ("mem0_full", {"news_tokens", "experience_tokens", "update_news_tokens"}),
    ],
)
def test_a_mechanism_rests_on_the_budgets_of_its_own_prompts_alone(mechanism, what_counts):
    before = identity_of(mechanism)
    budgets = ("news_tokens", "experience_tokens", "update_news_tokens", "article_tokens")
    assert {name for name in budgets if identity_of(mechanism, **{name: 1234}) != before} == what_counts


def test_a_changed_template_of_the_other_language_changes_no_identity(monkeypatch):
    before = {language: identity_of("reflexion", language=language) for language in ("zh", "en")}
    true = render._source
    monkeypatch.setattr(render, "_source", lambda name: true(name) + ("!" if name == "reflect.en" else ""))
    assert identity_of("reflexion", language="zh") == before["zh"]
    assert identity_of("reflexion", language="en") != before["en"]


def test_a_prediction_is_asked_with_all_that_was_retrieved_whatever_fits(tmp_path):
    """What is cut is cut by the prompt: a mechanism need not know the budget."""
    parts = small_parts(settings(**SCARCE))
    replayed(tmp_path, "mem0", parts, SESSIONS[:7])
    last = [request for request in parts.backbone.asked if request.session == SESSIONS[6]]
    assert all(isinstance(request, PredictRequest) and len(request.memories) == 5 for request in last)
