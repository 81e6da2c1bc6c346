"""The report: what it says, that its bytes repeat, and that no text can break out of it."""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inferred import Inferred, inference, level
from report_page import HOSTILE, Page, nothing_yet

from finevolve_pipeline import universe
from finevolve_pipeline.evaluation import diagnostics, folders, ic
from finevolve_pipeline.evaluation.case import (
    CaseRun,
    CaseStudy,
    Choice,
    Realised,
    Retrieved,
    Scored,
    SectorDay,
    Source,
)
from finevolve_pipeline.evaluation.comparison import compare_with_pipe, ic_matrix
from finevolve_pipeline.evaluation.layout import table2, table2_markdown
from finevolve_pipeline.evaluation.report import PlantedTruth, ReportFiles, ReportInputs, build_report
from finevolve_pipeline.evaluation.report.build import POLICY
from finevolve_pipeline.market.context import MarketContext, TrailingReturn
from finevolve_pipeline.news.block import NewsItem
from finevolve_pipeline.news.coverage_table import coverage_table
from finevolve_pipeline.settings import Experiment, Settings, load_settings
from finevolve_pipeline.tables import (
    TIME,
)
from finevolve_pipeline.universe import CODES, INDUSTRIES


def world_settings(last: str = "2025-04-30", **overrides: Any) -> Settings:
    """The window from 2025-01-02 to `last` (78 sessions by default)."""
    base = {
        "benchmark": {"first_session": "2025-01-02", "last_session": last},
        "experiments": {"mechanisms": ["pipe", "mem0", "memrl"], "backbones": ["rules", "other"]},
        "backbones": {"other": {"kind": "rules"}},
    }
    return load_settings(overrides={**base, **overrides})


