"""The one Postgres that several machines share: connections to it, and how its absence is told, without a password."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from finevolve_pipeline.errors import FinEvolveError, SettingsError

if TYPE_CHECKING:
    import psycopg2.extensions
    import sqlalchemy

PATIENCE = 60.0
"""Seconds for which a server that cannot be reached is tried again: as long as a restart takes, and more."""

_ALIVE = {"keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 50_000}
"""How soon one end of a connection notices that the other's machine is gone: after about 50 seconds, whether it was
waiting or had just said something (milliseconds)."""

_SERVER_ALIVE = " ".join(
    f"-c {name if name.startswith('tcp_') else f'tcp_{name}'}={value}" for name, value in _ALIVE.items()
)
_LOOK_SECONDS = 0.5
_PASSING = ("08", "57P", "53")
"""SQLSTATE classes of what passes: no connection, a server that starts or stops, too many clients."""


class DatabaseError(FinEvolveError):
    """The database cannot be reached, or broke off."""

    exit_code = 1


@dataclass(frozen=True)
class Database:
    """A Postgres database.

    Attributes:
        url: `postgresql+psycopg2://user:password@host:port/name`.
        patience: seconds for which a server that cannot be reached is tried again.
    """

    url: str
    patience: float = PATIENCE

    def __post_init__(self) -> None:
        self._parsed()

    def __repr__(self) -> str:
        return f"Database({self.place})"

    @property
    def place(self) -> str:
        """Where it is, without user and password."""
        url = self._parsed()
        return f"{url.host or 'localhost'}:{url.port or 5432}/{url.database or ''}"

    def connect(self, name: str) -> psycopg2.extensions.connection:
        """A connection of its own, each statement committed at once; both ends notice when the other's machine is gone.

        Args:
            name: of who connects, for people who look at `pg_stat_activity`; at most 63 bytes are kept.

        Raises:
            DatabaseError: the server cannot be reached, or refuses.
        """
        import psycopg2

        end = time.monotonic() + self.patience
        while True:
            try:
                connection = psycopg2.connect(**self._arguments(), application_name=name)
                connection.autocommit = True
                return connection
            except psycopg2.OperationalError as refused:
                said = " ".join(str(refused).split())
                if not _passes(refused) or time.monotonic() + _LOOK_SECONDS > end:
                    raise DatabaseError(
                        f"database {self.place}: cannot be reached ({said}); see that it runs and that "
                        "FINEVOLVE_DATABASE is right"
                    ) from None
            time.sleep(_LOOK_SECONDS)

    def engine(self) -> sqlalchemy.Engine:
        """The pool of connections that this process shares."""
        return _engine(self.url)

    def _arguments(self) -> dict[str, Any]:
        url = self._parsed()
        known = {"host": url.host, "port": url.port, "user": url.username, "password": url.password}
        given = {name: value for name, value in known.items() if value is not None}
        options: dict[str, Any] = {"connect_timeout": 5, "keepalives": 1, **_ALIVE, **url.query}
        options["options"] = f"{options.get('options', '')} {_SERVER_ALIVE}".strip()
        return {**given, "dbname": url.database, **options}

    def _parsed(self) -> sqlalchemy.URL:
        try:
            import psycopg2  # noqa: F401 - the driver that the URL names
            import sqlalchemy
        except ImportError as absent:
            raise SettingsError(
                f"FINEVOLVE_DATABASE: {absent.name} is not installed; pip install 'finevolve-pipeline[server]'"
            ) from None
        try:
            url = sqlalchemy.make_url(self.url)
        except (sqlalchemy.exc.ArgumentError, ValueError):
            raise SettingsError(f"FINEVOLVE_DATABASE: no URL of a database; {_EXAMPLE}") from None
        if any(mark in f"{url.host}{url.database}" for mark in "@/%"):
            # Nobody may be shown where such a URL leads: a part of the password may stand there.
            raise SettingsError(
                "FINEVOLVE_DATABASE: one of @ / % is out of place; in user and password write %40 %2F %25 for them"
            )
        if url.drivername not in ("postgresql", "postgresql+psycopg2") or not url.database:
            raise SettingsError(f"FINEVOLVE_DATABASE: {url.drivername} without a name, or no Postgres; {_EXAMPLE}")
        return url


_EXAMPLE = "write postgresql+psycopg2://USER:PASSWORD@HOST:PORT/NAME"


@lru_cache
def _engine(url: str) -> sqlalchemy.Engine:
    import sqlalchemy

    arguments = Database(url)._arguments()
    return sqlalchemy.create_engine(
        sqlalchemy.URL.create("postgresql+psycopg2"), connect_args=arguments, pool_pre_ping=True
    )


def _passes(refused: Any) -> bool:
    """Whether a refused connection may be given later: only a server that answered and said no is final."""
    code = refused.pgcode or ""
    said = str(refused)
    final = ("password authentication failed", "does not exist", "no pg_hba.conf entry", "translate host name")
    return code.startswith(_PASSING) if code else not any(text in said for text in final)
