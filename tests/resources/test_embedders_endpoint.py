"""The `/embeddings` of a provider: what comes back is checked row by row, and nothing is asked twice."""

import asyncio
import base64
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from model_server import InOrder, ModelServer, always, embeddings, html, running, status

from finevolve_pipeline.errors import BackboneError, BudgetError, CacheMissError
from finevolve_pipeline.llm.ledger import Ledger, ledger_path
from finevolve_pipeline.llm.tokens import estimate_tokens
from finevolve_pipeline.settings import load_settings
from resources.embedders import build_embedder

sys.path.insert(0, str(Path(__file__).parent.parent / "replay"))

from replay_world import contents, replayed, small_parts, small_settings

TEXTS = ["钢铁限产，价格上涨", "医保集采降价", "油价大涨", "降准50个基点", "光伏组件减产"]


@pytest.fixture
def server():
    with running(ModelServer()) as server:
        yield server


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr("resources.provider.FIRST_PAUSE", 0.01)


def settings_for(server, provider=None, **section):
    mode = section.pop("mode", "use")
    budget = section.pop("usd", None)
    given = {"model": "m", "dimensions": 8, "max_tokens": 0, "batch": 2, **section}
    return load_settings(
        overrides={
            "cache": {"mode": mode},
            "budget": {"usd": budget},
            "embedding": {"embedder": "endpoint"},
            "embedders": {"endpoint": given},
            "providers": {"local": {"base_url": server.base_url, "attempts": 3, **(provider or {})}},
        }
    )


def sent_by(server, change):
    """A step that answers ordinarily, but for what `change` does to the body."""

    async def step(exchange):
        body = embeddings(exchange.question)
        body = change(body) or body
        exchange.send(200, json.dumps(body).encode())

    return step


def expected(texts=TEXTS):
    """The vectors that the server means."""

    class Asked:
        body = {"input": texts}  # noqa: RUF012
        model = "m"

    raw = np.array([one["embedding"] for one in embeddings(Asked)["data"]], dtype=np.float32)
    return raw / np.linalg.norm(raw, axis=1, keepdims=True)


def embedded(server, home, plan=None, texts=TEXTS, **section):
    server.plan = plan
    return build_embedder(settings_for(server, **section), home).embed(texts)


def test_texts_go_in_batches_and_vectors_come_back_in_order(server, home):
    vectors = embedded(server, home)
    assert vectors == pytest.approx(expected(), abs=1e-6)
    assert vectors.dtype == np.float32
    assert [one.path for one in server.log] == ["/v1/embeddings"] * 3


def test_it_works_inside_a_running_event_loop_and_out_of_it(server, home):
    embedder = build_embedder(settings_for(server), home)

    async def inside():
        return embedder.embed(TEXTS[:3])

    assert asyncio.run(inside()) == pytest.approx(expected(TEXTS[:3]), abs=1e-6)
    assert embedder.embed(TEXTS) == pytest.approx(expected(), abs=1e-6)


def test_a_replay_asks_for_each_days_news_once_and_comes_out_the_same_from_the_cache(server, home):
    settings = small_settings(last="2025-01-08")
    live = build_embedder(settings_for(server, batch=16), home)
    replayed(home / "live", "mem0", small_parts(settings, embedder=live))
    asked = len(server.log)
    assert asked <= 2 * len(settings.benchmark.sessions)
    again = build_embedder(settings_for(server, batch=16, mode="replay-only"), home)
    replayed(home / "again", "mem0", small_parts(settings, embedder=again))
    assert contents(home / "live") == contents(home / "again")
    assert len(server.log) == asked > 0


def test_only_new_texts_are_sent_and_replay_only_sends_none(server, home):
    first = embedded(server, home, texts=TEXTS[:2])
    embedded(server, home, texts=TEXTS[:3])
    assert len(server.log) == 2
    again = embedded(server, home, texts=TEXTS[:2], mode="replay-only", provider={"key_variable": "NO_SUCH_KEY"})
    assert again.tobytes() == first.tobytes()
    with pytest.raises(CacheMissError, match="embedder endpoint for 1 of 2 texts"):
        embedded(server, home, texts=TEXTS[2:4], mode="replay-only")
    assert len(server.log) == 2


def test_rows_are_put_in_order_by_index(server, home):
    shuffled = sent_by(server, lambda body: body["data"].reverse())
    assert embedded(server, home, always(shuffled)) == pytest.approx(expected(), abs=1e-6)