def world(settings: Settings, truth: bool = True) -> ReportInputs:
    """Inputs of a report over the window of `settings`, everything seeded."""
    rng = np.random.default_rng(20250530)
    sessions = [session.isoformat() for session in settings.benchmark.sessions]
    axes = [sessions, CODES, settings.benchmark.horizons]
    base = pd.MultiIndex.from_product(axes, names=["session", "code", "horizon"]).to_frame(index=False)
    turn = sessions[len(sessions) // 2]
    sign = np.where(base["session"] < turn, 1.0, -0.6)
    signal = rng.normal(size=len(base))
    alpha = base.rename(columns={"session": "predicted_on"}).assign(
        alpha=0.01 * sign * signal + 0.05 * rng.normal(size=len(base))
    )
    runs, parts = {}, []
    for strength, experiment in enumerate(settings.all_experiments):
        noise = rng.normal(size=len(base)) * (1 + strength / 3)
        score = np.tanh(signal + noise).round(1)
        bad = rng.random(len(base)) < 0.01
        part = base.assign(
            experiment=experiment.key,
            score=np.where(bad, np.nan, score),
            invalid_reason=np.where(bad, HOSTILE[4], ""),
            articles=rng.integers(0, 30, len(base)),
            articles_cut=rng.integers(0, 3, len(base)),
        )
        runs[experiment] = part
        parts.append(part)
    matrix = ic_matrix(runs, alpha, sessions, settings.evaluation)
    regimes = {session: "A" if session < turn else "B" for session in sessions}
    return ReportInputs(
        settings=settings,
        ic_matrix=matrix,
        comparison=compare_with_pipe(matrix),
        predictions=pd.concat(parts, ignore_index=True),
        retrievals=_retrievals(rng, sessions, [e.key for e in settings.all_experiments if e.mechanism != "pipe"]),
        alpha=alpha,
        news_counts=_news_counts(rng, sessions),
        news_sessions=pd.DataFrame({"session": sessions, "articles": rng.integers(200, 900, len(sessions))}),
        news_sample=_news_sample(),
        coverage=coverage_table((), {}),
        manifests={
            "dataset": {"alpha": "d41d8cd98f00b204e9800998ecf8427e", "sources": ["cls", "sina"]},
            "versions": {"finevolve-pipeline": "0.1.0", "note": HOSTILE[0]},
        },
        truth=PlantedTruth(regimes, (turn,)) if truth else None,
    )


def _retrievals(rng: np.random.Generator, sessions: list[str], experiments: list[str]) -> pd.DataFrame:
    rows = [
        {
            "session": session,
            "experiment": experiment,
            "code": code,
            "kind": "trajectory",
            "age": int(rng.integers(1, position + 1)),
            "matured_share": float(rng.integers(0, 4)) / 3,
            "news_overlap": float(rng.random()),
            "similarity": float(rng.uniform(0.1, 1)),
            "in_prompt": "whole",
            "q": float(rng.normal(0, 0.02)) if "memrl" in experiment else math.nan,
            "visits": int(rng.integers(0, 4)),
        }
        for experiment in experiments
        for position, session in enumerate(sessions)
        if position
        for code in CODES[:4]
    ]
    return pd.DataFrame(rows)


def _news_counts(rng: np.random.Generator, days: list[str]) -> pd.DataFrame:
    sources = ["cls", "sina", "微博热搜", "=cmd|' /C calc'!A0", HOSTILE[1]]
    rows = [
        {
            "day": day,
            "source": source,
            "importance": importance,
            "articles": int(n),
            "selected": int(n) if importance > 7 else 0,
        }
        for day in days
        for source in sources
        for importance, n in zip(range(1, 11), rng.integers(0, 20, 10), strict=True)
    ]
    return pd.DataFrame(rows)


def _news_sample() -> pd.DataFrame:
    titles = ["航运指数上涨，港口吞吐量创新高", *HOSTILE]
    frame = pd.DataFrame({"title": titles, "source": "cls", "importance": 9, "topics": [["policy"]] * len(titles)})
    frame["industries"] = [["801170"], *([["801780", "801790"]] * len(HOSTILE))]
    stamps = pd.date_range("2025-01-02 09:30", periods=len(titles), freq="37min", tz="Asia/Shanghai")
    return frame.assign(published_at=stamps.astype(TIME), content="正文", importance_reason="政策")


@pytest.fixture(scope="module")
def inputs() -> ReportInputs:
    return world(world_settings())


@pytest.fixture(scope="module")
def built(inputs: ReportInputs, tmp_path_factory: pytest.TempPathFactory) -> ReportFiles:
    return build_report(tmp_path_factory.mktemp("report") / "report", inputs)


@pytest.fixture(scope="module")
def source(built: ReportFiles) -> str:
    return built.index.read_text("utf-8")


@pytest.fixture(scope="module")
def page(source: str) -> Page:
    return Page(source)


def runnable(page: Page) -> list[dict[str, str | None]]:
    """Script elements that a browser would run."""
    return [script for script in page.all("script") if script.get("type") != "application/json"]


def policies(page: Page) -> list[str | None]:
    return [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]


def chart(source: str, name: str) -> Any:
    """The chart of a figure as the page's script reads it."""
    (block,) = re.findall(rf'<script type="application/json" id="{name}-data">(.*?)</script>', source, flags=re.S)
    return json.loads(block)


def test_the_page_shows_the_headline_table_and_says_that_nothing_was_tested(inputs: ReportInputs, page: Page) -> None:
    for line in table2_markdown(table2(inputs.comparison, stages=("overall",))).splitlines()[4:10]:
        _, label, *numbers = (part.strip() for part in line.strip("|").split("|"))
        assert " ".join([label, *numbers]) in page.text
    assert "Nothing has been tested yet, so any difference between runs may be chance." in page.text
    assert "Intervals and p-values" not in page.text
    assert "Overall, Spearman, common cells" in page.text


@pytest.mark.usefixtures("undrawn")
def test_where_differences_were_tested_the_page_begins_with_the_verdict(small: ReportInputs, tmp_path: Path) -> None:
    tested = inference(
        level("pipe", "csIC", 10, 0.01, p_holm=1.0),
        Inferred("mem0", "csIC", 10, 0.031, p_holm=0.01),
        Inferred("memrl", "csIC", 10, 0.004, p_holm=1.0),
    )
    built = build_report(tmp_path / "r", dataclasses.replace(small, inference=tested))
    text = Page(built.index.read_text("utf-8")).text
    verdict = text.index("Mem0 lies above Pipe in csIC (+0.031, 95 % interval 0.021 to 0.041, adjusted p 0.01)")
    assert verdict < text.index("Window 2025-01-02")
    assert "Intervals and p-values Differences from Pipe, Overall, Spearman" in text
    assert re.search(r"\+ Mem0 10d csIC \S+ \[\+0.0210, \+0.0410\] 0.001 0.010 0.005", text)
    chinese = Page((built.folder / "index.zh.html").read_text("utf-8")).text
    assert "Mem0 的 csIC 高于 Pipe" in chinese
    assert "[+0.0210, +0.0410]" in chinese


def test_the_page_has_every_section_and_the_papers_own_table(page: Page) -> None:
    anchors = {a["href"] for a in page.all("a") if (a["href"] or "").startswith("#")}
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert {f"#{i}" for i in ids} >= anchors
    assert {"#headline", "#truth", "#industries", "#retrieval", "#news", "#coverage", "#manifest"} <= anchors
    assert "As published for DeepSeek-V4-Flash" in page.text
    assert "0.1033 ↑" in page.text
    assert "The regime turns on 2025-03-06" in page.text
    for industry in INDUSTRIES:
        assert f"{industry.code} {industry.name_zh} {industry.name_en}" in page.text


def test_ids_are_unique_and_references_within_figures_resolve(source: str, page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'href="#([^"]+)"', source)) | set(re.findall(r"url\(#([^)]+)\)", source))
    assert len(used) > 20
    assert used <= set(ids)


def test_figures_follow_the_page_and_speak_to_those_who_do_not_see_them(source: str, page: Page) -> None:
    figures = page.all("svg")
    by_backbone = 3 + 2 + 1 + 1  # coefficients, learning, memories over time, their spread
    assert len(figures) == 2 * by_backbone + 1 + 3 + 2  # Q; news by day, session, importance; by month, as shown
    assert all(figure["role"] == "img" and figure["aria-label"] for figure in figures)
    drawn = "".join(re.findall(r"<svg.*?</svg>", source, flags=re.S))
    assert not re.search(r"#[0-9a-f]{6}\b", drawn.replace("#000000", ""))
    assert "var(--s1)" in drawn
    assert "<text" in drawn
    assert "font-family" not in drawn


