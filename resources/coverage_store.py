"""What is known of each source's days, one file a source: `<root>/crawl/coverage/<source>.json`."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from finevolve_pipeline.errors import FinEvolveError, InputError, SettingsError, TableError
from finevolve_pipeline.files import files_below, write_atomically
from finevolve_pipeline.locks import TakenError
from finevolve_pipeline.news.coverage import SourceCoverage, of_document, to_document
from finevolve_pipeline.news.coverage_table import UNREADABLE, CoverageTable, all_sources, coverage_table
from resources.storage import Storage


class CrawlLockedError(FinEvolveError):
    """A second crawl of a source while another one is under way."""

    exit_code = 3


class CoverageStore:
    """Coverage of all sources below one FINEVOLVE_HOME."""

    def __init__(self, home: Path) -> None:
        self._storage = Storage.of(home)
        self.root = self._storage.root / "crawl"
        self._logs = home / "crawl" / "log"

    def read(self, source: str) -> SourceCoverage:
        """What is known of a source; nothing if it was never asked.

        Raises:
            TableError: the file cannot be read.
        """
        path = self._path(source)
        try:
            return of_document(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return SourceCoverage(source)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as broken:
            raise TableError(
                f"{path}: not readable ({broken}); delete it, the days will be asked for again"
            ) from broken

    def write(self, coverage: SourceCoverage) -> None:
        """Replace what is known of a source. Raises `InputError` if the file cannot be written."""
        text = json.dumps(to_document(coverage), ensure_ascii=False, separators=(",", ":"))
        try:
            write_atomically(self._path(coverage.source), text.encode())
        except OSError as broken:
            raise InputError(f"{self._path(coverage.source)}: cannot be written ({broken.strerror})") from broken

    def sources(self) -> tuple[str, ...]:
        """Sources that were ever asked, sorted."""
        names = files_below(self.root / "coverage")
        return tuple(name.removesuffix(".json") for name in names if name.endswith(".json"))

    def table(
        self,
        configured: Sequence[str],
        counts: Mapping[tuple[str, str], int],
        *,
        only: Sequence[str] = (),
        first: dt.date | None = None,
        last: dt.date | None = None,
    ) -> CoverageTable:
        """What is known of all sources, beside what landed of them.

        A source whose file cannot be read is there in the state `unreadable`, with the reason: it costs the others
        nothing.

        Args:
            configured: sources of the settings; they come first, the others that hold anything follow.
            counts: (source, ISO day) -> articles that landed (`Landing.news_counts`).
            only: these sources; none named: all.
            first, last: days before and after are left out; None: no bound.

        Raises:
            SettingsError: one of `only` is neither configured, nor did anything of it land, nor was it ever asked.
        """
        known = all_sources(configured, (source for source, _ in counts), self.sources())
        for name in only:
            if name not in known:
                raise SettingsError(f"source {name!r}: not among {', '.join(known)}; add it to [news] sources")
        return coverage_table([self.shown(name) for name in only or known], counts, first=first, last=last)

    def shown(self, source: str) -> SourceCoverage:
        """What is known of a source, where several are looked at: a file that cannot be read is the state `unreadable`,
        with the reason, and costs the others nothing."""
        try:
            return self.read(source)
        except TableError as broken:
            return SourceCoverage(source, state=UNREADABLE, reason=str(broken))

    @contextmanager
    def crawling(self, source: str) -> Iterator[None]:
        """Hold a source for one crawl.

        Raises:
            CrawlLockedError: another process crawls it.
            InputError: the folder cannot be written.
        """
        with ExitStack() as holding:
            try:
                holding.enter_context(self._storage.locks.holding(self.root / f".{source}.lock"))
            except TakenError:
                raise CrawlLockedError(f"{source}: another crawl of it is under way; wait until it has ended") from None
            except OSError as broken:
                raise InputError(f"{self.root}: cannot be written ({broken.strerror}); set FINEVOLVE_HOME") from None
            yield

    def log(self, source: str) -> Path:
        """Where the last crawl of a source by this machine told what it did."""
        return self._logs / f"{source}.log"

    def _path(self, source: str) -> Path:
        return self.root / "coverage" / f"{source}.json"
