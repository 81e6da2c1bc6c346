"""Builds the report's folder: `index.html`, which needs nothing else, the pages of case studies, and its tables as CSV
and Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from finevolve_pipeline.digests import digest_bytes, digest_json
from finevolve_pipeline.evaluation import diagnostics
from finevolve_pipeline.evaluation.folders import whole_folder
from finevolve_pipeline.evaluation.layout import table2, table2_csv, table2_json, table2_latex, table2_markdown
from finevolve_pipeline.evaluation.report import news_coverage, sections
from finevolve_pipeline.evaluation.report.case_pages import CasePage, case_page, case_table, page_name
from finevolve_pipeline.evaluation.report.inputs import ReportInputs
from finevolve_pipeline.evaluation.report.sections import Evaluation
from finevolve_pipeline.spreadsheet import frame_csv

__all__ = ["ReportFiles", "ReportInputs", "build_report"]

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class ReportFiles:
    """What was written: the folder, its first page, all file names in order, and the digest of all contents."""

    folder: Path
    index: Path
    names: tuple[str, ...]
    digest: str


def build_report(target: Path, inputs: ReportInputs) -> ReportFiles:
    """Write the report as one folder; an older one there is replaced as a whole.

    Equal inputs give equal bytes: no clock, no random ids. A page carries its style and figures, runs no
    script and asks no network; its content policy forbids both.

    Args:
        target: the folder to write.
        inputs: what to show.

    Raises:
        FinEvolveError: `target` is a file.
        TableError: predictions or labels name an unknown industry or hold a cell twice.
    """
    evaluation = Evaluation(inputs)
    tables = _tables(evaluation)
    environment = _environment()
    cases = {page_name(study): _case_page(environment, case_page(study, inputs.case_reason)) for study in inputs.cases}
    files = {"index.html": _index(environment, evaluation, sorted(tables)), **cases, **tables}
    with whole_folder(target) as folder:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8", newline="")
    digest = digest_json({name: digest_bytes(text.encode()) for name, text in files.items()})
    return ReportFiles(target, target / "index.html", tuple(sorted(files)), digest)


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


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Only our own style sheet and drawings are trusted as markup; every other text is escaped.
    environment.filters["drawing"] = Markup
    environment.globals["css"] = Markup((_HERE / "report.css").read_text("utf-8"))
    return environment


def _case_page(environment: Environment, page: CasePage) -> str:
    return environment.get_template("case.html.j2").render(case=page)


def _index(environment: Environment, evaluation: Evaluation, tables: Sequence[str]) -> str:
    inputs = evaluation.inputs
    return environment.get_template("index.html.j2").render(
        method=evaluation.method,
        facts=sections.facts(evaluation),
        summary=sections.summary(evaluation),
        panels=[
            sections.panel(evaluation, number, backbone)
            for number, backbone in enumerate(sections.backbones(inputs.comparison))
        ],
        published=sections.published_tables(),
        truth=sections.truth_table(evaluation),
        turns=inputs.truth.turns if inputs.truth else (),
        retrieval=sections.retrieval_table(inputs),
        retrieval_figures=sections.retrieval_figures(evaluation),
        cases=case_table(inputs.cases),
        case_reason=inputs.case_reason,
        news_figures=sections.news_figures(inputs),
        sources=sections.source_table(inputs),
        importance=sections.importance_table(inputs),
        sample=sections.news_sample(inputs),
        news_coverage=news_coverage.news_coverage(inputs.coverage, inputs.settings.news.sources),
        predictions=sections.prediction_table(evaluation),
        invalid=sections.invalid_table(evaluation),
        coverage=sections.coverage_table(evaluation),
        matrix=sections.full_matrix(evaluation),
        manifest=sections.manifest(inputs),
        settings=sections.effective_settings(inputs),
        tables=tables,
    )
