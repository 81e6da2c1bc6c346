"""Builds the report's folder: its pages in English and Chinese, their scripts, and its tables as CSV and Markdown.

What must not live here: what stands on a page (see `sections`), where pages stand (see `pages`).
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from jinja2 import Environment
from markupsafe import Markup

from finevolve_pipeline.digests import digest_bytes, digest_json
from finevolve_pipeline.evaluation import diagnostics
from finevolve_pipeline.evaluation.folders import whole_folder
from finevolve_pipeline.evaluation.layout import table2, table2_csv, table2_json, table2_latex, table2_markdown
from finevolve_pipeline.evaluation.report import dataset, news_coverage, sections
from finevolve_pipeline.evaluation.report.case_pages import case_page, case_table, page_name
from finevolve_pipeline.evaluation.report.charts import tool_texts
from finevolve_pipeline.evaluation.report.cost import cost_block
from finevolve_pipeline.evaluation.report.findings import Findings
from finevolve_pipeline.evaluation.report.forest import forest_block
from finevolve_pipeline.evaluation.report.industry_gains import industry_block
from finevolve_pipeline.evaluation.report.inputs import ReportInputs
from finevolve_pipeline.evaluation.report.learning_curve import learning_block
from finevolve_pipeline.evaluation.report.memory_utility import utility_block
from finevolve_pipeline.evaluation.report.pages import INDEX, SENSITIVITY, Place
from finevolve_pipeline.evaluation.report.retrieval_spread import retrieval_block
from finevolve_pipeline.evaluation.report.sections import Evaluation
from finevolve_pipeline.evaluation.report.seeds_view import seed_tables
from finevolve_pipeline.evaluation.report.sensitivity_page import sensitivity_view
from finevolve_pipeline.evaluation.report.templates import environment
from finevolve_pipeline.evaluation.report.verdict_text import verdict_sentences
from finevolve_pipeline.evaluation.report.words import LANGUAGES, Words
from finevolve_pipeline.spreadsheet import frame_csv

__all__ = ["ReportFiles", "ReportInputs", "build_report"]

_HERE = Path(__file__).parent

POLICY = "; ".join(
    (
        "default-src 'none'",
        # `'self'` is this folder's site; some browsers know no site of pages opened from a disk, hence `file:`.
        "script-src 'self' file:",
        # The page's own style stands in it, and charts set the style of what they draw.
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
"""What a page may do: run the folder's own two scripts, none that stands in it or is made of text; ask no network."""


@dataclass(frozen=True)
class ReportFiles:
    """What was written: the folder, its first page, all file names in order, and the digest of all contents."""

    folder: Path
    index: Path
    names: tuple[str, ...]
    digest: str


def build_report(target: Path, inputs: ReportInputs) -> ReportFiles:
    """Write the report as one folder; an older one there is replaced as a whole.

    Equal inputs give equal bytes: no clock, no random ids. A page carries its style and drawings; scripts stand beside
    it and only add to what can be read without them. It asks no network.

    Args:
        target: the folder to write.
        inputs: what to show.

    Raises:
        FinEvolveError: `target` is a file.
        TableError: predictions or labels name an unknown industry or hold a cell twice.
    """
    evaluation = Evaluation(inputs)
    findings = Findings(evaluation)
    tables = {**_tables(evaluation), **findings.files()}
    pages: dict[str, str] = {}
    for language in LANGUAGES:
        pages |= _pages(findings, sorted(tables), Words(language))
    files = {**pages, **_scripts(), **tables}
    with whole_folder(target) as folder:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8", newline="")
    digest = digest_json({name: digest_bytes(text.encode()) for name, text in files.items()})
    return ReportFiles(target, target / INDEX, tuple(sorted(files)), digest)


def _scripts() -> Mapping[str, str]:
    plotly = importlib.resources.files("plotly") / "package_data" / "plotly.min.js"
    return {
        "assets/plotly.min.js": plotly.read_text("utf-8"),
        "assets/report.js": (_HERE / "report.js").read_text("utf-8"),
    }


def _pages(findings: Findings, tables: Sequence[str], words: Words) -> Mapping[str, str]:
    """Every page in one language, by file name."""
    inputs = findings.inputs
    names = {INDEX: words("Report")}
    if not inputs.sensitivity.empty:
        names[SENSITIVITY] = words("Sensitivity")
    environment = _environment(words, names)
    pages = {INDEX: _index(environment, findings, tables, words)}
    if not inputs.sensitivity.empty:
        view = sensitivity_view(inputs.sensitivity, inputs.settings, words)
        template = environment.get_template("sensitivity.html.j2")
        pages[SENSITIVITY] = template.render(place=Place(SENSITIVITY, words), view=view)
    for study in inputs.cases:
        page = page_name(study)
        shown = case_page(study, inputs.choice.reason(words), words)
        pages[page] = environment.get_template("case.html.j2").render(place=Place(page, words), case=shown)
    return {Place(page, words).file: text for page, text in pages.items()}


