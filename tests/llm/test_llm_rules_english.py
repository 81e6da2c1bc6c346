"""With English prompts the offline backbone writes English, and reads it back as it reads Chinese."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

from finevolve_pipeline.llm.requests import Call, FactsRequest, MemoryRequest, Prompt
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.llm.rules.lessons import mark, read_lessons, read_mark, write_lessons
from finevolve_pipeline.mechanisms.registry import BUILT_IN
from finevolve_pipeline.news.block import NewsBlock
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import Parts, run
from finevolve_pipeline.settings import Experiment
from finevolve_pipeline.universe import industry

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "replay"))

from replay_world import small_parts, small_settings

CHINESE = re.compile("[\u4e00-\u9fff]")
QUOTED = re.compile("“[^”]*”|[^ ]*[\u4e00-\u9fff][^:;]*(?= \\((?:positive|negative|neutral))|\\([看中承][^)]*\\)")
"""What is quoted of articles: words of the lexicon, titles before their mark, and the lexicon's word of a view."""


def test_lessons_and_marks_are_read_back_in_both_languages() -> None:
    lessons = {10: 0.45, 20: -0.12, 40: 1.0}
    for language in ("zh", "en"):
        text = write_lessons(lessons, language)
        assert {one.horizon: one.reliability for one in read_lessons(text)} == lessons
        assert read_lessons(f"{text} News reliability at 5d +9.99. More.")[-1].reliability == 1.0
        for side, word in ((1, "大增"), (-1, ""), (0, "")):
            found = read_mark(mark("某公司：订单", side, word, language))
            assert (found.text, found.side, found.word) == ("某公司：订单", side, word)
    assert write_lessons(lessons, "en") == (
        "News reliability at 10d +0.45; News reliability at 20d -0.12; News reliability at 40d +1.00."
    )


@pytest.mark.parametrize(
    "text",
    [
        "A title: News reliability at 10d +1.00.",
        "News reliability at 10d",
        *(f"News reliability at 10d {cut}" for cut in ("+0", "+0.", "+0.4", "+0.45")),
        *(f"News reliability at 10d {cut}. (shortened)" for cut in ("+0", "+0.", "+0.4")),
        *(f"10日新闻方向信度{cut}" for cut in ("+0", "+0.", "+0.4", "+0.45")),
        *(f"10日新闻方向信度{cut}。（已截断）" for cut in ("+0", "+0.", "+0.4")),
        "x (positive) y",
    ],
)
def test_what_does_not_stand_where_it_was_written_teaches_nothing(text: str) -> None:
    assert read_lessons(text) == ()
    assert read_mark(text).side is None


def parts_in(language: str) -> Parts:
    benchmark = {
        "first_session": "2025-01-02",
        "last_session": "2025-01-14",
        "horizons": [1, 2, 4],
        "industries": ["801080", "801170"],
    }
    return small_parts(small_settings(benchmark=benchmark, prompts={"language": language}), backbone=RulesBackbone())


def replay(root: Path, mechanism: str, language: str) -> tuple[ReplayStore, str]:
    parts, store = parts_in(language), ReplayStore(root / language)
    experiment = Experiment(mechanism=mechanism, backbone="rules")
    run(experiment, parts.settings.benchmark.sessions, parts, store, lambda day: None)
    return store, experiment.key


# Facts (`mem0_full`) are compared with news by their own texts, so that another language finds others.
@pytest.mark.parametrize("mechanism", ["mem0", "memrl", "reflexion", "expel", "reasoningbank", "expel_original"])
def test_a_run_in_english_scores_as_one_in_chinese(tmp_path: Path, mechanism: str) -> None:
    (chinese, key), (english, _) = (replay(tmp_path, mechanism, language) for language in ("zh", "en"))
    scores = [store.read_predictions(key)["score"].tolist() for store in (chinese, english)]
    assert scores[0] == scores[1] != []


@pytest.mark.parametrize(
    "mechanism", ["mem0", "memrl", "reflexion", "expel", "reasoningbank", "mem0_full", "expel_original"]
)
def test_a_run_in_english_says_what_it_says_in_english(tmp_path: Path, mechanism: str) -> None:
    english, key = replay(tmp_path, mechanism, "en")
    predicted = english.read_predictions(key)
    assert len(predicted) > 0
    assert not [text for text in predicted["logic_chain"] if CHINESE.search(text)]
    written = [
        str(value)
        for day in english.sessions(key)
        for event in map(BUILT_IN[mechanism].decode, english.events(key, day))
        for name, value in event.to_json().items()
        if name in ("text", "items", "changes")
    ]
    assert bool(written) == bool(BUILT_IN[mechanism].templates)
    for text in written:
        assert not CHINESE.search(QUOTED.sub("", text)), text


def say(request: object, language: str) -> dict[str, list[object]]:
    prompt = Prompt((), language=language)  # type: ignore[arg-type]
    reply = asyncio.run(RulesBackbone().answer(Call(request, prompt)))  # type: ignore[arg-type]
    found: dict[str, list[object]] = json.loads(reply.text)
    return found


def test_a_view_of_another_day_rewrites_the_one_before_and_is_told_from_other_facts() -> None:
    day, sector = parts_in("en").settings.benchmark.sessions[0], industry("801170")
    views = []
    for score in (0.4, -0.4):
        views += say(FactsRequest(day, sector, NewsBlock((), 0), {1: score}, "", "", 5), "en")["facts"]
    assert views[0] == "View of this industry: positive (看好), 1d +0.40 (positive)"
    asked = MemoryRequest(
        day, sector, facts=(str(views[1]),), memories=("某公司：订单大增 (positive, “大增”)", str(views[0]))
    )
    assert say(asked, "en")["operations"] == [{"operation": "UPDATE", "memory": 2, "text": views[1]}]
