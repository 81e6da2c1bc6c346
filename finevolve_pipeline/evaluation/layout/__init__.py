"""The paper's Table 2 for a run: rows with arrows, marks, intervals and adjusted p, and four formats of them.

What lives here: what stands in which row and column (`rows`), and its text as Markdown, CSV, LaTeX and JSON. What
must not: any statistic (see `evaluation.comparison` and the table `inference`), HTML (see `evaluation.report`).
"""

from finevolve_pipeline.evaluation.layout.as_csv import table2_csv
from finevolve_pipeline.evaluation.layout.as_json import table2_document, table2_json
from finevolve_pipeline.evaluation.layout.as_latex import table2_latex
from finevolve_pipeline.evaluation.layout.as_markdown import table2_markdown
from finevolve_pipeline.evaluation.layout.numbers import format_coefficient, format_gain
from finevolve_pipeline.evaluation.layout.rows import (
    Estimate,
    Panel,
    Table2,
    Table2Cell,
    Table2Row,
    by_backbone,
    legend,
    table2,
    table2_notes,
    table2_rows,
)

__all__ = [
    "Estimate",
    "Panel",
    "Table2",
    "Table2Cell",
    "Table2Row",
    "by_backbone",
    "format_coefficient",
    "format_gain",
    "legend",
    "table2",
    "table2_csv",
    "table2_document",
    "table2_json",
    "table2_latex",
    "table2_markdown",
    "table2_notes",
    "table2_rows",
]
