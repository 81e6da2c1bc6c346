"""An S3-compatible object store as an fsspec file system, which `s3://` paths of `universal_pathlib` stand on.

What lives here: requests, how long a store that is away is waited for, and how a refusal is told. Nothing is remembered
between two questions: another machine may have written. A write is one request, so it is there as a whole or not at
all; `mode="create"` writes only where nothing is, as the store itself decides (`If-None-Match: *`).
"""

from __future__ import annotations

import errno
import io
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import boto3
import fsspec
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ResponseStreamingError,
)
from fsspec.spec import AbstractFileSystem

from finevolve_pipeline.errors import FinEvolveError

PATIENCE = 120.0
"""Seconds for which a store that does not answer, or is too busy, is asked again."""

_AT_ONCE = 16
_CONNECT_SECONDS, _READ_SECONDS = 5, 30
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_SERVER = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_PROFILE")
_ABSENT = {"404", "NoSuchKey", "NotFound"}
_BUSY = {"429", "SlowDown", "RequestTimeout", "RequestTimeTooSkewed", "ConditionalRequestConflict", "Throttling"}
_AWAY = (ConnectionError, HTTPClientError, IncompleteReadError, ResponseStreamingError)

_Answer = TypeVar("_Answer")


class StorageError(FinEvolveError):
    """An object store that refuses, or does not answer. What was being written is not there in part."""

    exit_code = 1


