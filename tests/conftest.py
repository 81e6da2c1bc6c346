"""Fixtures for all tests: where real data lies, and a home of its own for every test that needs one."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from resources.database import Database as Server
from resources.postgres import SPACE
from resources.storage import DATABASE, STORAGE

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "deploy"))

from services import AbsentError, ObjectStore, Postgres, Service  # noqa: E402

Served = TypeVar("Served", bound=Service)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real news and closes; the test is skipped where there is none."""
    folder = Path(os.environ.get("FINEVOLVE_REAL_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no real data here (set FINEVOLVE_REAL_DATA)")
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh FINEVOLVE_HOME, with packaged settings in force."""
    monkeypatch.setenv("FINEVOLVE_HOME", str(tmp_path / "home"))
    for name in ("FINEVOLVE_CONFIG", STORAGE, DATABASE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture(scope="session")
def server_folder() -> Iterator[Path]:
    """Where servers keep their files: unlike pytest's own, a folder that other users may enter."""
    with tempfile.TemporaryDirectory(prefix="finevolve-servers-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="session")
def postgres(server_folder: Path) -> Iterator[Postgres]:
    """A Postgres server; the test is skipped where none is installed."""
    yield from _served(Postgres(server_folder / "postgres"))


@pytest.fixture(scope="session")
def object_server(server_folder: Path) -> Iterator[ObjectStore]:
    """An S3-compatible server with a bucket."""
    yield from _served(ObjectStore(server_folder / "objects"))


def _served(service: Served) -> Iterator[Served]:
    try:
        service.start()
    except AbsentError as absent:
        pytest.skip(str(absent))
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture
def shared(home: Path, postgres: Postgres, object_server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> str:
    """A deployment of its own on object store and Postgres, in force by the environment; its root."""
    root = f"{object_server.url}/{uuid.uuid4().hex[:12]}"
    for name, value in {**object_server.environment, STORAGE: root, DATABASE: postgres.url}.items():
        monkeypatch.setenv(name, value)
    return root


@pytest.fixture(params=["local", "object store"])
def anywhere(request: pytest.FixtureRequest, home: Path) -> Path:
    """A home whose state lies in itself, and then one whose state lies on an object store: the same must hold."""
    if request.param != "local":
        request.getfixturevalue("shared")
    return home


@pytest.fixture
def database(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty database of its own, in force by the environment; its URL."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    server = Server(postgres.url)
    with contextlib.closing(server.connect("tests")) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    url = f"{postgres.url.rpartition('/')[0]}/{name}"
    monkeypatch.setenv(DATABASE, url)
    yield url
    with contextlib.closing(server.connect("tests")) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["SQLite", "Postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose caches and ledger are files in it, and then one whose are tables of Postgres: the same must hold."""
    monkeypatch.delenv(DATABASE, raising=False)
    if request.param == "Postgres":
        request.getfixturevalue("database")
    return tmp_path


@pytest.fixture
def changed() -> Callable[[Path, str], None]:
    """Change one row of a cache behind its back, in Postgres where `kept` lies there, else in the file of that path."""

    def change(file: Path, statement: str) -> None:
        url = os.environ.get(DATABASE)
        if url:
            with contextlib.closing(Server(url).connect("tests")) as connection, connection.cursor() as cursor:
                cursor.execute(f"SET search_path TO {SPACE}; {statement}")
                assert cursor.rowcount == 1
            return
        with contextlib.closing(sqlite3.connect(file)) as connection, connection:
            assert connection.execute(statement).rowcount == 1

    return change
