"""How pages are made of templates: every text is escaped, whatever it holds; a name that is not given is an error.

What must not live here: what a page shows.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from finevolve_pipeline.evaluation.report.words import Words

HERE = Path(__file__).parent


def template_environment(words: Words) -> Environment:
    """The templates of this folder in one language, with the style sheet as `css`.

    Only our own style sheet and drawings (filter `drawing`) are trusted as markup.
    """
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawing"] = Markup
    environment.globals |= {"css": Markup((HERE / "report.css").read_text("utf-8")), "_": words}
    return environment
