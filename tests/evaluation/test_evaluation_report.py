"""The report: what it says, that its bytes repeat, and that no text can break out of it."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from finevolve_pipeline.evaluation import diagnostics, folders, ic
from finevolve_pipeline.evaluation.comparison import (
    compare_with_pipe,
    ic_matrix,
    table2_markdown,
    table2_rows,
)
from finevolve_pipeline.evaluation.report import PlantedTruth, ReportFiles, ReportInputs, build_report
from finevolve_pipeline.settings import Settings, load_settings
from finevolve_pipeline.tables import (
    TIME,
    BenchmarkNews,
    Comparison,
    InformationCoefficients,
    Outcomes,
    Predictions,
    Retrievals,
    TaggedArticles,
    empty,
)
from finevolve_pipeline.universe import CODES, INDUSTRIES

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "</style><b>x</b>",
    "</title></svg><svg onload=alert(1)>",
    "{{ 7*7 }} $x^$ \\frac",
)


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
            "age": int(rng.integers(1, position + 1)),
            "matured_share": float(rng.integers(0, 4)) / 3,
            "news_overlap": float(rng.random()),
            "similarity": float(rng.uniform(0.1, 1)),
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
            "importance": level,
            "articles": int(n),
            "selected": int(n) if level > 7 else 0,
        }
        for day in days
        for source in sources
        for level, n in zip(range(1, 11), rng.integers(0, 20, 10), strict=True)
    ]
    return pd.DataFrame(rows)


def _news_sample() -> pd.DataFrame:
    titles = ["航运指数上涨，港口吞吐量创新高", *HOSTILE]
    frame = pd.DataFrame({"title": titles, "source": "cls", "importance": 9, "topics": [["policy"]] * len(titles)})
    frame["industries"] = [["801170"], *([["801780", "801790"]] * len(HOSTILE))]
    stamps = pd.date_range("2025-01-02 09:30", periods=len(titles), freq="37min", tz="Asia/Shanghai")
    return frame.assign(published_at=stamps.astype(TIME), content="正文", importance_reason="政策")


class Page(HTMLParser):
    """What a browser would see: elements with attributes, and their text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


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


def test_the_page_shows_the_headline_table_and_claims_nothing_about_chance(inputs: ReportInputs, page: Page) -> None:
    for line in table2_markdown(table2_rows(inputs.comparison)).splitlines()[2:8]:
        _, label, *numbers = (part.strip() for part in line.strip("|").split("|"))
        assert " ".join([label, *numbers]) in page.text
    assert "Backbone rules, against Pipe without experience" in page.text
    assert "nothing here has been tested for significance" in page.text
    assert "Overall, Spearman, common cells" in page.text


def test_the_summary_gives_direction_and_size_of_each_mean_gain(inputs: ReportInputs, page: Page) -> None:
    rows = inputs.comparison
    rows = rows[(rows["horizon"] == 0) & (rows["stage"] == "overall") & (rows["method"] == "spearman")]
    gain = rows[(rows["mechanism"] == "mem0") & (rows["backbone"] == "rules")].set_index("metric")["gain"]
    ts, cs = (f"{abs(g):.4f} {'above' if g > 0 else 'below'}" for g in (gain["tsIC"], gain["csIC"]))
    assert f"Mem0 lies {ts} in tsIC and {cs} in csIC" in page.text


def test_the_page_has_every_section_and_the_papers_own_table(page: Page) -> None:
    anchors = {a["href"] for a in page.all("a") if (a["href"] or "").startswith("#")}
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert {f"#{i}" for i in ids} >= anchors
    assert {"#headline", "#truth", "#industries", "#retrieval", "#news", "#coverage", "#manifest"} <= anchors
    assert "As published for DeepSeek-V4-Flash" in page.text
    assert "0.1033 ↑" in page.text
    assert "The regime turns on 2025-03-06" in page.text
    for industry in INDUSTRIES:
        assert f"{industry.code} {industry.name_zh}" in page.text


def test_ids_are_unique_and_references_within_figures_resolve(source: str, page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'href="#([^"]+)"', source)) | set(re.findall(r"url\(#([^)]+)\)", source))
    assert len(used) > 20
    assert used <= set(ids)


def test_figures_follow_the_page_and_speak_to_those_who_do_not_see_them(source: str, page: Page) -> None:
    figures = page.all("svg")
    assert len(figures) == 2 * 3 + 2 + 3
    assert all(figure["role"] == "img" and figure["aria-label"] for figure in figures)
    drawn = "".join(re.findall(r"<svg.*?</svg>", source, flags=re.S))
    assert not re.search(r"#[0-9a-f]{6}\b", drawn.replace("#000000", ""))
    assert "var(--s1)" in drawn
    assert "<text" in drawn
    assert "font-family" not in drawn


def test_tables_have_scoped_heads_and_captions(source: str, page: Page) -> None:
    assert all(head.get("scope") in ("col", "row") for head in page.all("th"))
    assert source.count("<caption>") == len(page.all("table"))
    assert page.all("html") == [{"lang": "en"}]


