"""`finevolve tagging`: how well a backbone tags."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from finevolve_pipeline.cli.output import Pipeline, emit_json, json_option, print_table
from finevolve_pipeline.errors import InputError
from finevolve_pipeline.evaluation.agreement import Agreement, agreement, read_labelled, read_labels, tag_labelled
from finevolve_pipeline.llm.asking import Model
from finevolve_pipeline.news.tag import Tagging, requests_under_way, tagger
from resources.backbones import build_backbone

PROJECT_LABELS = Path(__file__).resolve().parents[2] / "tests" / "golden" / "telegraph_labels.csv"
"""The project's own labels; present in a checkout."""


@click.group("tagging")
def tagging_group() -> None:
    """How articles are tagged."""


@tagging_group.command("agreement")
@click.option(
    "--articles",
    type=click.Path(path_type=Path),
    required=True,
    help="News file with the labelled items, of any layout that can be imported.",
)
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    help="CSV: id, content_sha256, industries (codes joined by |), scope, importance. "
    "Default: the 200 telegraphs labelled for this project, in a checkout of it.",
)
@click.option("--backbone", help="Name in the settings (default: the one that tags).")
@json_option
def agreement_command(articles: Path, labels: Path | None, backbone: str | None, as_json: bool) -> None:
    """Measure how far a backbone's tags agree with labels (the project's own were given by a language model).

    Labelled items are read, cleaned and tagged as in the pipeline, with its cache, budget and batch size.
    """
    pipeline = Pipeline.in_force()
    settings = pipeline.settings
    name = backbone or settings.tagging.backbone
    model = Model(build_backbone(name, settings, pipeline.home), settings.prompts)
    labelled = read_labelled(read_labels(labels or _project_labels()), articles)
    batch = settings.tagging.batch
    tagging = tag_labelled(labelled, model, batch, requests_under_way(settings, name))
    figures = agreement(labelled.labels, tagging.frame, settings.news.min_importance)
    if as_json:
        emit_json(
            {
                "backbone": name,
                "tagger": tagger(model, batch).identity,
                "labelled": len(labelled.labels),
                "agreement": asdict(figures),
                "tagging": tagging.facts,
            }
        )
        return
    _print(name, figures, tagging)


def _project_labels() -> Path:
    if not PROJECT_LABELS.exists():
        raise InputError(
            "labels: this is no checkout of the project, so there is no default; name a file with --labels"
        )
    return PROJECT_LABELS


def _print(name: str, figures: Agreement, tagging: Tagging) -> None:
    print_table(
        f"industries, {name} against labels",
        ["articles", "number", "precision", "recall", "F1"],
        [
            [which, f"{one.articles}", f"{one.precision:.3f}", f"{one.recall:.3f}", f"{one.f1:.3f}"]
            for which, one in (
                ("all", figures.overall),
                ("labelled with scope industry", figures.within_industry_scope),
            )
        ],
    )
    kept = f"importance >= {figures.threshold}"
    print_table(
        "scope and importance",
        ["figure", "value"],
        [
            ["scope, accuracy", f"{figures.scope_accuracy:.3f}"],
            ["importance, Spearman", f"{figures.spearman:.3f}"],
            ["importance, Kendall tau-b", f"{figures.kendall:.3f}"],
            ["importance, quadratic weighted kappa", f"{figures.weighted_kappa:.3f}"],
            [f"{kept}, labels", f"{figures.kept_by_label:.3f}"],
            [f"{kept}, {name}", f"{figures.kept_by_tagger:.3f}"],
            [f"{kept}, both say the same", f"{figures.kept_agreement:.3f}"],
        ],
    )
    usage = tagging.usage
    print_table(
        "answers",
        ["figure", "value"],
        [
            ["articles asked about", f"{tagging.asked}"],
            ["asked again", f"{tagging.asked_again}"],
            ["unreadable", f"{tagging.unreadable}"],
            ["cut to the budget", f"{tagging.cut}"],
            ["rejected industry names", f"{sum(tagging.rejected.values())}"],
            *([f"failures, {kind}", f"{count}"] for kind, count in tagging.failures.items()),
            ["prompt tokens", f"{usage.prompt_tokens}"],
            ["completion tokens", f"{usage.completion_tokens}"],
            ["cost, USD", f"{usage.cost:.4f}"],
        ],
    )
