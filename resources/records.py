"""Where answers, vectors and the ledger of a home lie: in files of it, or in the database that hosts share.

FINEVOLVE_DATABASE names the database (see `storage`). Entries and sums are the same in both.
"""

from __future__ import annotations

import os
from pathlib import Path

from finevolve_pipeline.databases import Database, Schema
from finevolve_pipeline.llm.cache import AnswerCache, VectorCache, answers_path, vectors_path
from finevolve_pipeline.llm.ledger import Ledger, ledger_path
from resources.database import Database as Server
from resources.storage import DATABASE


def answer_cache(home: Path) -> AnswerCache:
    """Answers given before. Raises `SettingsError` if FINEVOLVE_DATABASE cannot be used."""
    return AnswerCache(_place(answers_path(home), AnswerCache.schema))


def vector_cache(home: Path) -> VectorCache:
    """Vectors computed before. Raises as `answer_cache`."""
    return VectorCache(_place(vectors_path(home), VectorCache.schema))


def open_ledger(home: Path, budget: float | None) -> Ledger:
    """What was spent, and what may be (USD; None: no limit). Raises as `answer_cache`."""
    return Ledger(_place(ledger_path(home), Ledger.schema), budget)


def _place(file: Path, schema: Schema) -> Path | Database:
    url = os.environ.get(DATABASE)
    if not url:
        return file
    server = Server(url)  # says what is missing before the driver is imported
    from resources.postgres import PostgresDatabase

    return PostgresDatabase(server, schema)