def test_every_figure_has_its_numbers_and_every_chart_its_drawing(source: str, page: Page) -> None:
    figures = re.findall(r'<figure id="(\w+)".*?</figure>', source, flags=re.S)
    charts = [div["data-of"] for div in page.all("div") if "data-of" in div]
    assert figures == charts
    for name, block in zip(figures, re.findall(r"<figure id=.*?</figure>", source, flags=re.S), strict=True):
        assert "<svg" in block
        assert ("<table" in block) != (name in ("p0bars", "p1bars"))  # whose numbers stand in the table above them


def test_charts_hold_the_numbers_and_take_colours_from_the_page(inputs: ReportInputs, source: str) -> None:
    drawn = chart(source, "p0bars")
    rows = inputs.comparison
    rows = rows[(rows["backbone"] == "rules") & (rows["stage"] == "overall") & (rows["method"] == "spearman")]
    value = rows.set_index(["mechanism", "metric", "horizon"])["value"]
    (bars,) = [one for one in drawn["data"] if one["name"] == "Mem0" and one["yaxis"] == "y2"]
    assert bars["y"] == pytest.approx([value["mem0", "csIC", h] for h in (10, 20, 40)], rel=1e-4)
    assert drawn["x"] == ["10 sessions", "20 sessions", "40 sessions"]
    lines = chart(source, "p0rolling")
    assert lines["x"] == list(inputs.sessions)
    assert {len(one["y"]) for one in lines["data"]} == {len(inputs.sessions)}
    colours = re.findall(r'"color":"(.*?)"', json.dumps([drawn, lines], separators=(",", ":")))
    assert colours
    assert not [colour for colour in colours if not re.fullmatch(r"var\(--\w+\)", colour)]


def test_tables_have_scoped_heads_and_captions(source: str, page: Page) -> None:
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))
    assert source.count("<caption>") == len(page.all("table"))
    assert page.all("html") == [{"lang": "en"}]


def test_every_page_stands_there_in_both_languages_and_leads_to_itself_in_the_other(with_case: ReportFiles) -> None:
    pages = {"index": "", "cases/801170-2025-05-30": "../"}
    for page, up in pages.items():
        name = page.rpartition("/")[2]
        english = Page((with_case.folder / f"{page}.html").read_text("utf-8"))
        chinese = Page((with_case.folder / f"{page}.zh.html").read_text("utf-8"))
        assert chinese.all("html") == [{"lang": "zh-CN"}]
        assert {"href": f"{name}.zh.html", "lang": "zh-CN", "hreflang": "zh-CN"} in english.all("a")
        assert {"href": f"{name}.html", "lang": "en", "hreflang": "en"} in chinese.all("a")
        assert f"{up}index.zh.html" in {(a["href"] or "").partition("#")[0] for a in chinese.all("a")}
        ids = [[a["id"] for a in one.all("h2") + one.all("figure") if "id" in a] for one in (english, chinese)]
        assert ids[0] == ids[1] != []


def test_numbers_and_dates_read_alike_in_both_languages(built: ReportFiles, source: str) -> None:
    chinese = (built.folder / "index.zh.html").read_text("utf-8")
    cells = [re.findall(r"<td[^>]*>([-+–.,%\d ↑]+)</td>", one) for one in (source, chinese)]
    assert len(cells[0]) > 500
    assert cells[0] == cells[1]
    assert "2025-01-02 – 2025-04-30" in chinese


def test_the_page_needs_no_network_and_runs_nothing(source: str, page: Page) -> None:
    # Addresses of providers stand there as text, among the settings; nothing refers to them.
    without_settings = re.sub(r"<pre.*?</pre>", "", source, flags=re.S)
    assert not re.search(r"https?:|//[a-z]", without_settings.replace("<!doctype html>", ""))
    assert not re.search(r"(src|href)=.?https?:", source)
    assert runnable(page) == [{"src": "assets/report.js"}]
    assert not page.all("link")
    assert policies(page) == [POLICY]


def test_the_policy_allows_no_network_and_no_script_but_files_of_the_folder() -> None:
    directives = dict(part.split(" ", 1) for part in POLICY.split("; "))
    assert directives["default-src"] == "'none'"
    assert set(directives["script-src"].split()) == {"'self'", "file:"}
    assert set(directives) == {"default-src", "script-src", "style-src", "base-uri", "form-action"}


