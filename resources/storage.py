"""Where the state of a deployment lies: in FINEVOLVE_HOME, or where two variables of the environment move it.

    FINEVOLVE_STORAGE   root of all tables, the landing store, the replays, the report and the release, e.g.
                        `s3://bucket/prefix`, or a folder that several machines mount; absent: the home folder
    FINEVOLVE_DATABASE  the Postgres that keeps what several machines must agree on: locks, answers, what was spent

They say where, not what: they are in no digest and no manifest, and the same bytes lie under the same names anywhere.
The home folder stays one of this machine: Dagster's own files, logs, this host's limits.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.locks import FileLocks, Locks

STORAGE = "FINEVOLVE_STORAGE"
DATABASE = "FINEVOLVE_DATABASE"


@dataclass(frozen=True)
class Storage:
    """Where state lies and who may write it.

    Attributes:
        home: FINEVOLVE_HOME, a folder of this machine.
        root: root of what is shared: the home folder, another folder, or a path on an object store.
        locks: of all that lies there.
    """

    home: Path
    root: Path
    locks: Locks

    @classmethod
    def of(cls, home: Path) -> Storage:
        """The storage of a home folder, as the environment says.

        Raises:
            SettingsError: a variable cannot be used, or one is missing.
        """
        return _storage(home, os.environ.get(STORAGE, ""), os.environ.get(DATABASE, ""))

    def shown(self, path: Path) -> str:
        """How a path below the root is named in what is kept, e.g. metadata: where an object store is, is not told."""
        return str(path) if isinstance(self.root, Path) else str(path.relative_to(self.root))


@lru_cache
def _storage(home: Path, where: str, database: str) -> Storage:
    root = _root(where) if where else home
    if database:
        from resources.database import Database
        from resources.postgres_locks import PostgresLocks

        return Storage(home, root, PostgresLocks(Database(database)))
    if not isinstance(root, Path):
        raise SettingsError(
            f"{DATABASE}: not set, but {STORAGE} is an object store, which knows no locks; "
            "write postgresql+psycopg2://USER:PASSWORD@HOST:PORT/NAME"
        )
    return Storage(home, root, FileLocks())


def _root(where: str) -> Path:
    """The root that FINEVOLVE_STORAGE names. A path on an object store is a `UPath`, which behaves like a `Path` in all
    that stores do with it (see `finevolve_pipeline.files`): this is the one place where it is called one."""
    scheme, separator, place = where.partition("://")
    if not separator:
        return Path(where).absolute()
    if scheme != "s3" or not place.strip("/"):
        raise SettingsError(f"{STORAGE}: {scheme}:// is not possible; write s3://BUCKET/PREFIX, or a folder's path")
    try:
        import resources.object_store  # noqa: F401 - makes s3:// known
    except ImportError as absent:
        raise SettingsError(
            f"{STORAGE}: {absent.name} is not installed; pip install 'finevolve-pipeline[server]'"
        ) from None
    from upath import UPath

    return cast(Path, UPath(where.rstrip("/")))
