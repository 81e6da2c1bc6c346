"""Rows of the paper's Table 2: coefficients by horizon and metric, mean gains over Pipe, and what is known of chance.

What lives here: which number stands where, arrows and marks. What must not: a file format.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS, PIPE, mechanism_label
from finevolve_pipeline.evaluation.ic import METHODS, METRICS
from finevolve_pipeline.evaluation.layout.numbers import DASH, format_coefficient, format_gain
from finevolve_pipeline.evaluation.published import PUBLISHED_METHOD, published_row
from finevolve_pipeline.evaluation.significance import beyond_noise, significance_level
from finevolve_pipeline.evaluation.stages import COLD_START, EXPLOITATION, OVERALL

READING_ORDER = (OVERALL, COLD_START, EXPLOITATION)
"""Stages as tables show them."""

_NAMED = 4
"""Undefined coefficients that are named in a note; the others are counted."""

STAGE_NAMES = {OVERALL: "Overall", COLD_START: "Cold start", EXPLOITATION: "Exploitation"}
METHOD_NAMES = {"spearman": "Spearman", "pearson": "Pearson", PUBLISHED_METHOD: "as published"}


@dataclass(frozen=True)
class Estimate:
    """A number and how far it can be told from chance; NaN where something is undefined or was not tested.

    Attributes:
        value: the coefficient, or the difference from Pipe.
        low: lower end of its interval.
        high: upper end.
        p: two-sided, of zero.
        p_holm: Holm's adjusted p over all coefficients, or all differences, of a backbone, stage and method.
        p_bh: Benjamini-Hochberg's.
        minimum_detectable: the size that a single test would find with power 0.8.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    p_holm: float = math.nan
    p_bh: float = math.nan
    minimum_detectable: float = math.nan


_TESTED = ["low", "high", "p", "p_holm", "p_bh", "minimum_detectable"]
_NOT_TESTED = (math.nan,) * len(_TESTED)


@dataclass(frozen=True)
class Table2Cell:
    """One coefficient of the table, or, at horizon 0, one mean gain over the horizons.

    Attributes:
        horizon: in sessions; 0 = mean over the horizons.
        metric: tsIC or csIC.
        level: the coefficient; at horizon 0 the mean of the coefficients, which is not tested.
        difference: from Pipe, paired; all of it NaN for Pipe itself.
        differs: whether the difference goes beyond noise (Holm's adjusted p); None if it was not tested.
        published: the paper's coefficient, at horizon 0 its mean gain; None if the paper has none for this cell.
    """

    horizon: int
    metric: str
    level: Estimate
    difference: Estimate
    differs: bool | None = None
    published: float | None = None

    @property
    def value(self) -> float:
        """The coefficient."""
        return self.level.value

    @property
    def above_pipe(self) -> bool:
        """What the arrow says, and nothing about chance."""
        return self.difference.value > 0

    @property
    def signs(self) -> str:
        """Arrow where above Pipe, star where the difference goes beyond noise."""
        return ("↑" if self.above_pipe else "") + ("*" if self.differs else "")

    @property
    def text(self) -> str:
        """Four decimals and the signs; at horizon 0 the gain and its star."""
        if self.horizon == ALL_HORIZONS:
            return format_gain(self.difference.value) + (" *" if self.differs else "")
        return f"{format_coefficient(self.value)} {self.signs}".rstrip()


@dataclass(frozen=True)
class Table2Row:
    """One mechanism of the table.

    Attributes:
        backbone: its name.
        mechanism: its name in the settings.
        stage: cold_start, exploitation or overall.
        method: spearman or pearson.
        cells: coefficients by horizon, tsIC before csIC.
        gains: mean gains over Pipe, tsIC, csIC.
        adds_experience: whether it is Pipe and something more.
    """

    backbone: str
    mechanism: str
    stage: str
    method: str
    cells: tuple[Table2Cell, ...]
    gains: tuple[Table2Cell, ...]
    adds_experience: bool

    @property
    def name(self) -> str:
        """How people write the mechanism."""
        return mechanism_label(self.mechanism)

    @property
    def label(self) -> str:
        """The row's name: `+ Mem0` for what is added to Pipe, a plain one for what stands beside it."""
        return f"+ {self.name}" if self.adds_experience else self.name

    @property
    def is_pipe(self) -> bool:
        """Whether this is the reference row."""
        return self.mechanism == PIPE

    @property
    def gain_ts(self) -> float:
        """Mean gain in tsIC."""
        return self.gains[0].difference.value

    @property
    def gain_cs(self) -> float:
        """Mean gain in csIC."""
        return self.gains[1].difference.value

    @property
    def is_published(self) -> bool:
        """Whether the paper has figures for any cell of this row."""
        return any(cell.published is not None for cell in (*self.cells, *self.gains))

    def texts(self) -> list[str]:
        """The row as text: label, coefficients, mean gains (a dash for Pipe itself)."""
        return [self.label, *(cell.text for cell in self.cells), *(cell.text for cell in self.gains)]

    def published_texts(self) -> list[str]:
        """The paper's figures in the columns of `texts`, a dash where it has none."""
        coefficients = [_published(cell, format_coefficient) for cell in self.cells]
        return [f"{self.label}, paper", *coefficients, *(_published(cell, format_gain) for cell in self.gains)]