@pytest.mark.usefixtures("undrawn")
def test_no_text_can_end_a_block_of_data(tmp_path: Path) -> None:
    settings = world_settings("2025-02-28", experiments={"mechanisms": ["pipe", "mem0"], "backbones": ["rules"]})
    inputs = world(settings, truth=False)
    named = inputs.comparison.assign(mechanism=inputs.comparison["mechanism"].replace("mem0", "</script>\u2028&<!--"))
    built = build_report(tmp_path / "r", dataclasses.replace(inputs, comparison=named))
    page = Page(built.index.read_text("utf-8"))
    (block,) = [one for one in page.all("script") if one.get("id") == "p0bars-data"]
    assert block["type"] == "application/json"
    names = {trace["name"] for trace in chart(built.index.read_text("utf-8"), "p0bars")["data"]}
    assert names == {"Pipe", "&lt;/script&gt;\u2028&amp;&lt;!--"}


def test_hostile_text_is_shown_and_never_markup(source: str, page: Page) -> None:
    for text in HOSTILE:
        assert text in page.text
        if "<" in text:
            assert text not in source
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"img", "b", "iframe", "object"}
    assert len(runnable(page)) == 1
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    links = [a["href"] or "" for a in page.all("a")]
    assert not [to for to in links if not re.match(r"#|tables/|(index|sensitivity)\.(zh\.)?html$", to)]
    assert len(page.all("style")) == len(page.all("title")) == 1
    assert source.count("</style>") == 1


def test_no_csv_cell_starts_a_formula(built: ReportFiles) -> None:
    names = [name for name in built.names if name.endswith(".csv")]
    assert len(names) == 27
    for name in names:
        rows = csv.reader(io.StringIO((built.folder / name).read_text("utf-8"), newline=""))
        cells = [cell for row in rows for cell in row]
        assert cells
        runs = [c for c in cells if c[:1] in tuple("=+-@") and not re.fullmatch(r"-?[\d.]+(e-?\d+)?", c)]
        assert not runs


def test_table_two_is_there_in_four_formats(inputs: ReportInputs, built: ReportFiles) -> None:
    tables = {suffix: (built.folder / f"tables/table2.{suffix}").read_text("utf-8") for suffix in FORMATS}
    for stage in ("Overall", "Cold start", "Exploitation"):
        assert f"## {stage}, Spearman" in tables["md"]
        assert f"\\caption{{{stage}, Spearman}}" in tables["tex"]
    rows = json.loads(tables["json"])["rows"]
    runs = inputs.comparison[["backbone", "mechanism"]].drop_duplicates()
    assert len(rows) == len(runs) * 3 * 2
    assert len(tables["csv"].splitlines()) == 1 + len(rows) * 2 * (3 + 1)


FORMATS = ("md", "csv", "tex", "json")


def test_equal_inputs_give_equal_bytes(built: ReportFiles, tmp_path: Path) -> None:
    again = build_report(tmp_path / "again", world(world_settings()))
    assert again.names == built.names
    assert again.digest == built.digest
    for name in built.names:
        assert (again.folder / name).read_bytes() == (built.folder / name).read_bytes()


def test_figures_in_files_are_those_of_the_matrix(inputs: ReportInputs, built: ReportFiles) -> None:
    daily = pd.read_csv(built.folder / "tables" / "daily_csic.csv")
    matrix = inputs.ic_matrix
    mine = daily[(daily["experiment"] == "mem0-rules") & (daily["horizon"] == 20)]["ic"].mean()
    theirs = matrix[
        (matrix["experiment"] == "mem0-rules")
        & (matrix["horizon"] == 20)
        & (matrix["cells"] == ic.COMMON)
        & (matrix["stage"] == "overall")
        & (matrix["metric"] == "csIC")
        & (matrix["method"] == "spearman")
    ]["value"].item()
    assert mine == pytest.approx(theirs, abs=1e-12)


@pytest.mark.usefixtures("undrawn")
def test_the_headline_method_is_a_setting(tmp_path: Path) -> None:
    settings = world_settings("2025-02-28", evaluation={"headline": "pearson"})
    inputs = world(settings, truth=False)
    page = Page(build_report(tmp_path / "r", inputs).index.read_text("utf-8"))
    assert "Overall, Pearson, common cells" in page.text
    assert "Overall, Spearman" not in page.text
    assert "Planted truth" not in page.text
    first = table2_markdown(table2(inputs.comparison, methods=("pearson",))).splitlines()[5]
    assert " ".join(part.strip() for part in first.strip("|").split("|")[1:]) in page.text


def test_a_report_of_nothing_yet_can_be_built(tmp_path: Path) -> None:
    nothing = nothing_yet(world_settings("2025-01-10"))
    page = Page(build_report(tmp_path / "r", nothing).index.read_text("utf-8"))
    for sentence in (
        "No run has been replayed yet",
        "No run retrieved a memory",
        "No article has been tagged",
    ):
        assert sentence in page.text


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_pipe_and_a_horizon_without_labels_are_said_in_words(tmp_path: Path) -> None:
    settings = world_settings("2025-02-28", experiments={"mechanisms": ["mem0"], "backbones": ["rules"]})
    inputs = world(settings)
    labels = inputs.alpha.assign(alpha=inputs.alpha["alpha"].mask(inputs.alpha["horizon"] == 40))
    runs = dict.fromkeys(settings.all_experiments, inputs.predictions)
    matrix = ic_matrix(runs, labels, inputs.sessions, settings.evaluation)
    changed = dataclasses.replace(inputs, alpha=labels, ic_matrix=matrix, comparison=compare_with_pipe(matrix))
    page = Page(build_report(tmp_path / "r", changed).index.read_text("utf-8"))
    assert "no gain can be computed for it" in page.text
    assert "undefined on the common cells: Mem0 tsIC at 40 sessions" in page.text


