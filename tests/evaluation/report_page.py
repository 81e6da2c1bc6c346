"""What tests of the report share: its page as a browser sees it, texts that would break out of it, empty inputs."""

from __future__ import annotations

from html.parser import HTMLParser

import pandas as pd

from finevolve_pipeline.evaluation.news_statistics import all_facts, news_counts
from finevolve_pipeline.evaluation.report import ReportInputs
from finevolve_pipeline.news.coverage_table import CoverageTable, coverage_table
from finevolve_pipeline.settings import Settings
from finevolve_pipeline.tables import (
    BenchmarkNews,
    Comparison,
    InformationCoefficients,
    Outcomes,
    Predictions,
    Retrievals,
    empty,
)

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "</style><b>x</b>",
    "</title></svg><svg onload=alert(1)>",
    "{{ 7*7 }} $x^$ \\frac",
)


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
        if self.elements and self.elements[-1][0] not in ("script", "style"):
            self.texts.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def nothing_yet(settings: Settings, coverage: CoverageTable | None = None) -> ReportInputs:
    """Inputs of a report before anything has been made; with news coverage if it is given."""
    return ReportInputs(
        settings=settings,
        ic_matrix=empty(InformationCoefficients),
        comparison=empty(Comparison),
        predictions=empty(Predictions),
        retrievals=empty(Retrievals),
        alpha=empty(Outcomes),
        news_counts=news_counts(all_facts([])),
        news_sessions=pd.DataFrame(columns=["session", "articles"]),
        news_sample=empty(BenchmarkNews),
        coverage=coverage or coverage_table((), {}),
        manifests={},
    )
