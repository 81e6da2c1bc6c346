"""Where state lies: the same promises of files and locks on this machine's disk and on object store and Postgres."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ConnectionClosedError
from services import ObjectStore as Server

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.files import (
    UnreadableError,
    create,
    files_below,
    folders_holding,
    looking,
    object_store,
    parquet_bytes,
    parquet_facts,
    read_many,
    read_parquets,
    remove_folder,
    subfolders,
    write_atomically,
    writing_atomically,
)
from finevolve_pipeline.locks import LockLostError, TakenError
from resources.database import Database, DatabaseError
from resources.object_store import ObjectStore, StorageError
from resources.storage import DATABASE, STORAGE, Storage

HOLDER = """
import sys, time
from pathlib import Path
from resources.storage import Storage
storage = Storage.of(Path(sys.argv[1]))
with storage.locks.holding(storage.root / "lock"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def storage(anywhere: Path) -> Storage:
    return Storage.of(anywhere)


def holder(home: Path) -> subprocess.Popen[str]:
    """Another process, once it holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(home)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


# Files


def test_what_was_written_is_read_listed_and_removed(storage):
    written = {"a/one": b"1", "a/b/two": b"22", "c/two": b"333", "top": b""}
    for name, data in written.items():
        write_atomically(storage.root / name, data)
    assert files_below(storage.root) == sorted(written)
    assert read_many([storage.root / name for name in written]) == list(written.values())
    assert subfolders(storage.root) == ["a", "c"]
    assert folders_holding(storage.root, "two") == ["c"]
    remove_folder(storage.root / "a")
    assert files_below(storage.root) == ["c/two", "top"]
    assert not (storage.root / "a" / "one").exists()


def test_what_is_not_there_is_nothing_to_list_and_nothing_to_remove(storage):
    nowhere = storage.root / "nowhere"
    assert (files_below(nowhere), subfolders(nowhere), folders_holding(nowhere, "x")) == ([], [], [])
    remove_folder(nowhere)
    assert not nowhere.exists()
    assert not nowhere.is_dir()
    with pytest.raises(FileNotFoundError):
        nowhere.read_bytes()
    with pytest.raises(FileNotFoundError):
        read_many([nowhere, nowhere])


def test_a_name_that_begins_like_another_is_not_below_it(storage):
    write_atomically(storage.root / "day" / "x", b"1")
    write_atomically(storage.root / "daybreak" / "y", b"2")
    assert files_below(storage.root / "day") == ["x"]
    remove_folder(storage.root / "day")
    assert files_below(storage.root) == ["daybreak/y"]


def test_more_files_than_one_answer_lists(storage, monkeypatch):
    if remote := object_store(storage.root):
        asked = remote.client.list_objects_v2
        monkeypatch.setattr(remote.client, "list_objects_v2", lambda **options: asked(**options, MaxKeys=10))
    names = [f"{number:02}" for number in range(35)]
    for name in names:
        write_atomically(storage.root / "many" / name, name.encode())
    assert files_below(storage.root / "many") == names
    assert read_many([storage.root / "many" / name for name in names]) == [name.encode() for name in names]


def test_of_many_that_create_one_file_one_succeeds_and_its_content_stays(storage):
    path = storage.root / "folder" / "one"
    start = threading.Barrier(8)

    def contend(number: int) -> bool:
        start.wait()
        return create(path, f"{number}".encode())

    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(contend, range(8)))
    assert done.count(True) == 1
    assert path.read_bytes() == f"{done.index(True)}".encode()
    assert files_below(storage.root) == ["folder/one"]


def test_a_block_that_fails_writes_nothing(storage):
    path = storage.root / "kept"
    write_atomically(path, b"before")
    with pytest.raises(TypeError), writing_atomically(path) as sink:
        sink.writelines([b"half", "no bytes"])
    assert path.read_bytes() == b"before"
    assert files_below(storage.root) == ["kept"]


def test_tables_are_read_whole_and_by_column_and_a_damaged_one_is_named_by_its_place(storage):
    schema = pa.schema([("at", pa.timestamp("us", tz="Asia/Shanghai")), ("n", pa.int64())])
    paths = [storage.root / f"{number}.parquet" for number in range(3)]
    for number, path in enumerate(paths):
        table = pa.table({"at": [number], "n": [number]}, schema=schema)
        write_atomically(path, parquet_bytes(table, {"finevolve.digest": str(number)}))
    assert read_parquets(paths, schema, None).to_pydict()["n"] == [0, 1, 2]
    assert read_parquets(paths, schema, None).schema.equals(schema)
    assert read_parquets(paths, schema, ["n"]).column_names == ["n"]
    assert parquet_facts(paths[1]).metadata[b"finevolve.digest"] == b"1"
    paths[1].write_bytes(paths[1].read_bytes()[:-20])
    with pytest.raises(UnreadableError) as broken:
        read_parquets(paths, schema, None)
    assert broken.value.number == 1
    with pytest.raises(pa.ArrowException):
        parquet_facts(paths[1])
    paths[2].unlink()
    with pytest.raises(UnreadableError):
        read_parquets([paths[0], paths[2]], schema, None)


def test_a_footer_longer_than_what_is_fetched_first_is_read_too(storage):
    path = storage.root / "wide.parquet"
    write_atomically(path, parquet_bytes(pa.table({"n": [1]}), {"finevolve.recipe": os.urandom(200_000).hex()}))
    assert len(parquet_facts(path).metadata[b"finevolve.recipe"]) == 400_000
    assert pq.read_table(pa.BufferReader(path.read_bytes())).num_rows == 1


# Locks


def test_a_second_holder_is_refused_and_told_who_holds_it(storage, anywhere):
    path = storage.root / "lock"
    other = holder(anywhere)
    try:
        with pytest.raises(TakenError) as taken, storage.locks.holding(path):
            pass
        assert f"process {other.pid}" in taken.value.owner
        assert storage.locks.owner(path) == taken.value.owner
    finally:
        other.kill()
        other.wait()


def test_a_lock_is_free_when_its_holder_is_killed(storage, anywhere):
    path = storage.root / "lock"
    other = holder(anywhere)
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    with storage.locks.holding(path, patience=10.0) as held:
        held.require()
        assert f"process {os.getpid()}" in (storage.locks.owner(path) or "")
    assert storage.locks.owner(path) is None


def test_a_lock_excludes_its_own_process_and_no_other_path(storage):
    with storage.locks.holding(storage.root / "lock"):
        with pytest.raises(TakenError), storage.locks.holding(storage.root / "lock"):
            pass
        with storage.locks.holding(storage.root / "other"):
            pass
    with storage.locks.holding(storage.root / "lock"):
        pass


def test_one_that_waits_gets_the_lock_when_it_is_given_back(storage):
    path, order = storage.root / "lock", []

    def wait() -> None:
        with storage.locks.holding(path, patience=30.0):
            order.append("second")

    with storage.locks.holding(path):
        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(0.3)
        order.append("first")
    waiting.join(30)
    assert order == ["first", "second"]


def test_a_lock_is_lost_when_postgres_restarts_and_says_so_in_one_line(shared, home, postgres):
    storage = Storage.of(home)
    with storage.locks.holding(storage.root / "lock") as held:
        held.require()
        postgres.restart()
        with pytest.raises(LockLostError, match=r"/lock: the lock was lost.*start again") as lost:
            held.require()
        with storage.locks.holding(storage.root / "lock"), pytest.raises(LockLostError):
            held.require()  # another one has it by now
    assert "\n" not in str(lost.value)


# An object store that refuses


def test_a_store_that_refuses_for_some_seconds_is_ridden_out(shared, home, object_server):
    storage = Storage.of(home)
    path = storage.root / "x"
    write_atomically(path, b"before")
    object_server.refuse(503)
    again = threading.Timer(2.0, object_server.serve)
    again.start()
    try:
        write_atomically(path, b"after")
        object_server.refuse(503)
        threading.Timer(1.0, object_server.serve).start()
        assert path.read_bytes() == b"after"
        assert create(storage.root / "y", b"new")
    finally:
        object_server.serve()


@pytest.mark.slow
def test_a_store_that_refuses_for_a_minute_is_ridden_out(shared, home, object_server):
    path = Storage.of(home).root / "x"
    object_server.refuse(503)
    threading.Timer(60.0, object_server.serve).start()
    began = time.monotonic()
    with ThreadPoolExecutor(16) as writers:
        assert all(writers.map(lambda n: create(path / f"{n}", b"1"), range(16)))
    assert time.monotonic() - began > 50
    assert len(files_below(path)) == 16


def test_a_store_that_refuses_for_longer_than_it_is_waited_for_is_told_in_one_line(shared, object_server):
    object_server.refuse(503)
    try:
        with pytest.raises(StorageError, match=r"bucket/x: the object store did not answer for 0.3 s \(SlowDown"):
            ObjectStore(patience=0.3).cat_file("bucket/x")
    finally:
        object_server.serve()


def test_a_store_that_is_not_there_is_told_in_one_line(shared, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"did not answer for 0.2 s \(EndpointConnectionError\)"):
        ObjectStore(patience=0.2).pipe_file("bucket/x", b"1")


class Asked:
    """Counts what a client of an object store asks."""

    def __init__(self, monkeypatch) -> None:
        self.requests: list[str] = []
        ask = ObjectStore._ask

        def counted(store, path, request):
            self.requests.append(path)
            return ask(store, path, request)

        monkeypatch.setattr(ObjectStore, "_ask", counted)


def table(rows: int) -> bytes:
    return parquet_bytes(pa.table({"x": range(rows)}), {"rows": str(rows)})


def by_another_process(path: Path, data: bytes) -> None:
    """Write past what this one knows of its own writing."""
    if remote := object_store(path):
        remote.pipe_file(path.path, data)
    else:
        path.write_bytes(data)


def test_many_files_are_looked_at_once_each_and_from_an_object_store_without_waiting_for_one_another(
    anywhere, monkeypatch
):
    root = Storage.of(anywhere).root
    for rows in range(1, 6):
        write_atomically(root / "t" / f"{rows}.parquet", table(rows))
    write_atomically(root / "t" / "broken.parquet", b"not a table")
    write_atomically(root / "elsewhere.parquet", table(9))
    asked = Asked(monkeypatch)
    with looking(root / "t"):
        before = len(asked.requests)
        for _ in range(2):
            assert [parquet_facts(root / "t" / f"{rows}.parquet").rows for rows in range(1, 6)] == [1, 2, 3, 4, 5]
            with pytest.raises(FileNotFoundError):
                parquet_facts(root / "t" / "absent.parquet")
        assert len(asked.requests) == before
        with pytest.raises(pa.ArrowInvalid):
            parquet_facts(root / "t" / "broken.parquet")
        with looking(root):
            assert parquet_facts(root / "elsewhere.parquet").rows == 9
        by_another_process(root / "elsewhere.parquet", table(8))
        assert parquet_facts(root / "elsewhere.parquet").rows == 9
        for name in ("elsewhere.parquet", "t/1.parquet", "t/absent.parquet"):
            write_atomically(root / name, table(7))
            assert parquet_facts(root / name).rows == 7
        (root / "t" / "absent.parquet").unlink()
    assert parquet_facts(root / "elsewhere.parquet").rows == 7
    with pytest.raises(FileNotFoundError):
        parquet_facts(root / "t" / "absent.parquet")


def test_a_block_that_ends_badly_has_looked_for_the_last_time(anywhere):
    path = Storage.of(anywhere).root / "t" / "1.parquet"
    write_atomically(path, table(1))

    def fail() -> None:
        with looking(path.parent):
            assert parquet_facts(path).rows == 1
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    write_atomically(path, table(2))
    assert parquet_facts(path).rows == 2


def test_another_server_named_by_the_environment_is_asked_from_then_on(shared, home, monkeypatch, tmp_path):
    root = Storage.of(home).root
    write_atomically(root / "x", b"1")
    other = Server(tmp_path / "other")
    other.start()
    try:
        with monkeypatch.context() as there:
            there.setenv("AWS_ENDPOINT_URL", other.endpoint)
            assert not (root / "x").exists()
            write_atomically(root / "x", b"2")
        assert (root / "x").read_bytes() == b"1"
    finally:
        other.stop()


def test_a_store_that_forbids_is_told_at_once_and_never_taken_for_an_empty_one(shared, home, object_server):
    root = Storage.of(home).root
    write_atomically(root / "x", b"1")
    object_server.refuse(403)
    asked = [
        (root / "x").exists,
        (root / "x").is_file,
        (root / "x").read_bytes,
        lambda: files_below(root),
        lambda: subfolders(root),
        lambda: create(root / "y", b"1"),
        lambda: write_atomically(root / "x", b"2"),
        lambda: remove_folder(root),
    ]
    try:
        for ask in asked:
            with pytest.raises(StorageError, match=r"the object store refuses .*AWS_") as refused:
                ask()
            assert "\n" not in str(refused.value)
    finally:
        object_server.serve()
    assert files_below(root) == ["x"]
    assert (root / "x").read_bytes() == b"1"


def test_a_bucket_that_does_not_exist_is_named(shared):
    with pytest.raises(StorageError, match="s3://nowhere: there is no such bucket"):
        ObjectStore().pipe_file("nowhere/x", b"1")


def test_a_creation_whose_answer_was_lost_counts_as_made(shared, home, monkeypatch):
    store = ObjectStore(lost=True)
    path = f"{shared.removeprefix('s3://')}/once"
    sent = store.client.put_object
    answers = iter([True, False, False])

    def put(**options):
        sent(**options)
        if next(answers):
            raise ConnectionClosedError(endpoint_url="here")

    monkeypatch.setattr(store.client, "put_object", put)
    store.pipe_file(path, b"mine", mode="create")
    assert store.cat_file(path) == b"mine"
    with pytest.raises(FileExistsError):
        store.pipe_file(path, b"mine", mode="create")


# What the environment says


def test_without_variables_state_lies_in_the_home_folder(home):
    assert Storage.of(home).root == home


def test_a_folder_can_be_named(home, tmp_path, monkeypatch):
    monkeypatch.setenv(STORAGE, str(tmp_path / "shared"))
    storage = Storage.of(home)
    assert (storage.home, storage.root) == (home, tmp_path / "shared")


@pytest.mark.parametrize(
    ("where", "database", "said"),
    [
        ("s3://bucket/x", "", "FINEVOLVE_DATABASE: not set"),
        ("s3://", "", "write s3://BUCKET/PREFIX"),
        ("ftp://host/x", "", "ftp:// is not possible"),
        ("", "mysql://u:secret@h/x", "no Postgres"),
        ("", "postgresql+psycopg2://u:secret@h:5432", "without a name"),
        ("", "nonsense", "no URL of a database"),
        ("", "postgresql+psycopg2://u:secret@h:port/x", "no URL of a database"),
        ("", "postgresql+psycopg2://u:a@secret@h:5432/x", "one of @ / % is out of place"),
        ("", "postgresql+psycopg2://u:a@secret/%zz@h:1/x", "one of @ / % is out of place"),
    ],
)
def test_a_variable_that_cannot_be_used_is_told_without_its_password(home, monkeypatch, where, database, said):
    monkeypatch.setenv(STORAGE, where)
    monkeypatch.setenv(DATABASE, database)
    with pytest.raises(SettingsError, match=said) as told:
        Storage.of(home)
    assert "secret" not in str(told.value)


def test_a_database_that_is_not_there_is_told_without_its_password(postgres):
    database = Database("postgresql+psycopg2://me:secret@127.0.0.1:9/x", patience=0.1)
    with pytest.raises(DatabaseError, match=r"database 127.0.0.1:9/x: cannot be reached") as told:
        database.connect("test")
    assert "secret" not in str(told.value)
    assert "secret" not in repr(database)
    absent = Database(postgres.url.replace("/finevolve", "/nowhere"), patience=60.0)
    with pytest.raises(DatabaseError, match="nowhere"):
        absent.connect("test")


def test_the_local_profile_loads_nothing_of_a_server():
    code = (
        "import sys, json\nimport finevolve_pipeline.files, resources.storage\nfrom pathlib import Path\n"
        "resources.storage.Storage.of(Path('home'))\nprint(json.dumps(sorted(sys.modules)))"
    )
    environment = {name: value for name, value in os.environ.items() if name not in (STORAGE, DATABASE)}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True).stdout
    assert not {"boto3", "botocore", "fsspec", "upath", "psycopg2", "sqlalchemy"} & set(json.loads(said))