@pytest.mark.slow
def test_a_build_that_dies_before_the_swap_leaves_the_old_report(
    inputs: ReportInputs, built: ReportFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: (built.folder / name).read_bytes() for name in built.names}

    def die(new: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "_replace", die)
    with pytest.raises(KeyboardInterrupt):
        build_report(built.folder, dataclasses.replace(inputs, truth=None))
    assert {name: (built.folder / name).read_bytes() for name in built.names} == before
    assert [path.name for path in built.folder.parent.iterdir()] == ["report"]


def test_the_planted_truth_is_read_from_the_synthetic_worlds_document() -> None:
    document = {"turns": ["2025-01-03"], "sessions": [{"session": "2025-01-02", "regime": "A", "tone": {}}]}
    truth = PlantedTruth.from_document(document)
    assert truth == PlantedTruth({"2025-01-02": "A"}, ("2025-01-03",))


# -- case studies


def realised(horizon: int, alpha: float, known_on: dt.date, is_over: bool = True) -> Realised:
    return Realised(horizon, known_on, 100 * alpha, alpha + 0.01, 0.01, alpha, is_over)


THEN = (
    realised(10, -0.0237, dt.date(2025, 6, 16)),
    realised(20, -0.0658, dt.date(2025, 6, 30)),
    realised(40, math.nan, dt.date(2025, 7, 28), is_over=False),
)
"""What happened after 2025-05-30: the paper's first two excess returns, and one that nobody knows yet."""


def article(number: int, title: str, content: str = "正文") -> NewsItem:
    at = dt.datetime(2025, 5, 30, 23 - number, 5, tzinfo=dt.timezone(dt.timedelta(hours=8)))
    names = ("801170",), ("交通运输",)
    return NewsItem(f"a{number}", "cls", title, content, at, *names, 9, "影响运价", ("policy",))


def retrieved(rank: int, **changes: Any) -> Retrieved:
    source = Source(
        "2025-05-15/801170",
        (
            Scored(0.8, "", realised(10, 0.0341, dt.date(2025, 5, 29))),
            Scored(-0.2, "", realised(20, 0.0111, dt.date(2025, 5, 30))),
            Scored(0.4, "", realised(40, 0.0222, dt.date(2025, 6, 3))),
        ),
    )
    one = Retrieved(
        rank=rank,
        memory_id="2025-05-15/801170",
        kind="trajectory",
        horizons=(),
        made_on=dt.date(2025, 5, 15),
        available_from=dt.date(2025, 5, 16),
        age=10,
        similarity=0.9353,
        q=0.0077,
        visits=31,
        selection_score=0.0078,
        matured_share=1 / 3,
        news_overlap=0.25,
        in_prompt="whole",
        text="关税缓和",
        sources=(source,),
    )
    return dataclasses.replace(one, **changes)


def case_run(mechanism: str, scores: tuple[float, float, float], *memories: Retrieved, **changes: Any) -> CaseRun:
    one = CaseRun(
        experiment=Experiment(mechanism=mechanism, backbone="rules"),
        scores=tuple(Scored(s, "" if s == s else "no number", r) for s, r in zip(scores, THEN, strict=True)),
        confidence=0.75,
        key_factor="抢运潮",
        logic_chain="运价上涨",
        articles=2,
        articles_cut=1,
        retrieved=memories,
        known=len(memories) and 97,
    )
    return dataclasses.replace(one, **changes)


REFLECTION = {
    "memory_id": "2025-05-30/801170/reflection",
    "kind": "reflection",
    "made_on": dt.date(2025, 5, 30),
    "age": 0,
    "similarity": None,
    "q": None,
    "visits": None,
    "selection_score": None,
}


def paper_case(**changes: Any) -> CaseStudy:
    """The paper's case, with three runs."""
    study = CaseStudy(
        place=SectorDay(universe.industry("801170"), dt.date(2025, 5, 30)),
        news=(article(0, "运价大涨"), article(1, "进口下降", "进口下降"), article(2, "没有位置")),
        market=MarketContext(2500.5, (TrailingReturn(10, 0.02, 0.05), TrailingReturn(20, math.nan, 0.01))),
        realised=THEN,
        runs=(
            case_run("pipe", (-0.2, -0.3, 0.1)),
            case_run("memrl", (0.6, 0.4, 0.2), retrieved(1), retrieved(2, memory_id="2025-05-14/801170")),
            case_run("reflexion", (0.5, math.nan, 0.0), retrieved(1, **REFLECTION)),
        ),
        absent=("mem0-rules",),
    )
    return dataclasses.replace(study, **changes)