def _tables(evaluation: Evaluation) -> Mapping[str, str]:
    inputs = evaluation.inputs
    tested, confidence = (inputs.comparison, inputs.inference), inputs.settings.evaluation.confidence
    headline, whole = table2(*tested, confidence, methods=(evaluation.method,)), table2(*tested, confidence)
    return {
        "tables/table2.md": table2_markdown(headline),
        "tables/table2.tex": table2_latex(headline),
        "tables/table2.csv": table2_csv(whole),
        "tables/table2.json": table2_json(whole),
        "tables/ic_matrix.csv": frame_csv(inputs.ic_matrix),
        "tables/comparison.csv": frame_csv(inputs.comparison),
        "tables/inference.csv": frame_csv(inputs.inference),
        "tables/sensitivity.csv": frame_csv(inputs.sensitivity),
        "tables/daily_csic.csv": frame_csv(evaluation.daily),
        "tables/industry_tsic.csv": frame_csv(evaluation.industries),
        "tables/retrieval_by_session.csv": frame_csv(diagnostics.retrieval_by_session(inputs.retrievals)),
        "tables/news_counts.csv": frame_csv(inputs.news_counts),
        news_coverage.FILE: frame_csv(news_coverage.day_rows(inputs.coverage)),
        "tables/manifest.json": json.dumps(
            {"settings": inputs.settings.model_dump(mode="json"), "manifests": dict(inputs.manifests)},
            ensure_ascii=False,
            indent=2,
            default=dict,
        )
        + "\n",
    }


def _environment(words: Words, pages: Mapping[str, str] = MappingProxyType({})) -> Environment:
    """Templates in one language; `pages` are those that every page leads to, with their names."""
    made = environment(words)
    # Of ours, data blocks are trusted as markup too.
    made.globals |= {
        "policy": POLICY,
        "data": _data_block,
        "chart_texts": tool_texts(words),
        "pages": pages,
    }
    return made


def _data_block(name: str, value: object) -> Markup:
    """Values for the page's script. No browser runs the block, and no text in it can end it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup('<script type="application/json" id="{}">{}</script>').format(name, Markup(text))


def _index(environment: Environment, findings: Findings, tables: Sequence[str], words: Words) -> str:
    evaluation, inputs = findings.evaluation, findings.inputs
    backbones = list(enumerate(sections.backbones(inputs.comparison)))
    return environment.get_template("index.html.j2").render(
        place=Place(INDEX, words),
        facts=sections.facts(evaluation, words),
        summary=verdict_sentences(inputs.inference, inputs.settings.evaluation, words),
        panels=[sections.panel(evaluation, number, backbone, words) for number, backbone in backbones],
        seeds=seed_tables(inputs, inputs.inference, words),
        forests=[forest_block(findings, number, backbone, words) for number, backbone in backbones],
        learning=[learning_block(findings, number, backbone, words) for number, backbone in backbones],
        industry_gains=[industry_block(findings, backbone, words) for _, backbone in backbones],
        retrieval_spread=[retrieval_block(findings, number, backbone, words) for number, backbone in backbones],
        utility=utility_block(findings, words),
        cost=cost_block(findings, words),
        dataset=dataset.facts_table(findings, words),
        news_block=dataset.news_block(findings, words),
        shown=dataset.shown_block(findings, words),
        published=sections.published_tables(words),
        truth=sections.truth_table(evaluation, words),
        turns=inputs.truth.turns if inputs.truth else (),
        retrieval=sections.retrieval_table(inputs, words),
        retrieval_figures=sections.retrieval_figures(evaluation, words),
        cases=case_table(inputs.cases, words),
        case_reason=inputs.choice.reason(words),
        news_figures=sections.news_figures(inputs, words),
        sources=sections.source_table(inputs, words),
        sample=sections.news_sample(inputs, words),
        news_coverage=news_coverage.news_coverage(inputs.coverage, inputs.settings.news.sources, words),
        predictions=sections.prediction_table(evaluation, words),
        invalid=sections.invalid_table(evaluation, words),
        coverage=sections.coverage_table(evaluation, words),
        matrix=sections.full_matrix(evaluation, words),
        manifest=sections.manifest(inputs),
        settings=sections.effective_settings(inputs),
        tables=tables,
    )
