"""The paper's own Tables 1 and 2 as data (arXiv 2606.06960v4, sections 3 and 4.2), to stand beside a run's.

The published coefficients go through the same comparison as a run's, so the ten published mean gains check
both the transcription and the code. The paper does not say whether its correlations are of ranks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import pandas as pd

from finevolve_pipeline.evaluation.comparison import compare_with_pipe
from finevolve_pipeline.evaluation.dataset import DatasetFacts
from finevolve_pipeline.evaluation.ic import COMMON
from finevolve_pipeline.evaluation.stages import OVERALL

PUBLISHED_HORIZONS = (10, 20, 40)
PUBLISHED_METHOD = "as published"


class PublishedRow(NamedTuple):
    """One row of Table 2: coefficients by horizon (10, 20, 40 sessions) and the mean gains it prints."""

    backbone: str
    mechanism: str
    challenges: str
    ts: tuple[float, float, float]
    cs: tuple[float, float, float]
    gain_ts: float | None
    gain_cs: float | None

    def coefficient(self, metric: str, horizon: int) -> float | None:
        """The printed coefficient, None for a horizon that the paper does not have."""
        if horizon not in PUBLISHED_HORIZONS:
            return None
        return {"tsIC": self.ts, "csIC": self.cs}[metric][PUBLISHED_HORIZONS.index(horizon)]

    def gain(self, metric: str, horizons: Sequence[int]) -> float | None:
        """The printed mean gain, None for Pipe and for a mean over other horizons than the paper's."""
        if tuple(sorted(horizons)) != PUBLISHED_HORIZONS:
            return None
        return {"tsIC": self.gain_ts, "csIC": self.gain_cs}[metric]


_DEEPSEEK, _QWEN = "DeepSeek-V4-Flash", "Qwen3.6-35B-A3B"

PUBLISHED_TABLE2: tuple[PublishedRow, ...] = (
    PublishedRow(_DEEPSEEK, "pipe", "", (0.0243, 0.0517, 0.0595), (0.0177, 0.0408, 0.0323), None, None),
    PublishedRow(_DEEPSEEK, "mem0", "D", (0.0202, 0.0325, 0.0288), (0.0149, 0.0240, 0.0416), -0.0180, -0.0034),
    PublishedRow(_DEEPSEEK, "memrl", "D+O", (0.0175, 0.0182, 0.0269), (0.0147, 0.0060, 0.0264), -0.0243, -0.0146),
    PublishedRow(_DEEPSEEK, "reflexion", "D+C+O", (0.0195, 0.0632, 0.0623), (0.0223, 0.0525, 0.0162), 0.0032, 0.0001),
    PublishedRow(_DEEPSEEK, "expel", "C+R", (0.0295, 0.0451, 0.0522), (0.0330, 0.0280, 0.0094), -0.0029, -0.0068),
    PublishedRow(
        _DEEPSEEK,
        "reasoningbank",
        "C+R",
        (0.0124, 0.0419, 0.0699),
        (0.0091, 0.0285, 0.0420),
        -0.0038,
        -0.0037,
    ),
    PublishedRow(_QWEN, "pipe", "", (0.0349, 0.0676, 0.0677), (0.0342, 0.0542, 0.0452), None, None),
    PublishedRow(_QWEN, "mem0", "D", (0.0132, 0.0336, 0.0475), (0.0098, 0.0272, 0.0250), -0.0253, -0.0239),
    PublishedRow(_QWEN, "memrl", "D+O", (0.0186, 0.0481, 0.0135), (0.0135, 0.0514, -0.0065), -0.0300, -0.0251),
    PublishedRow(_QWEN, "reflexion", "D+C+O", (0.0283, 0.0424, 0.0452), (0.0407, 0.0418, 0.0072), -0.0181, -0.0146),
    PublishedRow(_QWEN, "expel", "C+R", (0.0262, 0.0604, 0.0441), (0.0360, 0.0607, 0.0044), -0.0132, -0.0108),
    PublishedRow(_QWEN, "reasoningbank", "C+R", (0.0101, 0.0465, 0.1033), (0.0074, 0.0322, 0.0716), -0.0034, -0.0075),
)


def published_row(backbone: str, mechanism: str) -> PublishedRow | None:
    """The paper's row of that backbone and mechanism, None if it has none.

    Names may differ in case and punctuation: `deepseek-v4-flash` is DeepSeek-V4-Flash.
    """
    return _rows_by_name().get((_bare(backbone), _bare(mechanism)))


@cache
def _rows_by_name() -> dict[tuple[str, str], PublishedRow]:
    return {(_bare(row.backbone), _bare(row.mechanism)): row for row in PUBLISHED_TABLE2}


def _bare(name: str) -> str:
    """A name without case and punctuation; between digits it stays as a point, for 3.6-35 is not 3.63-5."""
    pointed = re.sub(r"(?<=\d)[\W_]+(?=\d)", ".", name.casefold())
    return re.sub(r"[^\w.]|_|(?<!\d)\.|\.(?!\d)", "", pointed)


def published_coefficients() -> pd.DataFrame:
    """Table 2 in long form, with the columns of an IC matrix that `compare_with_pipe` reads."""
    return pd.DataFrame(
        {
            "backbone": row.backbone,
            "mechanism": row.mechanism,
            "cells": COMMON,
            "stage": OVERALL,
            "horizon": horizon,
            "metric": metric,
            "method": PUBLISHED_METHOD,
            "value": value,
        }
        for row in PUBLISHED_TABLE2
        for metric, values in (("tsIC", row.ts), ("csIC", row.cs))
        for horizon, value in zip(PUBLISHED_HORIZONS, values, strict=True)
    )


def published_comparison() -> pd.DataFrame:
    """The paper's Table 2 as a `Comparison` of method `as published`, its gains recomputed."""
    return compare_with_pipe(published_coefficients())


PUBLISHED_DATASET = DatasetFacts(
    industries=31,
    horizons=(10, 20, 40),
    window=("2025-01-02", "2026-03-31"),
    sessions=300,
    news_span=("2024-01-01", "2026-06-01"),
    label_end="2026-06-30",
    sources=9,
    articles=222_025,
    selected=126_878,
    active_days=876,
    per_day=143.85,
    important=0.5663,
    largest_source=("sina", 0.5599),
    labels=0,
    cells=0,
    runs=12,
    predictions=0,
    invalid=0,
)
"""The paper's own dataset (arXiv 2606.06960v4, Table 1 and section 3); what it does not print is 0."""