def with_cases(inputs: ReportInputs, *studies: CaseStudy) -> ReportInputs:
    return dataclasses.replace(inputs, cases=studies, choice=Choice(tuple(s.place for s in studies), is_named=True))


@pytest.fixture(scope="module")
def small() -> ReportInputs:
    return world(world_settings("2025-01-10"), truth=False)


@pytest.fixture(scope="module")
def with_case(small: ReportInputs, tmp_path_factory: pytest.TempPathFactory) -> ReportFiles:
    return build_report(tmp_path_factory.mktemp("cases") / "report", with_cases(small, paper_case()))


@pytest.fixture(scope="module")
def case_source(with_case: ReportFiles) -> str:
    return (with_case.folder / "cases" / "801170-2025-05-30.html").read_text("utf-8")


@pytest.fixture(scope="module")
def case(case_source: str) -> Page:
    return Page(case_source)


def test_a_case_has_a_page_that_the_report_leads_to_and_that_leads_back(with_case: ReportFiles, case: Page) -> None:
    index = Page(with_case.index.read_text("utf-8"))
    assert "cases/801170-2025-05-30.html" in with_case.names
    assert {"href": "cases/801170-2025-05-30.html"} in index.all("a")
    assert {"href": "../index.html#cases"} in case.all("a")
    row = "801170.SI 交通运输 Transportation, 2025-05-30 -2.37% -6.58% not known yet 1 of 3 1 of 3 –"
    assert row in index.text
    assert "Named in the settings (evaluation.cases)." in index.text


def test_a_case_follows_the_papers_appendix(case_source: str) -> None:
    heads = re.findall(r"<h2[^>]*>(.*?)</h2>", case_source)
    assert heads == ["Overview", "News", "Experience retrieved", "Prediction and reasoning", "Outcome"]


def test_a_case_sets_every_run_beside_what_happened(case: Page) -> None:
    for row in (
        "Realised excess return -2.37% -6.58% not known yet",
        "Pipe -0.200 ok -0.300 ok +0.100 0 of 0",
        "MemRL +0.600 wrong +0.400 wrong +0.200 2 of 97",
        "Reflexion +0.500 wrong invalid +0.000 1 of 97",
        "10 sessions 2025-06-16 -2.37 -1.37% +1.00% -2.37%",
        "40 sessions 2025-07-28 – – +1.00% not known yet",
        "last 20 sessions – +1.00% –",
    ):
        assert row in case.text
    assert "invalid: no number" in case.text
    assert "Not replayed to this session: mem0-rules." in case.text
    assert "Close: 2,500.50 index points." in case.text


def test_verdicts_are_told_in_words_and_in_colour(case_source: str) -> None:
    (ok,) = re.findall(r'<td class="n (\w+)"[^>]*>-0.200 ok</td>', case_source)[:1]
    (wrong,) = re.findall(r'<td class="n (\w+)"[^>]*>\+0.600 wrong</td>', case_source)[:1]
    assert (ok, wrong) == ("pos", "neg")
    assert re.search(r'<td class="n">invalid', case_source)


def test_what_was_retrieved_is_shown_with_its_numbers_and_what_came_of_it(case: Page) -> None:
    for told in (
        "Nothing was retrieved by Pipe.",
        "2 shown, of 97 that the agent had",
        "1. trajectory, made 2025-05-15 (10 sessions ago) 2025-05-15/801170",
        "Similarity 0.9353 Q +0.0077 Visits 31 Selection score 0.0078 Outcomes known 33% News shared 25% 关税缓和",
        "Predicted on 2025-05-15: 10d +0.800 → +3.41% ok; 20d -0.200 → +1.11% wrong; 40d +0.400 → +2.22% ok (later)",
    ):
        assert told in case.text


@pytest.mark.usefixtures("undrawn")
def test_experience_that_no_model_saw_is_told_from_what_was_shown(small: ReportInputs, tmp_path: Path) -> None:
    memories = (
        retrieved(1),
        retrieved(2, memory_id="2025-05-14/801170", in_prompt="shortened"),
        retrieved(3, memory_id="2025-05-13/801170", in_prompt="left out"),
    )
    study = paper_case(runs=(case_run("mem0", (0.1, 0.1, 0.1), *memories),))
    built = build_report(tmp_path / "report", with_cases(small, study))
    source = (built.folder / "cases" / "801170-2025-05-30.html").read_text("utf-8")
    text = Page(source).text
    assert "2 shown, 1 of them shortened; 1 more retrieved, but cut for length, of 97 that the agent had" in text
    assert "2. trajectory, made 2025-05-15 (10 sessions ago), shortened in the prompt" in text
    assert "3. trajectory, made 2025-05-15 (10 sessions ago), cut: not in the prompt" in text
    assert "3 of 97, 1 cut" in text
    assert text.count("Cut: retrieved, but the prompt had no room for it (prompts.experience_tokens)") == 2
    assert source.count('<li class="cut">') == 2  # the article that no run saw, and this piece of experience


def test_where_nothing_was_cut_nothing_is_said_of_cuts(case: Page) -> None:
    assert "Cut:" not in case.text
    assert "2 of 97" in case.text


