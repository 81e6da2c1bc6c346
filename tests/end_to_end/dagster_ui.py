"""A real `dagster dev` (webserver, daemon, code server) on a home folder, and what its UI asks by GraphQL."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

REPOSITORY = Path(__file__).resolve().parents[2]

_READY = (
    "{ workspaceOrError { ... on Workspace { locationEntries { loadStatus locationOrLoadError { __typename } } } } }"
)

_LAUNCH = """
mutation Launch($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}"""

_BACKFILL = """
query Backfill($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill { status error { message } }
  }
}"""

_RUNS = """
query Runs($id: String!) {
  runsOrError(filter: {tags: [{key: "dagster/backfill", value: $id}]}) {
    ... on Runs { results { runId status startTime endTime tags { key value } } }
  }
}"""

_PARTITIONS = """
query Partitions($path: [String!]!) {
  assetNodeOrError(assetKey: {path: $path}) {
    ... on AssetNode {
      partitionStats { numPartitions numMaterialized numFailed numMaterializing }
      partitionKeysByDimension { name partitionKeys }
      assetPartitionStatuses {
        ... on MultiPartitionStatuses {
          ranges {
            primaryDimStartKey
            primaryDimEndKey
            secondaryDim {
              ... on DefaultPartitionStatuses { materializedPartitions failedPartitions materializingPartitions }
            }
          }
        }
      }
    }
  }
}"""

FINISHED = ("COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED")


@dataclass(frozen=True)
class Run:
    """A run of a backfill: its state, the partitions it was started for, and when it ran (seconds of the epoch, 0: not
    yet)."""

    run_id: str
    status: str
    first: str
    last: str
    started: float
    ended: float


@dataclass(frozen=True)
class Statuses:
    """What the asset's partition page shows: keys by colour, `DATE|EXPERIMENT`."""

    materialized: frozenset[str]
    failed: frozenset[str]
    materializing: frozenset[str]
    every: frozenset[str]

    @property
    def due(self) -> list[str]:
        """What the UI's "missing and failed only" chooses."""
        return sorted(self.every - self.materialized)


@dataclass(frozen=True)
class Ui:
    """The UI of a running `dagster dev`."""

    url: str
    log: Path

    def ask(self, query: str, **variables: Any) -> Any:
        """Answer of a GraphQL query."""
        answer = httpx.post(f"{self.url}/graphql", json={"query": query, "variables": variables}, timeout=120)
        document = answer.raise_for_status().json()
        assert "errors" not in document, document["errors"]
        return document["data"]

    def backfill(self, asset: str, keys: Sequence[str]) -> str:
        """Launch a backfill of an asset's partitions; its id."""
        params = {"assetSelection": [{"path": [asset]}], "partitionNames": list(keys)}
        found = self.ask(_LAUNCH, params=params)["launchPartitionBackfill"]
        assert found["__typename"] == "LaunchBackfillSuccess", found
        return str(found["backfillId"])

    def status(self, backfill: str) -> str:
        """Status of a backfill."""
        return str(self.ask(_BACKFILL, id=backfill)["partitionBackfillOrError"]["status"])

    def finished(self, backfill: str, seconds: float) -> str:
        """Status that a backfill ends with."""
        self.wait(f"backfill {backfill} to end", seconds, lambda: self.status(backfill) in FINISHED)
        return self.status(backfill)

    def runs(self, backfill: str) -> list[Run]:
        """Runs of a backfill, by their partitions."""
        found = self.ask(_RUNS, id=backfill)["runsOrError"]["results"]
        tags = {run["runId"]: {tag["key"]: tag["value"] for tag in run["tags"]} for run in found}
        return sorted(
            (
                Run(
                    run["runId"],
                    run["status"],
                    *(tags[run["runId"]][f"dagster/asset_partition_range_{end}"] for end in ("start", "end")),
                    *(run[time] or 0.0 for time in ("startTime", "endTime")),
                )
                for run in found
            ),
            key=lambda run: (run.first.split("|")[1], run.first),
        )

    def partitions(self, asset: str) -> Statuses:
        """Partitions of a date x experiment asset by colour. Counts and ranges of the UI must agree."""
        node = self.ask(_PARTITIONS, path=[asset])["assetNodeOrError"]
        dimensions = {item["name"]: item["partitionKeys"] for item in node["partitionKeysByDimension"]}
        dates, experiments = dimensions["date"], dimensions["experiment"]
        by_colour: dict[str, set[str]] = {"materialized": set(), "failed": set(), "materializing": set()}
        for found in node["assetPartitionStatuses"]["ranges"]:
            first, last = dates.index(found["primaryDimStartKey"]), dates.index(found["primaryDimEndKey"])
            for colour, keys in by_colour.items():
                for experiment in found["secondaryDim"][f"{colour}Partitions"]:
                    keys.update(f"{date}|{experiment}" for date in dates[first : last + 1])
        stats = node["partitionStats"]
        assert stats["numMaterialized"] == len(by_colour["materialized"])
        assert stats["numFailed"] == len(by_colour["failed"])
        every = frozenset(f"{date}|{experiment}" for date in dates for experiment in experiments)
        assert stats["numPartitions"] == len(every)
        return Statuses(*(frozenset(keys) for keys in by_colour.values()), every)

    def wait(self, what: str, seconds: float, until: Callable[[], bool]) -> None:
        """Ask `until` again and again."""
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, f"no {what} in {seconds:.0f} s; log:\n{self.tail()}"
            time.sleep(0.5)

    def tail(self) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-60:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def dagster_dev(home: Path, config: Path, log: Path) -> Iterator[Ui]:
    """`dagster dev` on the instance in `<home>/dagster`, from a process group of its own that ends with the block."""
    port = _free_port()
    variables = {"FINEVOLVE_HOME": home, "FINEVOLVE_CONFIG": config, "DAGSTER_HOME": home / "dagster"}
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    with open(log, "wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**os.environ, **{name: str(value) for name, value in variables.items()}},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    ui = Ui(f"http://127.0.0.1:{port}", log)
    try:
        ui.wait("answer of the UI", 180, lambda: _is_ready(ui, process))
        yield ui
    finally:
        _end(process)


def _is_ready(ui: Ui, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, f"`dagster dev` ended with {process.returncode}; log:\n{ui.tail()}"
    try:
        entries = ui.ask(_READY)["workspaceOrError"].get("locationEntries", [])
    except (httpx.TransportError, httpx.HTTPStatusError):
        return False
    loaded = [entry["locationOrLoadError"] for entry in entries if entry["loadStatus"] == "LOADED"]
    assert all(found["__typename"] == "RepositoryLocation" for found in loaded), ui.tail()
    return bool(loaded)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.send_signal(signal.SIGINT)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=30)