def test_rows_without_index_are_taken_as_they_come(server, home):
    bare = sent_by(server, lambda body: [one.pop("index") for one in body["data"]] and body)
    assert embedded(server, home, always(bare)) == pytest.approx(expected(), abs=1e-6)


def test_base64_is_read_like_numbers(server, home, tmp_path):
    def encoded(body):
        for one in body["data"]:
            one["embedding"] = base64.b64encode(np.array(one["embedding"], dtype="<f4").tobytes()).decode()

    plain = embedded(server, home)
    assert embedded(server, tmp_path / "b", always(sent_by(server, encoded))).tobytes() == plain.tobytes()


def damaged(server):
    def drop_row(body):
        body["data"].pop()

    def value(new):
        def change(body):
            body["data"][0]["embedding"][0] = new

        return change

    def whole(new):
        def change(body):
            body["data"][0]["embedding"] = new

        return change

    def same_index(body):
        body["data"][0]["index"] = body["data"][-1]["index"]

    def index(new):
        def change(body):
            body["data"][0]["index"] = new

        return change

    return {
        "a row too few": (drop_row, r"1 embeddings for 2 texts"),
        "an index twice": (same_index, "indices are not those of the texts"),
        "an index beyond": (index(7), "indices are not those of the texts"),
        "an index that is none": (index("0"), "indices are not those of the texts"),
        "NaN": (value(float("nan")), "NaN or infinity"),
        "infinity": (value(float("inf")), "NaN or infinity"),
        "beyond float32": (value(1e300), "NaN or infinity"),
        "null": (value(None), "no list of numbers"),
        "a text among numbers": (value("0.5"), "no list of numbers"),
        "a truth value": (value(True), "no list of numbers"),
        "zeros": (whole([0.0] * 8), "a vector of zeros"),
        "bad base64": (whole("*not base64*"), "neither numbers nor base64"),
        "half a number in base64": (whole(base64.b64encode(b"12345").decode()), "neither numbers nor base64"),
        "no vector": (whole(None), "no list of numbers"),
        "no data": (lambda body: {"object": "list"}, "holds no embeddings"),
        "an error inside": (lambda body: {"error": {"message": "out of memory"}}, "out of memory"),
        "no object": (lambda body: [1, 2], "holds no embeddings"),
    }


@pytest.mark.parametrize("name", list(damaged(None)))
def test_a_damaged_answer_is_asked_again(server, home, name):
    change, _ = damaged(server)[name]
    plan = InOrder(sent_by(server, change))
    assert embedded(server, home, plan, texts=TEXTS[:2]) == pytest.approx(expected(TEXTS[:2]), abs=1e-6)
    assert len(server.log) == 2


@pytest.mark.parametrize("name", list(damaged(None)))
def test_answers_that_stay_damaged_stop_with_one_line_and_leave_no_vector(server, home, name):
    change, why = damaged(server)[name]
    with pytest.raises(BackboneError, match=why) as caught:
        embedded(server, home, always(sent_by(server, change)), texts=TEXTS[:2])
    assert "provider local: a request failed 3 times" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(CacheMissError, match="2 of 2 texts"):
        embedded(server, home, texts=TEXTS[:2], mode="replay-only")


def test_status_429_html_and_a_broken_server_are_waited_out(server, home):
    plan = InOrder(status(429, "slow down", headers={"retry-after": "0.01"}), html(), status(503, "busy"))
    vectors = embedded(server, home, plan, texts=TEXTS[:2], provider={"attempts": 6})
    assert vectors == pytest.approx(expected(TEXTS[:2]), abs=1e-6)
    assert [one.status for one in server.log] == [429, 200, 503, 200]
    ledger = Ledger(ledger_path(home), None)
    assert ledger.failures() == {"malformed": 1, "rate_limited": 1, "server_error": 1}


def test_what_came_before_a_failure_is_not_asked_again(server, home):
    server.plan = lambda question: status(400, "no") if TEXTS[2] in question.body["input"] else None
    with pytest.raises(BackboneError, match="status 400"):
        build_embedder(settings_for(server), home).embed(TEXTS)
    before = len(server.log)
    embedded(server, home)
    assert len(server.log) == before + 1


def test_another_length_stops_at_once_and_says_what_to_set(server, home):
    with pytest.raises(BackboneError, match=r"dimensions is 12, 'm' gives 8; set dimensions = 8 in \[embedders"):
        embedded(server, home, texts=TEXTS[:2], dimensions=12)
    assert len(server.log) == 1