class ObjectStore(AbstractFileSystem):  # type: ignore[misc]
    """Objects of S3-compatible stores by `bucket/key`. Endpoint and keys come from the usual AWS_* variables.

    Args:
        patience: seconds for which a store that is away is asked again.
    """

    protocol = ("s3", "s3a")
    root_marker = ""

    def __init__(self, patience: float = PATIENCE, **options: Any) -> None:
        super().__init__(**{**options, "use_listings_cache": False})
        self.patience = patience
        self._client: Any = None
        self._client_of: tuple[object, ...] = ()

    @property
    def client(self) -> Any:
        """The connection pool of this process to the server in force; a forked child makes its own.

        fsspec keeps one `ObjectStore` for a process, while the environment may come to name another server.
        """
        of = (os.getpid(), *map(os.environ.get, _SERVER))
        if self._client_of != of:
            config = Config(
                connect_timeout=_CONNECT_SECONDS,
                read_timeout=_READ_SECONDS,
                max_pool_connections=2 * _AT_ONCE,
                retries={"total_max_attempts": 1, "mode": "standard"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            )
            self._client = boto3.session.Session().client("s3", config=config)
            self._client_of = of
        return self._client

    # Questions

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, size and type of an object, or of a folder: a prefix that has objects."""
        path = self._strip_protocol(path)
        bucket, key = _parts(path)
        if key:
            try:
                found = self._ask(path, lambda: self.client.head_object(Bucket=bucket, Key=key))
                return {"name": path, "size": found["ContentLength"], "type": "file"}
            except FileNotFoundError:
                pass
        if not next(self._pages(path, MaxKeys=1)).get("KeyCount"):
            raise _absent(path)
        return {"name": path, "size": 0, "type": "directory"}

    def exists(self, path: str, **_: Any) -> bool:
        """Whether there is an object or folder. Unlike fsspec's own, a store that refuses is not taken for a no."""
        return self._type(path) is not None

    def isfile(self, path: str) -> bool:
        """Whether there is an object of that name."""
        return self._type(path) == "file"

    def isdir(self, path: str) -> bool:
        """Whether there are objects below that name."""
        return self._type(path) == "directory"

    def _type(self, path: str) -> str | None:
        try:
            return str(self.info(path)["type"])
        except FileNotFoundError:
            return None

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Objects and folders directly below a name."""
        path = self._strip_protocol(path)
        bucket, _key = _parts(path)
        entries: list[dict[str, Any]] = []
        for page in self._pages(path, Delimiter="/"):
            entries += [_entry(bucket, found) for found in page.get("Contents", ())]
            entries += [
                {"name": f"{bucket}/{found['Prefix'].rstrip('/')}", "size": 0, "type": "directory"}
                for found in page.get("CommonPrefixes", ())
            ]
        if not entries:
            entries = [self.info(path)]
        return entries if detail else [entry["name"] for entry in entries]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        """All objects below a name, by as few requests as there are thousands of them."""
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        path = self._strip_protocol(path)
        bucket, _key = _parts(path)
        entries = [_entry(bucket, found) for page in self._pages(path) for found in page.get("Contents", ())]
        return {entry["name"]: entry for entry in entries} if detail else [entry["name"] for entry in entries]

    def _pages(self, path: str, **options: Any) -> Iterator[dict[str, Any]]:
        bucket, key = _parts(path)
        options |= {"Bucket": bucket, "Prefix": f"{key}/" if key else ""}
        while True:
            page = self._ask(path, lambda: self.client.list_objects_v2(**options))
            yield page
            if not page.get("IsTruncated"):
                return
            options["ContinuationToken"] = page["NextContinuationToken"]

    # Reading

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """The bytes of an object, or of a part of it."""
        path = self._strip_protocol(path)
        bucket, key = _parts(path)
        options = {"Bucket": bucket, "Key": key}
        if start is not None or end is not None:
            since = start or 0
            options["Range"] = f"bytes={since}" if since < 0 else f"bytes={since}-{'' if end is None else end - 1}"

        def get() -> bytes:
            return bytes(self.client.get_object(**options)["Body"].read())

        return self._ask(path, get)

    def ending(self, path: str, size: int) -> tuple[bytes, int]:
        """The last bytes of an object, all of them if it is smaller; and how many it has in all."""
        path = self._strip_protocol(path)
        bucket, key = _parts(path)

        def get() -> tuple[bytes, int]:
            found = self.client.get_object(Bucket=bucket, Key=key, Range=f"bytes=-{size}")
            data = bytes(found["Body"].read())
            return data, int(found.get("ContentRange", f"/{len(data)}").rpartition("/")[2])

        return self._ask(path, get)

    def endings(self, paths: Sequence[str], size: int) -> list[tuple[bytes, int]]:
        """`ending` of several objects, fetched at once."""
        return self._each(lambda path: self.ending(path, size), paths)

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any) -> Any:
        """The bytes of one object, or of several by name, which are fetched at once."""
        if isinstance(path, str) or recursive or on_error != "raise":
            return super().cat(path, recursive=recursive, on_error=on_error, **options)
        names = [self._strip_protocol(name) for name in path]
        return dict(zip(names, self._each(self.cat_file, names), strict=True))

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode == "rb":
            return io.BytesIO(self.cat_file(path))
        if mode not in ("wb", "xb"):
            raise ValueError(f"{path}: mode {mode!r} is not possible on an object store; use rb, wb or xb")
        return _Upload(lambda data: self.pipe_file(path, data, mode="create" if mode == "xb" else "overwrite"))

    # Writing

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Write an object in one request; with `mode="create"` only where none is, else `FileExistsError`."""
        path = self._strip_protocol(path)
        bucket, key = _parts(path)
        options: dict[str, Any] = {"Bucket": bucket, "Key": key, "Body": value}
        if mode == "create":
            options["IfNoneMatch"] = "*"
        asked = 0

        def put() -> None:
            nonlocal asked
            asked += 1
            self.client.put_object(**options)

        try:
            self._ask(path, put)
        except FileExistsError:
            # An earlier attempt may have been done although its answer was lost.
            if asked == 1 or self.cat_file(path) != value:
                raise

    def rm_file(self, path: str) -> None:
        """Remove an object; nothing if there is none."""
        path = self._strip_protocol(path)
        bucket, key = _parts(path)
        self._ask(path, lambda: self.client.delete_object(Bucket=bucket, Key=key))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove objects, or with `recursive` all that is below names."""
        given = [path] if isinstance(path, str) else list(path)
        names = [name for one in given for name in self.find(one)] if recursive else given
        self._each(self.rm_file, names)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Nothing: folders are what objects are named by."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Nothing: folders are what objects are named by."""

    def rmdir(self, path: str) -> None:
        """Nothing: folders are what objects are named by."""

    # Asking

    def _each(self, task: Callable[[str], _Answer], names: Sequence[str]) -> list[_Answer]:
        if len(names) < 2:
            return [task(name) for name in names]
        with ThreadPoolExecutor(min(_AT_ONCE, len(names))) as workers:
            return list(workers.map(task, names))

    def _ask(self, path: str, request: Callable[[], _Answer]) -> _Answer:
        """The answer to a request, asked again while the store is away or busy."""
        end, pause = time.monotonic() + self.patience, _FIRST_PAUSE
        while True:
            try:
                return request()
            except _AWAY as away:
                said = type(away).__name__
            except ClientError as refused:
                code = str(refused.response.get("Error", {}).get("Code", ""))
                status = int(refused.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
                if status < 500 and code not in _BUSY:
                    raise _refused(path, code, status) from None
                said = f"{code}, HTTP {status}"
            except (NoCredentialsError, PartialCredentialsError):
                raise StorageError(
                    f"s3://{path}: no keys for the object store; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                ) from None
            if time.monotonic() + pause > end:
                raise StorageError(
                    f"s3://{path}: the object store did not answer for {self.patience:g} s ({said}); see that it runs, "
                    "then start again: what was finished is kept"
                )
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)


class _Upload(io.BytesIO):
    """A file that is written when it is closed, unless an exception closes it."""

    def __init__(self, store: Callable[[bytes], None]) -> None:
        super().__init__()
        self._store = store

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            super().close()
        self.close()

    def close(self) -> None:
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._store(data)


def _parts(path: str) -> tuple[str, str]:
    bucket, _, key = path.partition("/")
    return bucket, key


def _entry(bucket: str, found: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"{bucket}/{found['Key']}", "size": found["Size"], "type": "file"}


def _absent(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"s3://{path}")


def _refused(path: str, code: str, status: int) -> Exception:
    if code == "NoSuchBucket":
        bucket = _parts(path)[0]
        return StorageError(f"s3://{bucket}: there is no such bucket; make it, or correct FINEVOLVE_STORAGE")
    if code in _ABSENT or status == 404:
        return _absent(path)
    if status == 412:
        return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"s3://{path}")
    return StorageError(
        f"s3://{path}: the object store refuses ({code}, HTTP {status}); see to the rights of the keys in AWS_*"
    )


fsspec.register_implementation("s3", ObjectStore, clobber=True)
fsspec.register_implementation("s3a", ObjectStore, clobber=True)