def test_the_page_needs_no_network_and_runs_nothing(source: str, page: Page) -> None:
    # Addresses of providers stand there as text, among the settings; nothing refers to them.
    without_settings = re.sub(r"<pre.*?</pre>", "", source, flags=re.S)
    assert not re.search(r"https?:|//[a-z]", without_settings.replace("<!doctype html>", ""))
    assert not re.search(r"(src|href)=.?https?:", source)
    assert not page.all("script")
    assert not page.all("link")
    policy = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_hostile_text_is_shown_and_never_markup(source: str, page: Page) -> None:
    for text in HOSTILE:
        assert text in page.text
        if "<" in text:
            assert text not in source
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "b", "iframe", "object"}
    assert not [a for _, attributes in page.elements for a in attributes if a.startswith("on")]
    assert not [a["href"] for a in page.all("a") if not re.match(r"#|tables/", a["href"] or "")]
    assert len(page.all("style")) == len(page.all("title")) == 1
    assert source.count("</style>") == 1


def test_no_csv_cell_starts_a_formula(built: ReportFiles) -> None:
    names = [name for name in built.names if name.endswith(".csv")]
    assert len(names) == 7
    for name in names:
        rows = csv.reader(io.StringIO((built.folder / name).read_text("utf-8"), newline=""))
        cells = [cell for row in rows for cell in row]
        assert cells
        runs = [c for c in cells if c[:1] in tuple("=+-@") and not re.fullmatch(r"-?[\d.]+(e-?\d+)?", c)]
        assert not runs


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


def test_the_headline_method_is_a_setting(tmp_path: Path) -> None:
    settings = world_settings("2025-02-28", evaluation={"headline": "pearson"})
    inputs = world(settings, truth=False)
    page = Page(build_report(tmp_path / "r", inputs).index.read_text("utf-8"))
    assert "Overall, Pearson, common cells" in page.text
    assert "Overall, Spearman" not in page.text
    assert "Planted truth" not in page.text
    first = table2_markdown(table2_rows(inputs.comparison, method="pearson")).splitlines()[3]
    assert " ".join(part.strip() for part in first.strip("|").split("|")[1:]) in page.text


def test_a_report_of_nothing_yet_can_be_built(tmp_path: Path) -> None:
    nothing = ReportInputs(
        settings=world_settings("2025-01-10"),
        ic_matrix=empty(InformationCoefficients),
        comparison=empty(Comparison),
        predictions=empty(Predictions),
        retrievals=empty(Retrievals),
        alpha=empty(Outcomes),
        news_counts=pd.DataFrame(columns=list(diagnostics.NEWS_COLUMNS)),
        news_sessions=pd.DataFrame(columns=["session", "articles"]),
        news_sample=empty(BenchmarkNews),
        manifests={},
    )
    page = Page(build_report(tmp_path / "r", nothing).index.read_text("utf-8"))
    for sentence in (
        "No run has been replayed yet",
        "No run retrieved a memory",
        "No article has been tagged",
    ):
        assert sentence in page.text


def test_a_run_without_pipe_and_a_horizon_without_labels_are_said_in_words(tmp_path: Path) -> None:
    settings = world_settings("2025-02-28", experiments={"mechanisms": ["mem0"], "backbones": ["rules"]})
    inputs = world(settings)
    labels = inputs.alpha.assign(alpha=inputs.alpha["alpha"].mask(inputs.alpha["horizon"] == 40))
    runs = dict.fromkeys(settings.all_experiments, inputs.predictions)
    matrix = ic_matrix(runs, labels, inputs.sessions, settings.evaluation)
    changed = dataclasses.replace(inputs, alpha=labels, ic_matrix=matrix, comparison=compare_with_pipe(matrix))
    page = Page(build_report(tmp_path / "r", changed).index.read_text("utf-8"))
    assert "there is no Pipe run, so nothing can be compared with it" in page.text
    assert "no gain can be computed for it" in page.text
    assert "undefined on the common cells: Mem0 tsIC at 40 sessions" in page.text


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


def tagged(*rows: tuple[str, str, int]) -> pd.DataFrame:
    frame = empty(TaggedArticles).reindex(range(len(rows)))
    return frame.assign(**dict(zip(("article_id", "source", "importance"), zip(*rows, strict=True), strict=True)))


def test_news_are_counted_by_source_and_importance() -> None:
    day = tagged(("a", "cls", 8), ("b", "cls", 8), ("c", "cls", 3), ("d", "sina", 9))
    counts = diagnostics.count_news("2025-05-30", day, day.iloc[[0, 3]])
    assert counts.values.tolist() == [
        ["2025-05-30", "cls", 3, 1, 0],
        ["2025-05-30", "cls", 8, 2, 1],
        ["2025-05-30", "sina", 9, 1, 1],
    ]


def test_retrieval_is_summed_up_by_run() -> None:
    rows = pd.DataFrame(
        {
            "experiment": "mem0-rules",
            "session": ["2025-01-03", "2025-01-03", "2025-01-06"],
            "code": ["801010", "801010", "801030"],
            "age": [1, 3, 8],
            "matured_share": [0.0, 0.0, 1.0],
            "news_overlap": [0.8, 0.4, 0.0],
            "similarity": [0.9, 0.5, np.nan],
        }
    )
    (row,) = diagnostics.retrieval_summary(rows).to_dict("records")
    assert row["memories"] == 3
    assert row["per_prediction"] == 1.5
    assert row["age_median"] == 3
    assert row["from_previous_session"] == pytest.approx(1 / 3)
    assert row["similarity"] == pytest.approx(0.7)
    by_session = diagnostics.retrieval_by_session(rows)
    assert by_session["age"].tolist() == [2.0, 8.0]
    assert by_session["memories"].tolist() == [2, 1]