def test_the_length_is_asked_for_where_that_is_set(server, home):
    assert embedded(server, home, dimensions=12, send_dimensions=True).shape == (5, 12)


def test_another_model_stops_at_once_unless_its_name_is_known(server, home):
    other = always(sent_by(server, lambda body: body | {"model": "cheaper"}))
    with pytest.raises(BackboneError, match=r"'m' was asked and 'cheaper' answered.*served_as of \[embedders.endpoint"):
        embedded(server, home, other, texts=TEXTS[:2])
    assert len(server.log) == 1
    assert embedded(server, home, other, served_as=["cheaper"]).shape == (5, 8)


def test_long_texts_are_cut_to_the_estimate_and_counted_the_same_from_the_cache(server, home):
    seen = []
    server.plan = lambda question: seen.extend(question.body["input"])
    texts = ["涨" * 50, "涨跌 " * 40, "短"]
    settings = settings_for(server, max_tokens=20, batch=3)
    embedder = build_embedder(settings, home)
    embedder.embed(texts)
    assert embedder.cut(texts) == 2
    assert sorted(map(len, seen)) == [1, 20, len(seen[1])]
    for text, sent in zip(texts, seen, strict=True):
        assert text.startswith(sent)
        assert estimate_tokens(sent) <= 20
        assert sent == text or estimate_tokens(text[: len(sent) + 1]) > 20
    again = build_embedder(settings_for(server, max_tokens=20, mode="replay-only"), home)
    assert again.cut([*texts, texts[0]]) == 3


def test_usage_is_metered_with_its_price_and_the_budget_holds(server, home):
    embedded(server, home, price=2.0)
    tokens = sum(estimate_tokens(text) for text in TEXTS)
    (total,) = Ledger(ledger_path(home), None).totals(("backbone", "phase"))
    assert total.group == {"backbone": "endpoint", "phase": "embed"}
    assert total.calls == 3
    assert total.prompt_tokens == tokens
    assert total.cost == pytest.approx(2.0 * tokens / 1e6)
    with pytest.raises(BudgetError, match="endpoint"):
        embedded(server, home, texts=["新闻" * 50], price=2.0, usd=total.cost)
    assert len(server.log) == 3


def test_an_unknown_price_and_a_budget_do_not_go_together(server, home):
    with pytest.raises(BudgetError, match=r"price of endpoint is not known; set price in \[embedders.endpoint\]"):
        embedded(server, home, usd=5.0)
    assert server.log == []


def test_the_key_is_sent_and_never_shown(server, home, monkeypatch):
    monkeypatch.setenv("EMBED_KEY", "sk-secret-123456789")
    seen = []
    server.plan = lambda question: (
        seen.append(question.headers.get("authorization")) or status(401, "bad sk-secret-123456789")
    )
    with pytest.raises(BackboneError, match="check the key in environment variable EMBED_KEY") as caught:
        embedded(server, home, server.plan, texts=TEXTS[:1], provider={"key_variable": "EMBED_KEY"})
    assert seen == ["Bearer sk-secret-123456789"]
    assert "sk-secret" not in str(caught.value)
    settings = settings_for(server, provider={"key_variable": "EMBED_KEY"})
    assert "sk-secret" not in json.dumps(build_embedder(settings, home).identity)


def test_the_identity_names_who_serves_what_and_how_it_is_asked(server, home):
    identity = build_embedder(settings_for(server), home).identity
    assert identity == {
        "kind": "openai",
        "served_by": server.base_url,
        "model": "m",
        "dimensions": 8,
        "send_dimensions": False,
        "max_tokens": 0,
    }
    named = settings_for(server, provider={"deployment": "my vllm"})
    assert build_embedder(named, home).identity["served_by"] == "my vllm"
    for change in ({"model": "n"}, {"dimensions": 9}, {"send_dimensions": True}, {"max_tokens": 5}):
        assert build_embedder(settings_for(server, **change), home).identity != identity
    for same in ({"batch": 7}, {"price": 1.0}, {"served_as": ["x"]}):
        assert build_embedder(settings_for(server, **same), home).identity == identity


def test_lone_surrogates_do_not_stop_a_run(server, home):
    assert embedded(server, home, texts=["涨\ud800跌"]).any()


def test_a_provider_that_is_not_there_is_named(server, home):
    settings = settings_for(server, provider={"base_url": "http://127.0.0.1:9/v1", "attempts": 1})
    with pytest.raises(BackboneError, match=re.escape("no connection to http://127.0.0.1:9/v1")):
        build_embedder(settings, home).embed(["涨"])