def test_a_reflection_of_today_has_no_similarity_and_no_utility(case: Page) -> None:
    told = "1. reflection, made 2025-05-30 (today) 2025-05-30/801170/reflection Outcomes known 33% News shared 25%"
    assert told in case.text


@pytest.mark.usefixtures("undrawn")
def test_of_many_sources_the_newest_are_named_and_the_others_counted(small: ReportInputs, tmp_path: Path) -> None:
    days = [f"2025-05-{day:02}" for day in (6, 7, 8, 9, 12)]
    sources = tuple(Source(f"{day}/801170", (Scored(0.1, "", THEN[0]),)) for day in days)
    one = retrieved(1, kind="reasoning_item", horizons=(10,), sources=sources, text=None)
    study = paper_case(runs=(case_run("expel", (0.1, 0.1, 0.1), one),))
    built = build_report(tmp_path / "r", with_cases(small, study))
    page = Page((built.folder / "cases" / "801170-2025-05-30.html").read_text("utf-8"))
    assert "1. reasoning item for 10d, made 2025-05-15" in page.text
    assert [f"Predicted on {day}" in page.text for day in days] == [False, False, True, True, True]
    assert "and 2 earlier predictions" in page.text
    assert "(The mechanism does not list what it keeps.)" in page.text


def test_articles_that_no_run_saw_are_marked(case: Page, case_source: str) -> None:
    assert "3 articles in the window, the first 2 of them shown; the same for all." in case.text
    assert case_source.count('<li class="cut">') == 1
    assert "2025-05-30 23:05 importance 9 cls 运价大涨 正文 影响运价" in case.text
    # A body that only repeats the title is not unfolded.
    assert case_source.count("<details>") == 2
    assert case.text.count("进口下降") == 1


@pytest.mark.usefixtures("undrawn")
def test_runs_that_were_shown_less_news_are_named(small: ReportInputs, tmp_path: Path) -> None:
    runs = (case_run("pipe", (0.1, 0.1, 0.1)), case_run("mem0", (0.1, 0.1, 0.1), articles=1, articles_cut=2))
    built = build_report(tmp_path / "r", with_cases(small, paper_case(runs=runs, absent=())))
    text = Page((built.folder / "cases" / "801170-2025-05-30.html").read_text("utf-8")).text
    assert (
        "3 articles in the window, the first 2 of them shown; less news fits into the prompts of mem0-rules 1." in text
    )


@pytest.mark.usefixtures("undrawn")
def test_a_case_without_news_says_so(small: ReportInputs, tmp_path: Path) -> None:
    runs = (case_run("pipe", (0.1, 0.1, 0.1), articles=0, articles_cut=0, key_factor="", logic_chain=""),)
    built = build_report(tmp_path / "r", with_cases(small, paper_case(news=(), runs=runs)))
    text = Page((built.folder / "cases" / "801170-2025-05-30.html").read_text("utf-8")).text
    assert "There was no news of this industry in the window." in text
    assert "(No reasoning was given.)" in text


@pytest.mark.usefixtures("undrawn")
def test_backbones_are_named_where_there_are_several(small: ReportInputs, tmp_path: Path) -> None:
    other = dataclasses.replace(
        case_run("pipe", (0.1, 0.1, 0.1)), experiment=Experiment(mechanism="pipe", backbone="b")
    )
    study = paper_case(runs=(case_run("pipe", (0.1, 0.1, 0.1)), other))
    built = build_report(tmp_path / "r", with_cases(small, study))
    text = Page((built.folder / "cases" / "801170-2025-05-30.html").read_text("utf-8")).text
    assert "Nothing was retrieved by Pipe on rules, Pipe on b." in text


@pytest.mark.usefixtures("undrawn")
def test_the_case_page_has_the_reports_policy_and_no_markup_of_others(small: ReportInputs, tmp_path: Path) -> None:
    text = " ".join(HOSTILE)
    study = paper_case(
        news=tuple(
            dataclasses.replace(article(n, hostile, hostile * 2), source=hostile) for n, hostile in enumerate(HOSTILE)
        ),
        runs=(
            case_run(
                "memrl",
                (0.1, math.nan, 0.1),
                retrieved(1, text=text, memory_id=HOSTILE[1], kind=HOSTILE[0]),
                key_factor=text,
                logic_chain=text,
                articles=6,
            ),
        ),
        absent=HOSTILE,
    )
    source = (
        build_report(tmp_path / "r", with_cases(small, study)).folder / "cases" / "801170-2025-05-30.html"
    ).read_text("utf-8")
    page = Page(source)
    for hostile in HOSTILE:
        assert hostile in page.text
        if "<" in hostile:
            assert hostile not in source
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"img", "b", "svg", "iframe", "object", "link"}
    assert runnable(page) == [{"src": "../assets/report.js"}]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    own = r"#|\.\./index\.html|801170-2025-05-30\.zh\.html$"
    assert not [a["href"] for a in page.all("a") if not re.match(own, a["href"] or "")]
    assert source.count("</style>") == len(page.all("title")) == 1
    assert policies(page) == [POLICY]


