"""Makes the helper modules of this folder importable for its tests; reports whose figures are not drawn."""

from __future__ import annotations

import html
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from finevolve_pipeline.evaluation.report import figures

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures keep their place and description but not their lines, which take two thirds of a report's time.

    For tests of words and numbers; drawings are looked at where the whole report is built, and in a browser.
    """

    def empty(_: Figure, name: str, description: str) -> str:
        label = html.escape(description, quote=True)
        return f'<svg role="img" aria-label="{label}" viewBox="0 0 1 1"><g id="{name}-none"></g></svg>\n'

    monkeypatch.setattr(figures, "_svg", empty)
