"""Tables and text that a spreadsheet opens as they are: no cell of ours is ever run as a formula."""

from __future__ import annotations

import re

import pandas as pd

# The apostrophes belong to the pattern so that a text which already looks guarded is guarded once more
# and comes back unchanged.
_RUNS = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_GUARDED = re.compile(r"'+[=+\-@\t\r\n＝＋－＠]")


def safe_cell(text: str) -> str:
    """The text with a leading apostrophe where a spreadsheet would take it for a formula.

    Those are texts that begin with = + - @ (or their full-width forms), a tab or a line break.
    `unsafe_cell(safe_cell(text)) == text` for every text.
    """
    return f"'{text}" if _RUNS.match(text) else text


def unsafe_cell(text: str) -> str:
    """The text that `safe_cell` was given. Other texts come back as they are."""
    return text[1:] if _GUARDED.match(text) else text


def frame_csv(frame: pd.DataFrame) -> str:
    """Any table as CSV: text cells safe for spreadsheets, undefined numbers empty, line feeds."""
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    safe = frame.assign(**{name: frame[name].map(lambda cell: safe_cell(str(cell))) for name in texts})
    return safe.to_csv(index=False, lineterminator="\n")
