"""Content digests: of JSON values, of tables, and of the source code that can change a result.

Digests are SHA-256 in hexadecimal, cut to 32 characters where they are only compared, never attacked.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from functools import lru_cache
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc


def digest_bytes(data: bytes) -> str:
    """Digest of raw bytes, 32 hexadecimal characters."""
    return hashlib.sha256(data).hexdigest()[:32]


def digest_text(text: str) -> str:
    """Digest of a text in UTF-8."""
    return digest_bytes(text.encode("utf-8", "surrogatepass"))


def canonical_json(value: object) -> str:
    """The one JSON text of a value: sorted keys, no blanks, NaN refused."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_json(value: object) -> str:
    """Digest of a JSON value by its canonical text."""
    return digest_text(canonical_json(value))


def digest_frame(frame: pd.DataFrame) -> str:
    """Digest of a table's content: column names, values and row order; independent of the file it lies in."""
    return digest_table(pa.Table.from_pandas(frame, preserve_index=False))


def digest_table(table: pa.Table) -> str:
    """Digest of an Arrow table's content, its types included.

    Arrow leaves the bytes under a null undefined, so nulls are filled and their places digested beside.
    """
    columns: dict[str, pa.ChunkedArray] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count:
            columns[f"{name} present"] = pc.cast(pc.is_valid(column), pa.int8())
            column = pc.fill_null(column, "" if _is_text(column) else pa.scalar(0, pa.int64()).cast(column.type))
        columns[name] = column
    filled = pa.table(columns).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, filled.schema) as writer:
        writer.write_table(filled)
    return digest_bytes(sink.getvalue().to_pybytes())


def _is_text(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            first = body[0].value
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                node.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


@lru_cache(maxsize=256)
def _digest_of_file(path: Path) -> str:
    if path.suffix == ".py":
        return digest_text(ast.dump(_without_docstrings(ast.parse(path.read_text("utf-8")))))
    return digest_bytes(path.read_bytes())


def source_digest(*modules: str) -> str:
    """Digest of what modules and packages *do*: their syntax trees without comments and docstrings.

    A package counts with every file below it, data files included, so that a changed prompt or lexicon is a
    changed code version. Names are dotted (`finevolve_pipeline.news.clean`).
    """
    found: dict[str, str] = {}
    for module in modules:
        if module == "__main__":
            raise ModuleNotFoundError("code of a script or notebook has no name to be found by: put it into a module")
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(module)
        origin = Path(spec.origin)
        if spec.submodule_search_locations is None:
            found[module] = _digest_of_file(origin)
            continue
        for path in sorted(origin.parent.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found[f"{module}/{path.relative_to(origin.parent).as_posix()}"] = _digest_of_file(path)
    return digest_json(found)
