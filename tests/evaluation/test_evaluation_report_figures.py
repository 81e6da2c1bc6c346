"""The report's newer figures: what they say, that empty inputs give sentences, and that every number is in a file."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_page import nothing_yet

from finevolve_pipeline.evaluation.comparison import compare_with_pipe, ic_matrix
from finevolve_pipeline.evaluation.layout.numbers import format_count, format_ends, format_gain, format_p
from finevolve_pipeline.evaluation.news_statistics import all_facts, article_facts, news_counts, news_statistics
from finevolve_pipeline.evaluation.published import PUBLISHED_DATASET
from finevolve_pipeline.evaluation.report import ReportInputs, dataset
from finevolve_pipeline.evaluation.report.charts import colour
from finevolve_pipeline.evaluation.report.cost import cost_block
from finevolve_pipeline.evaluation.report.evaluated import Evaluation
from finevolve_pipeline.evaluation.report.figures import dash
from finevolve_pipeline.evaluation.report.findings import Findings
from finevolve_pipeline.evaluation.report.forest import forest_block
from finevolve_pipeline.evaluation.report.industries import industry_block
from finevolve_pipeline.evaluation.report.learning_curve import learning_block
from finevolve_pipeline.evaluation.report.memory_utility import utility_block
from finevolve_pipeline.evaluation.report.retrieval_spread import retrieval_block
from finevolve_pipeline.evaluation.report.views import Block, TableView
from finevolve_pipeline.evaluation.report.words import LANGUAGES, Language, Words
from finevolve_pipeline.evaluation.spending import usage_table
from finevolve_pipeline.settings import Settings, load_settings
from finevolve_pipeline.tables import Inference, empty
from finevolve_pipeline.universe import CODES

ENGLISH = Words()


def small_settings(mechanisms: tuple[str, ...] = ("pipe", "mem0", "memrl")) -> Settings:
    """48 sessions, one backbone."""
    return load_settings(
        overrides={
            "benchmark": {"first_session": "2025-01-02", "last_session": "2025-03-18"},
            "experiments": {"mechanisms": list(mechanisms), "backbones": ["rules"]},
        }
    )


def small_world(settings: Settings) -> ReportInputs:
    """Runs on noise of which only `memrl` gets better the longer it runs."""
    rng = np.random.default_rng(5)
    sessions = [session.isoformat() for session in settings.benchmark.sessions]
    axes = [sessions, CODES, settings.benchmark.horizons]
    base = pd.MultiIndex.from_product(axes, names=["session", "code", "horizon"]).to_frame(index=False)
    alpha = base.rename(columns={"session": "predicted_on"}).assign(alpha=rng.normal(0, 0.05, len(base)))
    learnt = base["session"].map({session: at / len(sessions) for at, session in enumerate(sessions)})
    runs = {}
    for experiment in settings.all_experiments:
        skill = learnt if experiment.mechanism == "memrl" else 0.0
        score = np.tanh(20 * skill * alpha["alpha"] + rng.normal(0, 0.5, len(base)))
        told = {"experiment": experiment.key, "score": score, "invalid_reason": "", "articles": 3, "articles_cut": 1}
        runs[experiment] = base.assign(**told)
    matrix = ic_matrix(runs, alpha, sessions, settings.evaluation)
    inputs = nothing_yet(settings)
    facts = _facts()
    return dataclasses.replace(
        inputs,
        ic_matrix=matrix,
        comparison=compare_with_pipe(matrix),
        predictions=pd.concat(runs.values(), ignore_index=True),
        alpha=alpha,
        retrievals=_retrievals(sessions),
        inference=_inference(settings),
        news_counts=news_counts(facts),
        news=news_statistics(facts),
    )


def _facts() -> pd.DataFrame:
    rows = [
        ("a", "cls", "正文" * 30, ["801010", "801780"], "industry", 9, ["政策监管"]),
        ("b", "sina", "", [], "market", 10, []),
        ("c", "sina", "x" * 900, ["801780"], "industry", 5, ["未列出的主题"]),
    ]
    columns = ["article_id", "source", "content", "industries", "scope", "importance", "topics"]
    tagged = pd.DataFrame(rows, columns=columns)
    return all_facts([article_facts("2025-01-02", tagged, tagged.iloc[:1])])


def _retrievals(sessions: list[str]) -> pd.DataFrame:
    def row(experiment: str, at: int, kind: str, q: float) -> dict[str, Any]:
        return {
            "session": sessions[at],
            "experiment": experiment,
            "code": "801010",
            "kind": kind,
            "age": at % 7,
            "matured_share": 1 / 3,
            "news_overlap": 0.0,
            "similarity": 0.5,
            "in_prompt": "whole",
            "q": q,
            "visits": at,
        }

    rows = [row("mem0-rules", at, kind, np.nan) for at in range(1, 40) for kind in ("trajectory", "fact")]
    return pd.DataFrame(rows + [row("memrl-rules", at, "trajectory", 0.001 * at) for at in range(1, 40)])


def _inference(settings: Settings) -> pd.DataFrame:
    base = dict.fromkeys(empty(Inference).columns, np.nan)
    rows = []
    for mechanism, estimate in (("mem0", 0.01), ("memrl", 0.2)):
        for metric in ("tsIC", "csIC"):
            for horizon in (*settings.benchmark.horizons, 0):
                where = {"backbone": "rules", "mechanism": mechanism, "stage": "overall", "method": "spearman"}
                told = {"metric": metric, "horizon": horizon, "quantity": "difference", "estimate": estimate}
                ends = {"low": estimate - 0.05, "high": estimate + 0.05, "p": estimate / 10, "p_holm": 0.3 - estimate}
                rows.append({**base, **where, **told, **ends, "minimum_detectable": 0.12})
    rows += [{**row, "p_holm": 0.0004} for row in rows if row["mechanism"] == "memrl"]
    return pd.DataFrame([row for row in rows if row["mechanism"] == "mem0" or row["p_holm"] < 0.05])


@pytest.fixture(scope="module")
def findings() -> Findings:
    return Findings(Evaluation(small_world(small_settings())))


def texts(table: TableView | str) -> list[list[str]]:
    assert isinstance(table, TableView)
    return [[cell.text for cell in row] for row in table.rows]


def blocks(findings: Findings, words: Words) -> dict[str, Block]:
    return {
        "forest": forest_block(findings, 0, "rules", words),
        "learning": learning_block(findings, 0, "rules", words),
        "industries": industry_block(findings, "rules", words),
        "retrieval": retrieval_block(findings, 0, "rules", words),
        "utility": utility_block(findings, words),
        "cost": cost_block(findings, words),
        "news": dataset.news_block(findings, words),
        "shown": dataset.shown_block(findings, words),
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_before_anything_is_there_every_part_is_a_sentence_and_never_an_empty_figure(language: Language) -> None:
    nothing = Findings(Evaluation(nothing_yet(small_settings())))
    found = blocks(nothing, Words(language))
    assert {name for name, block in found.items() if block.figures or block.tables} == set()
    assert {name for name, block in found.items() if not block.sentences} == {"news"}  # the page says it once already
    assert dict(texts_by_first(dataset.facts_table(nothing, ENGLISH)))["Articles shown to agents"][:2] == [
        "0",
        "126,878",
    ]
    assert all(content.count("\n") >= 1 for content in nothing.files().values())


def texts_by_first(table: TableView) -> list[tuple[str, list[str]]]:
    return [(first, rest) for first, *rest in texts(table)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_figure_has_a_drawing_a_chart_and_its_numbers(findings: Findings, language: Language) -> None:
    figures = [view for block in blocks(findings, Words(language)).values() for view in block.figures]
    assert len(figures) == 12
    assert len({view.name for view in figures}) == len(figures)
    for view in figures:
        assert view.svg.startswith('<svg role="img" aria-label="')
        assert view.chart is not None
        assert view.chart["data"]
        assert texts(view.table)


def test_the_forest_has_a_row_a_mechanism_and_fills_what_was_found(findings: Findings) -> None:
    cs, ts = forest_block(findings, 0, "rules", ENGLISH).figures
    assert (cs.title, ts.title) == ("csIC less Pipe's, with 95 % intervals", "tsIC less Pipe's, with 95 % intervals")
    assert texts(cs.table)[0] == ["Mem0", "10 sessions", "+0.0100", "[-0.0400, +0.0600]", "0.001", "0.290", "0.1200"]
    assert texts(cs.table)[-1][1:6] == ["Mean over horizons", "+0.2000", "[+0.1500, +0.2500]", "0.020", "<0.001"]
    assert cs.chart is not None
    assert [trace["name"] for trace in cs.chart["data"]] == [
        "10 sessions",
        "20 sessions",
        "40 sessions",
        "Mean over horizons",
    ]
    assert [symbol.endswith("-open") for symbol in cs.chart["data"][0]["marker"]["symbol"]] == [True, False]


def test_a_mechanism_that_learns_gains_ground_and_noise_does_not(findings: Findings) -> None:
    block = learning_block(findings, 0, "rules", ENGLISH)
    _, verdict = block.sentences
    assert "MemRL gains ground at 10 sessions (p " in verdict
    assert "Mem0" not in verdict
    (slopes,) = block.tables
    assert [row[:3] for row in texts(slopes)][:2] == [["Mem0", "10", "48"], ["Mem0", "20", "48"]]
    lead, level = block.figures
    assert len(texts(lead.table)) == 10
    assert isinstance(lead.table, TableView)
    assert isinstance(level.table, TableView)
    assert len(lead.table.columns) == 2 + 3 * 2
    assert len(level.table.columns) == 2 + 3 * 3


def test_without_learning_no_trend_is_told_from_chance() -> None:
    still = Findings(Evaluation(small_world(small_settings(("pipe", "mem0")))))
    assert (
        "No trend of the difference from Pipe can be told from chance"
        in learning_block(still, 0, "rules", ENGLISH).sentences[1]
    )


def test_with_pipe_alone_only_its_level_is_shown() -> None:
    alone = Findings(Evaluation(small_world(small_settings(("pipe",)))))
    block = learning_block(alone, 0, "rules", ENGLISH)
    assert block.sentences == ("There is nothing to compare with Pipe, so only levels are shown.",)
    assert [view.title for view in block.figures] == ["csIC by matured experience"]
    assert industry_block(alone, "rules", ENGLISH).sentences == ("No industry has a difference from Pipe yet.",)


def test_the_industry_map_is_the_difference_of_two_coefficients_and_ends_with_their_mean(findings: Findings) -> None:
    (table,) = industry_block(findings, "rules", ENGLISH).tables
    assert table.columns[:4] == ("Industry", "Mem0 10d", "Mem0 20d", "Mem0 40d")
    frame = findings.evaluation.industries.set_index(["experiment", "code", "horizon"])["ic"]
    own, pipe = frame["mem0-rules", CODES[0], 10], frame["pipe-rules", CODES[0], 10]
    assert texts(table)[0][1] == f"{own - pipe:+.2f}"
    strength = table.rows[0][1].strength
    assert strength is not None
    assert (strength > 0) == (own > pipe)
    assert texts(table)[-1][0] == "Mean"
    assert len(table.rows) == 32


def test_kinds_of_memories_are_drawn_apart(findings: Findings) -> None:
    block = retrieval_block(findings, 0, "rules", ENGLISH)
    assert [view.title for view in block.figures] == [
        "Retrieved facts: age, outcomes known, overlap",
        "Retrieved trajectories: age, outcomes known, overlap",
    ]
    # Ages 1 to 6 and 0, thirty-nine memories: five of age 0, no outcome unknown, none sharing news.
    assert texts(block.figures[0].table) == [
        ["Mem0", "39", "12.8%", "28.2%", "87.2%", "100.0%", "100.0%", "100.0%", "100.0%", "100.0%", "0.0%", "100.0%"]
    ]


def test_q_is_shown_by_third_of_the_window_for_runs_that_have_one(findings: Findings) -> None:
    (figure,) = utility_block(findings, ENGLISH).figures
    table = figure.table
    assert [row[:3] for row in texts(table)] == [
        ["MemRL", "retrieved, first third", "15"],
        ["MemRL", "retrieved, second third", "16"],
        ["MemRL", "retrieved, last third", "8"],
    ]
    assert texts(table)[0][5] == "100.0%"


def usage(findings: Findings, tokens: int, cost: float) -> Findings:
    days = [
        {
            "experiment": run.key,
            "session": "2025-01-02",
            "calls": 31,
            "prompt_tokens": tokens,
            "cached_prompt_tokens": 0,
            "completion_tokens": tokens,
            "reasoning_tokens": 0,
            "cost": cost,
        }
        for run in findings.evaluation.runs
    ]
    return Findings(Evaluation(dataclasses.replace(findings.inputs, usage=usage_table(days))))


def test_where_no_model_was_paid_a_sentence_says_so_in_place_of_a_figure(findings: Findings) -> None:
    block = cost_block(usage(findings, 0, 0.0), ENGLISH)
    assert block.sentences == ("No model was paid: the runs' backbone needs none.",)
    assert block.figures == ()
    assert texts(block.tables[0])[0][:3] == ["pipe-rules", "1", "31"]


def test_gains_stand_over_dollars_and_over_tokens_where_the_price_is_zero(findings: Findings) -> None:
    paid = cost_block(usage(findings, 2_000_000, 1.5), ENGLISH)
    assert paid.sentences == ()
    assert [trace["x"] for trace in chart_data(paid)] == [[1.5, 1.5]]
    free = cost_block(usage(findings, 2_000_000, 0.0), ENGLISH)
    assert free.sentences == ("No model was paid: their price is zero.",)
    assert [trace["x"] for trace in chart_data(free)] == [[4, 4]]
    assert texts(paid.figures[0].table)[1] == ["MemRL", "rules", "1.50", "+0.2000", "[+0.1500, +0.2500]"]
    assert texts(paid.tables[0])[2][-4:] == ["+0.2000", "[+0.1500, +0.2500]", "+0.2000", "[+0.1500, +0.2500]"]


def chart_data(block: Block) -> list[Any]:
    chart = block.figures[0].chart
    assert chart is not None
    return list(chart["data"])


def test_the_dataset_stands_beside_the_papers(findings: Findings) -> None:
    facts = dict(texts_by_first(dataset.facts_table(findings, ENGLISH)))
    assert facts["Prediction sessions"] == ["48", "300"]
    assert facts["Articles before selection"] == ["3", "222,025"]
    assert facts["Articles shown to agents"] == ["1", "126,878"]
    assert facts["Importance reaches the threshold"] == ["66.7%", "56.6%"]
    assert facts["Largest source"] == ["sina 66.7%", "sina 56.0%"]
    assert facts["Days with news shown"] == ["1", "876"]
    assert facts["Known labels"][0] == f"{48 * 31 * 3:,} / {48 * 31 * 3:,}"
    # The paper's own figures agree with each other: articles by its news days.
    assert round(PUBLISHED_DATASET.selected / PUBLISHED_DATASET.per_day) == 882


def test_news_are_drawn_by_month_industry_topic_and_length(findings: Findings) -> None:
    months, industries, topics, lengths = dataset.news_block(findings, ENGLISH).figures
    assert texts(months.table) == [["2025-01", "3", "2", "1"]]
    assert texts(industries.table)[:2] == [
        ["银行 Banks", "2", "1", "50.0%"],
        ["农林牧渔 Agriculture", "1", "1", "100.0%"],
    ]
    assert sorted(row[0] for row in texts(topics.table)) == ["policy and regulation", "未列出的主题"]
    assert texts(lengths.table)[0] == ["All sources", "tagged", "3", "33.3%", "480", "60", "900", "900"]
    chinese_names = dataset.news_block(findings, Words("zh")).figures[1]
    assert texts(chinese_names.table)[0][0] == "银行"


def test_every_file_that_a_view_names_is_written(findings: Findings) -> None:
    named = set()
    for block in blocks(findings, ENGLISH).values():
        for view in block.figures:
            assert isinstance(view.table, TableView)
            named |= set(re.findall(r"tables/\w+\.csv", " ".join(view.table.notes)))
    assert len(named) > 4
    assert named <= set(findings.files())
    rows = list(csv.DictReader(io.StringIO(findings.files()["tables/differences.csv"])))
    assert {row["stage"] for row in rows} == {"overall"}
    assert len(rows) == 16


def test_numbers_are_written_with_sign_separators_and_a_dash_where_there_is_none() -> None:
    assert (format_gain(0.0123), format_gain(float("nan"))) == ("+0.0123", "–")
    assert (format_ends(-0.1, 0.2), format_ends(float("nan"), 0.2)) == ("[-0.1000, +0.2000]", "–")
    assert (format_p(0.05), format_p(0.0009), format_p(float("nan"))) == ("0.050", "<0.001", "–")
    assert (format_count(1234.0), format_count(float("nan"))) == ("1,234", "–")


def test_no_two_of_many_lines_look_alike() -> None:
    assert len({(colour(position), dash(position, 4)) for position in range(32)}) == 32