def test_the_case_page_can_be_reached_and_read_without_a_mouse(case: Page, case_source: str) -> None:
    ids = [attributes["id"] for _, attributes in case.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    inner = {(a["href"] or "")[1:] for a in case.all("a") if (a["href"] or "").startswith("#")}
    named = {attributes["aria-labelledby"] for _, attributes in case.elements if "aria-labelledby" in attributes}
    assert {*inner, *named} <= set(ids)
    regions = [attributes for _, attributes in case.elements if attributes.get("role") == "region"]
    assert len(regions) > 6
    assert all(region.get("tabindex") == "0" and region.get("aria-label") for region in regions)
    assert case_source.count("<caption>") == len(case.all("table"))


@pytest.mark.slow
def test_equal_cases_give_equal_bytes(small: ReportInputs, with_case: ReportFiles, tmp_path: Path) -> None:
    again = build_report(tmp_path / "again", with_cases(small, paper_case()))
    assert again.digest == with_case.digest
    other = build_report(tmp_path / "other", with_cases(small, paper_case(absent=())))
    assert other.digest != with_case.digest


@pytest.mark.usefixtures("undrawn")
def test_a_report_without_a_case_says_why(small: ReportInputs, tmp_path: Path) -> None:
    built = build_report(tmp_path / "r", dataclasses.replace(small, choice=Choice((), ("801170 2025-05-30",))))
    assert not [name for name in built.names if name.startswith("cases/")]
    page = Page(built.index.read_text("utf-8"))
    assert "side by side. No run has replayed 801170 2025-05-30, which evaluation.cases names." in page.text


# -- retrieval diagnostics


def test_retrieval_is_summed_up_by_kind_too() -> None:
    rows = pd.DataFrame(
        {
            "experiment": "mixed-rules",
            "session": "2025-01-06",
            "code": ["801010", "801010", "801030", "801030"],
            "kind": ["reflection", "insight", "insight", "insight"],
            "age": [0, 0, 1, 5],
            "matured_share": [1.0, 1.0, 0.5, 0.0],
            "news_overlap": 0.0,
            "similarity": np.nan,
            "in_prompt": "whole",
            "q": math.nan,
            "visits": 0,
        }
    )
    insight, reflection = diagnostics.retrieval_summary(rows).to_dict("records")
    assert (insight["kind"], insight["memories"], insight["per_prediction"]) == ("insight", 3, 1.5)
    assert (reflection["kind"], reflection["memories"], reflection["age_median"]) == ("reflection", 1, 0)
    assert insight["from_this_session"] == insight["from_previous_session"] == pytest.approx(1 / 3)
    assert math.isnan(reflection["similarity"])


@pytest.mark.usefixtures("undrawn")
def test_the_retrieval_table_tells_kinds_and_leaves_out_similarities_that_there_are_not(
    small: ReportInputs, tmp_path: Path
) -> None:
    session = small.sessions[-1]
    rows = pd.DataFrame(
        {
            "session": session,
            "experiment": ["memrl-rules", "mem0-rules", "mem0-rules"],
            "code": "801010",
            "kind": ["reasoning_item", "trajectory", "trajectory"],
            "age": [0, 1, 3],
            "matured_share": [1.0, 0.0, 0.0],
            "news_overlap": [0.0, 0.5, 0.25],
            "similarity": [np.nan, 0.75, 0.25],
            "q": np.nan,
            "visits": 0,
            "in_prompt": ["whole", "shortened", "left out"],
        }
    )
    text = Page(build_report(tmp_path / "r", dataclasses.replace(small, retrievals=rows)).index.read_text("utf-8")).text
    mem0 = "mem0-rules trajectory 2 2.00 2 3 0.0% 50.0% 0.0% 37.5% 0.500 50.0%"
    memrl = "memrl-rules reasoning item 1 1.00 0 0 100.0% 0.0% 100.0% 0.0% – 100.0%"
    assert f"{mem0} {memrl}" in text


def test_retrieval_is_summed_up_by_run() -> None:
    rows = pd.DataFrame(
        {
            "experiment": "mem0-rules",
            "session": ["2025-01-03", "2025-01-03", "2025-01-06"],
            "code": ["801010", "801010", "801030"],
            "kind": "trajectory",
            "age": [1, 3, 8],
            "matured_share": [0.0, 0.0, 1.0],
            "news_overlap": [0.8, 0.4, 0.0],
            "similarity": [0.9, 0.5, np.nan],
            "in_prompt": ["whole", "whole", "left out"],
        }
    )
    (row,) = diagnostics.retrieval_summary(rows).to_dict("records")
    assert row["memories"] == 3
    assert row["per_prediction"] == 1.5
    assert row["age_median"] == 3
    assert row["from_previous_session"] == pytest.approx(1 / 3)
    assert row["similarity"] == pytest.approx(0.7)
    assert row["in_prompt"] == pytest.approx(2 / 3)
    by_session = diagnostics.retrieval_by_session(rows)
    assert by_session["age"].tolist() == [2.0, 8.0]
    assert by_session["memories"].tolist() == [2, 1]
