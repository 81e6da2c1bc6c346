"""Reading files that people send: JSON lines, CSV and parquet, row by row, in bounded memory.

A bad row becomes a `Reject` with its number and a reason, and reading goes on. Only a file that cannot be
used at all raises `InputError`. Row numbers are line numbers (the line a CSV row starts on, its header
being line 1) or, in parquet, positions counted from 1.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import IO, Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.parquet as pq

from finevolve_pipeline.errors import InputError
from finevolve_pipeline.files import PARTIAL
from finevolve_pipeline.spreadsheet import safe_cell

RECORD_LIMIT = 16 << 20
"""Longest line, or CSV row over several lines, in bytes; longer ones are never held in memory."""

ENCODINGS = ("utf-8", "gb18030", "gbk", "big5")
"""Encodings a text file may have: all end lines with the same byte."""

_BLOCK = 1 << 16
_PROBE = 1 << 18
_RAW_KEPT = 32_000  # characters; a spreadsheet cell holds 32,767
_KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".parquet": "parquet"}


class Row(NamedTuple):
    """One readable row. `raw` is the row as it stood, for the rejects file."""

    number: int
    values: Mapping[str, Any]
    raw: object


class Reject(NamedTuple):
    """One row that cannot be used, and why."""

    row: int
    reason: str
    raw: str


class RowError(Exception):
    """Why a row cannot be used. Callers turn it into a `Reject`; it never reaches the user as an error."""


def reject_row(row: Row, reason: str) -> Reject:
    """The reject of a row that could be read but not used."""
    if isinstance(row.raw, str):
        return Reject(row.number, reason, row.raw)
    cells = row.raw if isinstance(row.raw, list) else list(row.values.values())
    return Reject(row.number, reason, ",".join("" if cell is None else str(cell) for cell in cells))


class RowFile:
    """The rows of one file, to be iterated once.

    Attributes:
        path: the file.
        columns: column names; empty for JSON lines, where each row has its own.
        damage: after iteration, why the end of the file could not be read; None if it was read whole.
        count: rows read so far, rejected ones included.
        replaced: after iteration, rows in which half a surrogate pair became U+FFFD.

    Args:
        path: .jsonl, .ndjson, .json (one object a line), .csv, each also with .gz behind, or .parquet.
        encoding: of text files, one of `ENCODINGS`.
        progress: called with the bytes of the file read so far.

    Raises:
        InputError: the file is missing, empty, of unknown kind, in another encoding throughout, or
        without header.
    """

    def __init__(self, path: Path, encoding: str = "utf-8", progress: Callable[[int], None] = lambda _: None) -> None:
        self.path = path
        self.columns: tuple[str, ...] = ()
        self.damage: str | None = None
        self.count = 0
        self.replaced = 0
        self._encoding = encoding
        self._progress = progress
        _require_content(path)
        self._kind = _kind(path)
        if self._kind == "parquet":
            self._parquet = _open_parquet(path)
            self.columns = tuple(self._parquet.schema_arrow.names)
            self._require_distinct()
            return
        self._sink = _open_binary(path)
        self._lines = _lines(self._blocks())
        self._probe_encoding()
        if self._kind == "csv":
            self._csv = _CsvLines(self._lines, encoding)
            self._reader = csv.reader(self._csv, strict=True)
            self._read_header()

    def __iter__(self) -> Iterator[Row | Reject]:
        readers = {"parquet": self._parquet_rows, "csv": self._csv_rows, "jsonl": self._json_rows}
        for row in readers[self._kind]():
            self.count += 1
            yield row

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.path.name

    def _blocks(self) -> Iterator[bytes]:
        """Decompressed bytes up to the end, or up to where the compressed stream breaks off."""
        stream: io.BufferedReader | gzip.GzipFile = self._sink
        if self.path.suffix.lower() == ".gz":
            stream = gzip.GzipFile(fileobj=self._sink)
        try:
            while block := stream.read1(_BLOCK):
                self._progress(self._sink.tell())
                yield block
        except EOFError:
            self.damage = "the compressed file breaks off"
        except (gzip.BadGzipFile, zlib.error) as broken:
            self.damage = f"the compressed file is damaged ({broken})"
        finally:
            self._sink.close()

    def _probe_encoding(self) -> None:
        """Refuse a file that is in another encoding throughout; single bad lines are left to the rows."""
        head: list[tuple[int, bytes | _TooLong]] = []
        size = 0
        for numbered in self._lines:
            head.append(numbered)
            size += len(numbered[1])
            if size >= _PROBE:
                break
        if not head:
            raise InputError(f"{self.path}: {self.damage or 'is empty'}; fetch it again")
        first = head[0][1]
        if first[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise InputError(f"{self.path}: is UTF-16; convert it first (iconv -f UTF-16 -t UTF-8)")
        if isinstance(first, bytes):
            head[0] = (1, first.removeprefix(b"\xef\xbb\xbf"))
        if self._kind == "csv" and _shown(head[0][1]).lstrip()[:1] in ("{", "["):
            raise InputError(f"{self.path}: looks like JSON, not CSV; name it .jsonl (one object a line)")
        self._lines = _after(head, self._lines)
        wide = [(number, line) for number, line in head if isinstance(line, bytes) and not line.isascii()]
        broken = [number for number, line in wide if not _decodes(line, self._encoding)]
        if 2 * len(broken) > len(wide):
            other = "gb18030" if self._encoding == "utf-8" else "utf-8"
            fits = all(_decodes(line, other) for _, line in wide)
            hint = f"repeat with --encoding {other}" if fits else "convert it to UTF-8 first"
            raise InputError(f"{self.path}: not {self._encoding.upper()} from row {broken[0]} on; {hint}")

    def _require_distinct(self) -> None:
        twice = next((name for name in self.columns if self.columns.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{self.path}: column {twice!r} stands twice; rename one of them")

    def _read_header(self) -> None:
        csv.field_size_limit(RECORD_LIMIT)
        try:
            header = next(self._reader, [])
        except (csv.Error, RowError) as broken:
            raise InputError(f"{self.path}: the header cannot be read ({broken})") from None
        self.columns = tuple(name.strip() for name in header)
        if not any(self.columns):
            raise InputError(f"{self.path}: has no header; the first line must name the columns")
        self._require_distinct()

    def _csv_rows(self) -> Iterator[Row | Reject]:
        lines, columns = self._csv, self.columns
        while True:
            lines.start_record()
            try:
                cells = next(self._reader, None)
            except (csv.Error, RowError) as broken:
                yield lines.reject(str(broken))
                continue
            if cells is None:
                return
            if len(cells) == len(columns):
                yield Row(lines.first, dict(zip(columns, cells, strict=True)), cells)
            elif cells:
                reason = f"{len(cells)} cells where the header has {len(columns)}"
                yield Reject(lines.first, reason, ",".join(cells))

    def _json_rows(self) -> Iterator[Row | Reject]:
        decoder = json.JSONDecoder(strict=False)
        for number, line in self._lines:
            try:
                text = _decoded(line, self._encoding).strip()
                if not text:
                    continue
                values = decoder.decode(text)
            except RowError as broken:
                yield Reject(number, str(broken), _shown(line))
                continue
            except RecursionError:
                yield Reject(number, "invalid JSON: nested too deeply", _shown(line))
                continue
            except json.JSONDecodeError as broken:
                yield Reject(number, f"invalid JSON: {broken.msg} at character {broken.pos + 1}", text)
                continue
            except ValueError as broken:
                yield Reject(number, f"invalid JSON: {broken}", text)
                continue
            if not isinstance(values, dict):
                yield Reject(number, f"a JSON {_json_type(values)}, not an object", text)
                continue
            if "\\ud" in text or "\\uD" in text:
                values, mended = without_half_pairs(values)
                self.replaced += mended
            yield Row(number, values, text)

    def _parquet_rows(self) -> Iterator[Row | Reject]:
        number = 0
        size = self.path.stat().st_size
        try:
            for batch in self._parquet.iter_batches(batch_size=2048):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(number, values, None)
                self._progress(size * number // max(self._parquet.metadata.num_rows, 1))
        except (pa.ArrowException, OSError) as broken:
            self.damage = f"damaged after row {number} ({_first_line(broken)})"
        except UnicodeDecodeError:
            self.damage = f"damaged after row {number} (text that is not UTF-8)"


class _TooLong(NamedTuple):
    """A line over `RECORD_LIMIT`, of which only the start was kept."""

    head: bytes

    def __len__(self) -> int:
        return len(self.head)

    def __getitem__(self, part: Any) -> Any:
        return self.head[part]


def _lines(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes | _TooLong]]:
    """Numbered lines without their end; a line beyond the limit is dropped while it streams by."""
    parts: list[bytes] = []
    size = 0
    number = 1
    for block in blocks:
        pieces = block.split(b"\n")
        for piece in pieces[:-1]:
            size += len(piece)
            yield number, _TooLong(parts[0][:1000]) if size > RECORD_LIMIT else b"".join((*parts, piece))
            parts, size = [], 0
            number += 1
        size += len(pieces[-1])
        if size <= RECORD_LIMIT:
            parts.append(pieces[-1])
        else:
            parts = parts[:1]
    if size:
        yield number, _TooLong(parts[0][:1000]) if size > RECORD_LIMIT else b"".join(parts)


def _after(
    head: list[tuple[int, bytes | _TooLong]], rest: Iterator[tuple[int, bytes | _TooLong]]
) -> Iterator[tuple[int, bytes | _TooLong]]:
    yield from head
    head.clear()
    yield from rest


class _CsvLines:
    """Lines for `csv.reader`.

    A broken row gives back all but its first line, so that it cannot swallow others.
    """

    def __init__(self, lines: Iterator[tuple[int, bytes | _TooLong]], encoding: str) -> None:
        self._source = lines
        self._encoding = encoding
        self._back: deque[tuple[int, bytes | _TooLong]] = deque()
        self._record: list[tuple[int, bytes | _TooLong]] = []
        self._size = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        numbered = self._back.popleft() if self._back else next(self._source)
        self._record.append(numbered)
        self._size += len(numbered[1])
        if self._size > RECORD_LIMIT:
            raise RowError(f"longer than {RECORD_LIMIT >> 20} MiB")
        return _decoded(numbered[1], self._encoding) + "\n"

    def start_record(self) -> None:
        """The next line begins a row."""
        self._record.clear()
        self._size = 0

    @property
    def first(self) -> int:
        """Number of the line that the present row starts on."""
        return self._record[0][0] if self._record else 0

    def reject(self, reason: str) -> Reject:
        """Set the first line of the present row aside and give the others back."""
        number, line = self._record[0]
        self._back.extendleft(reversed(self._record[1:]))
        if "unexpected end of data" in reason:
            reason = "a quote is opened and never closed"
        return Reject(number, reason, _shown(line))


def _decoded(line: bytes | _TooLong, encoding: str) -> str:
    if isinstance(line, _TooLong):
        raise RowError(f"longer than {RECORD_LIMIT >> 20} MiB")
    try:
        return line.decode(encoding)
    except UnicodeDecodeError as broken:
        raise RowError(f"not {encoding.upper()} (byte 0x{line[broken.start]:02x} at {broken.start + 1})") from None


def _decodes(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _shown(line: bytes | _TooLong) -> str:
    data = line.head if isinstance(line, _TooLong) else line[: 4 * _RAW_KEPT]
    return data.decode("utf-8", "backslashreplace")


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, list):
        return "array"
    return "string" if isinstance(value, str) else "number"


def _first_line(broken: BaseException) -> str:
    return (str(broken).splitlines() or [type(broken).__name__])[0]


def without_half_pairs(value: Any) -> tuple[Any, bool]:
    """A JSON value with lone surrogates, which no UTF-8 can hold, as U+FFFD; and whether it had any."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")), True
    return value, False


