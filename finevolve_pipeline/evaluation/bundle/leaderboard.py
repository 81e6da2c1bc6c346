"""The leaderboard's folder: a static page of verified bundles, and its values as files.

A bundle that fails a check is named beside the tables, with the reason, and enters none. Equal bundles give equal
bytes, whatever their files' order or times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from finevolve_pipeline.evaluation.bundle.leaderboard_page import page
from finevolve_pipeline.evaluation.bundle.standings import Board, Entry, Standing, number, standings
from finevolve_pipeline.evaluation.folders import require_own, whole_folder
from finevolve_pipeline.spreadsheet import frame_csv

PAGE, TABLE, DOCUMENT = "index.html", "leaderboard.csv", "leaderboard.json"


def require_own_folder(target: Path) -> None:
    """Refuse a folder that holds anything but an earlier leaderboard: it is replaced as a whole."""
    require_own(target, (PAGE, TABLE, DOCUMENT))


def build_leaderboard(target: Path, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Write the leaderboard's folder: `index.html`, `leaderboard.csv`, `leaderboard.json`. Returns the files' names.

    Args:
        target: the folder; an older one there is replaced as a whole.
        entries: all bundles, refused ones included, in any order.

    Raises:
        FinEvolveError: `target` holds other files (see `require_own_folder`), or cannot be written.
    """
    require_own_folder(target)
    tables = standings(entries)
    out = sorted((entry for entry in entries if not entry.ok), key=lambda entry: entry.file)
    files = {
        PAGE: page(tables, out),
        TABLE: frame_csv(_frame(tables)),
        DOCUMENT: json.dumps(_document(tables, out), ensure_ascii=False, indent=1, allow_nan=False) + "\n",
    }
    with whole_folder(target) as folder:
        for name, text in files.items():
            (folder / name).write_text(text, "utf-8", newline="")
    return tuple(files)


def _frame(tables: Mapping[Board, Sequence[Standing]]) -> pd.DataFrame:
    """Every value of every run, in long form."""
    columns = (
        *("board", "rank", "file", "digest", "submitter", "level", "mechanism", "backbone"),
        *("metric", "horizon", "quantity", "value", "low", "high", "p_holm"),
    )
    rows = [
        (
            board.digest,
            number(one.rank),
            *(one.entry.file, one.entry.digest, one.entry.submitter, one.entry.level),
            *(one.row.mechanism, one.row.backbone, value.metric, value.horizon, value.quantity),
            *map(number, (value.value, value.low, value.high, value.p)),
        )
        for board, standing in tables.items()
        for one in standing
        for value in one.row.values
    ]
    return pd.DataFrame(rows, columns=list(columns))


def _document(tables: Mapping[Board, Sequence[Standing]], out: Sequence[Entry]) -> dict[str, object]:
    return {
        "boards": [
            {
                **board.model_dump(mode="json"),
                "conditions": dict(board.conditions),
                "runs": [
                    {
                        "rank": one.rank,
                        "gain": None if math.isnan(one.row.gain) else one.row.gain,
                        "file": one.entry.file,
                        "digest": one.entry.digest,
                        "submitter": one.entry.submitter,
                        "level": one.entry.level,
                        "same_runs": [copy.file for copy in one.copies],
                        **one.row.model_dump(mode="json"),
                    }
                    for one in rows
                ],
            }
            for board, rows in tables.items()
        ],
        "refused": [{"file": entry.file, "reason": entry.problem} for entry in out],
    }