def _published(cell: Table2Cell, style: Callable[[float], str]) -> str:
    return DASH if cell.published is None else style(cell.published)


@dataclass(frozen=True)
class Panel:
    """Rows of one stage and one kind of correlation, backbone by backbone."""

    stage: str
    method: str
    rows: tuple[Table2Row, ...]

    @property
    def title(self) -> str:
        """`Overall, Spearman`."""
        return f"{STAGE_NAMES.get(self.stage, self.stage)}, {METHOD_NAMES.get(self.method, self.method)}"

    @property
    def horizons(self) -> tuple[int, ...]:
        """Horizons of the columns, ascending."""
        return tuple(dict.fromkeys(cell.horizon for row in self.rows for cell in row.cells))

    @property
    def is_tested(self) -> bool:
        """Whether any coefficient or difference has been tested."""
        cells = (cell for row in self.rows for cell in (*row.cells, *row.gains))
        return any(not math.isnan(one.p) for cell in cells for one in (cell.level, cell.difference))


@dataclass(frozen=True)
class Table2:
    """The whole table: panels without rows are left out.

    Attributes:
        panels: by stage, then by kind of correlation.
        confidence: of the intervals; the mark's level is what is left to 1.
    """

    panels: tuple[Panel, ...]
    confidence: float

    @property
    def level(self) -> float:
        """Below this Holm's adjusted p earns a mark."""
        return significance_level(self.confidence)

    @property
    def rows(self) -> tuple[Table2Row, ...]:
        """Rows of all panels."""
        return tuple(row for panel in self.panels for row in panel.rows)


def table2(
    comparison: pd.DataFrame,
    inference: pd.DataFrame | None = None,
    confidence: float = 0.95,
    stages: Sequence[str] = READING_ORDER,
    methods: Sequence[str] = METHODS,
    without_experience: Collection[str] = (),
) -> Table2:
    """The paper's Table 2 for every backbone, of the given stages and kinds of correlation.

    Args:
        comparison: `Comparison`.
        inference: `Inference`; None or rows that are absent: not tested.
        confidence: of the intervals in `inference` (setting `evaluation.confidence`).
        stages: cold_start, exploitation, overall.
        methods: spearman, pearson.
        without_experience: mechanisms that add none to Pipe, beside Pipe itself (see `registry.without_experience`).
    """
    panels = (
        Panel(stage, method, table2_rows(comparison, stage, method, inference, confidence, without_experience))
        for stage in stages
        for method in methods
    )
    return Table2(tuple(panel for panel in panels if panel.rows), confidence)


def table2_rows(
    comparison: pd.DataFrame,
    stage: str = OVERALL,
    method: str = "spearman",
    inference: pd.DataFrame | None = None,
    confidence: float = 0.95,
    without_experience: Collection[str] = (),
) -> tuple[Table2Row, ...]:
    """The rows of one stage and one kind of correlation, backbone by backbone, Pipe first. See `table2`."""
    chosen = comparison[(comparison["stage"] == stage) & (comparison["method"] == method)]
    horizons = tuple(sorted({int(h) for h in chosen["horizon"]} - {ALL_HORIZONS}))
    reader = _Reader(_numbers(chosen), _tests(inference, stage, method), confidence, without_experience)
    runs = chosen[["backbone", "mechanism"]].drop_duplicates().astype(str).itertuples(index=False, name=None)
    found = [reader.row(backbone, mechanism, stage, method, horizons) for backbone, mechanism in runs]
    backbones = list(dict.fromkeys(row.backbone for row in found))
    return tuple(sorted(found, key=lambda row: (backbones.index(row.backbone), not row.is_pipe)))


def by_backbone(rows: Sequence[Table2Row]) -> dict[str, tuple[Table2Row, ...]]:
    """The rows of each backbone, in order."""
    backbones = dict.fromkeys(row.backbone for row in rows)
    return {backbone: tuple(row for row in rows if row.backbone == backbone) for backbone in backbones}


def _numbers(comparison: pd.DataFrame) -> dict[tuple[str, str, str, int], tuple[float, float]]:
    """Coefficient and gain by backbone, mechanism, metric and horizon."""
    columns = ["backbone", "mechanism", "metric", "horizon", "value", "gain"]
    return {
        (str(backbone), str(mechanism), str(metric), int(horizon)): (float(value), float(gain))
        for backbone, mechanism, metric, horizon, value, gain in comparison[columns].itertuples(index=False, name=None)
    }