def _kind(path: Path) -> str:
    name = path.name.lower()
    packed = name.endswith(".gz")
    kind = _KINDS.get(PurePath(name.removesuffix(".gz")).suffix)
    if kind is None or (packed and kind == "parquet"):
        raise InputError(f"{path}: unknown kind of file; use .jsonl or .csv (.gz may follow) or .parquet")
    return kind


def _require_content(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name the files in it")
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as broken:
        raise InputError(f"{path}: cannot be read ({broken.strerror})") from None
    if not path.is_file():
        raise InputError(f"{path}: not a regular file")
    if size == 0:
        raise InputError(f"{path}: is empty; fetch it again")


def _open_binary(path: Path) -> io.BufferedReader:
    try:
        sink = open(path, "rb")  # noqa: SIM115 - closed by the generator that reads it
    except OSError as broken:
        raise InputError(f"{path}: cannot be read ({broken.strerror})") from None
    zipped = sink.read(2) == b"\x1f\x8b"
    sink.seek(0)
    if zipped != (path.suffix.lower() == ".gz"):
        sink.close()
        raise InputError(
            f"{path}: is gzip-compressed; let its name end in .gz"
            if zipped
            else f"{path}: is not gzip-compressed although its name ends in .gz; rename it or fetch it again"
        )
    return sink


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as broken:
        raise InputError(f"{path}: not a readable parquet file ({_first_line(broken)}); fetch it again") from None


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, first 8 characters."""
    with open(path, "rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()[:8]


def folded(columns: Mapping[str, str], names: Mapping[str, tuple[str, ...]], where: str) -> dict[str, str]:
    """A column mapping given by the user, checked.

    Args:
        columns: field -> column as the user gave it.
        names: the fields there are.
        where: the option's name, for the error text.

    Raises:
        InputError: no such field.
    """
    for field in columns:
        if field not in names:
            raise InputError(f"{where} {field}: no such field; use {', '.join(names)}")
    return dict(columns)


def find_columns(
    present: tuple[str, ...], names: Mapping[str, tuple[str, ...]], given: Mapping[str, str]
) -> dict[str, str]:
    """Which column holds each field: the given one, else the first of its usual names, in any case."""
    lowered = {name.lower(): name for name in reversed(present)}
    found = {}
    for field, usual in names.items():
        if field in given:
            if given[field] in present:
                found[field] = given[field]
            continue
        for name in usual:
            if name in lowered:
                found[field] = lowered[name]
                break
    return found


def require_commas(rows: RowFile, found: Mapping[str, str]) -> None:
    """Raises `InputError` if no column of a file is known since its cells are not separated by commas.

    Args:
        rows: the file.
        found: which column holds each field, as `find_columns` found them.
    """
    if found:
        return
    for separator, shown in ((";", "';'"), ("\t", "a tab")):
        if any(separator in name for name in rows.columns):
            raise InputError(f"{rows.path}: the separator looks like {shown}; use commas")


class Rejects:
    """The rejects file of one import: `<folder>/<kind>-<stem>-<digest>.csv` with file, row, reason and
    raw text.

    Rows are written as they come, under a temporary name; `close` puts the file in place, or removes that
    of an earlier import of the same file if nothing is rejected any more. No cell can run in a
    spreadsheet.
    """

    def __init__(self, folder: Path, kind: str, path: Path) -> None:
        self.count = 0
        self.first: list[Reject] = []
        self._source = path
        self._path = folder / f"{kind}-{path.name.split('.')[0][:80]}-{file_digest(path)}.csv"
        self._temporary = folder / f"{PARTIAL}{os.getpid()}-{uuid.uuid4().hex[:8]}.csv"
        self._sink: IO[str] | None = None

    def add(self, reject: Reject) -> None:
        """Set one row aside."""
        if self._sink is None:
            self._temporary.parent.mkdir(parents=True, exist_ok=True)
            self._sink = open(  # noqa: SIM115 - closed by `close` or `discard`
                self._temporary, "w", encoding="utf-8", errors="backslashreplace", newline=""
            )
            csv.writer(self._sink, lineterminator="\n").writerow(["file", "row", "reason", "raw"])
        self.count += 1
        if len(self.first) < 5:
            self.first.append(reject._replace(raw=""))
        name, reason, raw = (safe_cell(text) for text in (self._source.name, reject.reason, reject.raw[:_RAW_KEPT]))
        csv.writer(self._sink, lineterminator="\n").writerow([name, reject.row, reason, raw])

    def close(self) -> Path | None:
        """Put the file in place. Returns its path, None if nothing was rejected."""
        if self._sink is None:
            self._path.unlink(missing_ok=True)
            return None
        self._sink.flush()
        os.fsync(self._sink.fileno())
        self._sink.close()
        os.replace(self._temporary, self._path)
        return self._path

    def discard(self) -> None:
        """Forget what was set aside (the import as a whole was refused)."""
        if self._sink is not None:
            self._sink.close()
            self._temporary.unlink(missing_ok=True)
