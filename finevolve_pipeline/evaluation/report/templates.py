"""The templates of pages, and what all of them know: our style sheet, words, tables.

What must not live here: which pages there are and what stands on them.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from finevolve_pipeline.evaluation.report.words import Words

_HERE = Path(__file__).parent


def environment(words: Words) -> Environment:
    """Templates in one language; every text is escaped but our own style sheet and drawings."""
    made = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["drawing"] = Markup
    made.globals |= {"css": Markup((_HERE / "report.css").read_text("utf-8")), "_": words}
    return made