def _tests(
    inference: pd.DataFrame | None, stage: str, method: str
) -> dict[tuple[str, str, str, int, str], tuple[float, ...]]:
    """What the tests gave, in the order of `_TESTED`, by backbone, mechanism, metric, horizon and quantity."""
    if inference is None:
        return {}
    rows = inference[(inference["stage"] == stage) & (inference["method"] == method)]
    columns = ["backbone", "mechanism", "metric", "horizon", "quantity", *_TESTED]
    return {
        (str(backbone), str(mechanism), str(metric), int(horizon), str(quantity)): tuple(map(float, tested))
        for backbone, mechanism, metric, horizon, quantity, *tested in rows[columns].itertuples(index=False, name=None)
    }


@dataclass(frozen=True)
class _Reader:
    """Looks a row's numbers up."""

    numbers: Mapping[tuple[str, str, str, int], tuple[float, float]]
    tests: Mapping[tuple[str, str, str, int, str], tuple[float, ...]]
    confidence: float
    without_experience: Collection[str]

    def row(self, backbone: str, mechanism: str, stage: str, method: str, horizons: tuple[int, ...]) -> Table2Row:
        # The paper's table is of the whole window.
        printed = published_row(backbone, mechanism) if stage == OVERALL and method in METHODS else None
        return Table2Row(
            backbone=backbone,
            mechanism=mechanism,
            stage=stage,
            method=method,
            cells=tuple(
                self.cell(backbone, mechanism, metric, horizon, printed and printed.coefficient(metric, horizon))
                for horizon in horizons
                for metric in METRICS
            ),
            gains=tuple(
                self.cell(backbone, mechanism, metric, ALL_HORIZONS, printed and printed.gain(metric, horizons))
                for metric in METRICS
            ),
            adds_experience=mechanism not in (PIPE, *self.without_experience),
        )

    def cell(self, backbone: str, mechanism: str, metric: str, horizon: int, published: float | None) -> Table2Cell:
        place = (backbone, mechanism, metric, horizon)
        value, gain = self.numbers.get(place, (math.nan, math.nan))
        difference = Estimate()
        if mechanism != PIPE:
            difference = Estimate(gain, *self.tests.get((*place, "difference"), _NOT_TESTED))
        return Table2Cell(
            horizon=horizon,
            metric=metric,
            level=Estimate(value, *self.tests.get((*place, "level"), _NOT_TESTED)),
            difference=difference,
            differs=beyond_noise(difference.p_holm, self.confidence),
            published=published,
        )


def table2_notes(rows: Sequence[Table2Row], words: Callable[..., str] = str.format) -> tuple[str, ...]:
    """In words, what the table cannot show: backbones without a Pipe run, coefficients that are undefined.

    Args:
        rows: of the table.
        words: fills a text's braces from keywords, in the language that is wanted; English by default.
    """
    return tuple(note for backbone, panel in by_backbone(rows).items() for note in _panel_notes(backbone, panel, words))


def _panel_notes(backbone: str, rows: Sequence[Table2Row], words: Callable[..., str]) -> list[str]:
    notes = []
    if not any(row.is_pipe for row in rows):
        notes.append(
            words("Backbone {backbone} has no Pipe run, so no gain can be computed for it.", backbone=backbone)
        )
    undefined = [
        words(
            "{mechanism} {metric} at {horizon} sessions", mechanism=row.name, metric=cell.metric, horizon=cell.horizon
        )
        for row in rows
        for cell in row.cells
        if math.isnan(cell.value)
    ]
    if undefined:
        which = words(", ").join(undefined[:_NAMED])
        if len(undefined) > _NAMED:
            which = words("{some} and {count} more", some=which, count=len(undefined) - _NAMED)
        notes.append(
            words(
                "Backbone {backbone}: undefined on the common cells: {which}. A mean over the horizons needs all of "
                "them.",
                backbone=backbone,
                which=which,
            )
        )
    return notes


def legend(panel: Panel, level: float, words: Callable[..., str] = str.format) -> tuple[str, ...]:
    """How the panel is to be read, then `table2_notes`.

    Args:
        panel: the rows.
        level: below it Holm's adjusted p earns a star.
        words: as in `table2_notes`.
    """
    reading = [words("↑ lies above Pipe; it says nothing about chance. – undefined, or not tested.")]
    if panel.is_tested:
        reading.append(
            words(
                "* differs from Pipe beyond noise: Holm's adjusted p is below {level} (over all differences of this "
                "backbone, stage and correlation). No star does not mean equal to Pipe: a difference below the least "
                "detectable one is easily missed.",
                level=f"{level:g}",
            )
        )
    else:
        reading.append(words("Nothing here has been tested: differences may be chance."))
    if any(row.is_published for row in panel.rows):
        reading.append(
            words(
                "Rows marked paper: Table 2 of arXiv 2606.06960v4, other runs on other data; it does not say which "
                "correlation it uses."
            )
        )
    return (*reading, *table2_notes(panel.rows, words))
