"""Bundles: what is packed verifies; whatever is changed in one is refused with a line that says what is wrong, however
much the forger has made fit; and what only own data can show is never claimed without."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from bundle_world import (
    HORIZONS,
    bound,
    packed,
    recomputed,
    resealed_days,
    sealed,
    verified,
    with_rows,
    with_run,
    world_settings,
)

from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.errors import CacheMissError, FinEvolveError
from finevolve_pipeline.evaluation.bundle import archive as archives
from finevolve_pipeline.evaluation.bundle.archive import BundleError, read_archive, tar_bytes, write_archive
from finevolve_pipeline.evaluation.bundle.content import Content, Run, read_content
from finevolve_pipeline.evaluation.bundle.figures import figures_code, labels_of
from finevolve_pipeline.evaluation.bundle.gather import Facts, invalid_kind, pack
from finevolve_pipeline.evaluation.bundle.own import OwnChecker, OwnData
from finevolve_pipeline.evaluation.bundle.verify import LABELS, PROMPTS, REPEATED, SELF_CONSISTENT
from finevolve_pipeline.llm.stand_in import StandIn
from finevolve_pipeline.universe import BENCHMARK

PIPE, MEMRL, REFLEXION = 0, 1, 2
PIPES_MEMORY = {"session": "2025-01-02", "phase": "append", "memory_id": "2025-01-02/801010"}

Members = dict[str, bytes]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Content, OwnData]:
    return packed(tmp_path_factory.mktemp("bundle-world"))


@pytest.fixture(scope="module")
def content(world: tuple[Content, OwnData]) -> Content:
    return world[0]


@pytest.fixture(scope="module")
def own(world: tuple[Content, OwnData]) -> OwnData:
    return world[1]


@pytest.fixture
def members(content: Content) -> Members:
    return content.members()


def refusals(members: Members, **how: object) -> dict[str, str]:
    """Failed checks and what they say."""
    return {check.name: check.detail for check in verified(members, **how).failures}


# -- what is sound ---------------------------------------------------------------------------------------------------


def test_a_packed_bundle_verifies_and_says_that_it_was_not_compared_with_own_data(members: Members) -> None:
    found = verified(members)
    assert found.failures == ()
    assert found.level == SELF_CONSISTENT
    assert {check.name: check.status for check in found.checks}["own closes"] == "not run"


def test_a_bundle_is_read_back_as_it_was_packed(content: Content, members: Members) -> None:
    again = read_content(members)
    assert again.header == content.header
    assert again.members() == members
    pd.testing.assert_frame_equal(again.runs[MEMRL].rows["retrievals"], content.runs[MEMRL].rows["retrievals"])


def test_own_closes_news_and_answers_raise_the_level_to_the_highest(members: Members, own: OwnData) -> None:
    assert verified(members, own, "closes").level == LABELS
    assert verified(members, own, "all").level == REPEATED


class _Silent(StandIn):
    """A model whose answers are in nobody's cache."""

    async def answer(self, call):
        raise CacheMissError("unused: a model that is no lexicon is only recalled")

    def recall(self, call):
        return None


def silent(own: OwnData) -> OwnData:
    """The same news and closes without the answers."""

    def parts(experiment):
        made = own.parts(experiment)
        return replace(made, backbone=_Silent(made.backbone))

    return OwnData(own.reader, parts)


def test_without_answers_prompts_are_written_again_as_far_as_they_show_no_experience(
    members: Members, own: OwnData
) -> None:
    checks = {check.name: check for check in verified(members, silent(own), "all").checks}
    assert checks["own run pipe-rules"].status == "not run"
    assert "finevolve cache import" in checks["own run pipe-rules"].detail
    assert checks["own prompts pipe-rules"].status == "ok"
    assert checks["own prompts pipe-rules"].detail == "all 341 prompts are those of this home's news"
    assert checks["own prompts memrl-rules"].status == "not run"
    assert checks["own prompts memrl-rules"].detail.startswith("31 of 341 prompts are those of this home's news")


def test_prompts_without_answers_are_the_third_level_where_no_run_shows_experience(
    content: Content, own: OwnData
) -> None:
    alone = replace(
        content, runs=content.runs[:1], header=content.header.model_copy(update={"runs": content.header.runs[:1]})
    )
    assert verified(recomputed(alone).members(), silent(own), "all").level == PROMPTS


def test_other_news_of_ones_own_say_nothing_about_a_bundle(members: Members, own: OwnData) -> None:
    class OtherNews:
        read = staticmethod(own.reader.read)

        @staticmethod
        def digest(table: str, partition: str) -> str | None:
            return "other" if table == "news_window" else own.reader.digest(table, partition)

    found = verified(members, OwnData(OtherNews(), own.parts), "all")
    assert found.level == LABELS
    told = {check.name: check.detail for check in found.checks if check.status == "not run"}
    assert told["own run pipe-rules"] == "rests on another news_window of 2025-01-02 than this home has"


# -- one member changed, checksums repaired ---------------------------------------------------------------------------


def edited(name: str, old: str, new: str) -> Callable[[Members], Members]:
    """A member with the first occurrence of a text replaced."""

    def change(members: Members) -> Members:
        text = members[name].decode()
        assert old in text, (name, old)
        return {**members, name: text.replace(old, new, 1).encode()}

    return change


def without(name: str) -> Callable[[Members], Members]:
    return lambda members: {key: data for key, data in members.items() if key != name}


def lines_swapped(name: str, first: int, second: int) -> Callable[[Members], Members]:
    def change(members: Members) -> Members:
        lines = members[name].decode().splitlines(keepends=True)
        lines[first], lines[second] = lines[second], lines[first]
        return {**members, name: "".join(lines).encode()}

    return change


def line_dropped(name: str, at: int) -> Callable[[Members], Members]:
    def change(members: Members) -> Members:
        lines = members[name].decode().splitlines(keepends=True)
        del lines[at]
        return {**members, name: "".join(lines).encode()}

    return change


def line_doubled(name: str, at: int) -> Callable[[Members], Members]:
    def change(members: Members) -> Members:
        lines = members[name].decode().splitlines(keepends=True)
        lines.insert(at, lines[at])
        return {**members, name: "".join(lines).encode()}

    return change


def field_changed(name: str, row: int, column: int, value: str) -> Callable[[Members], Members]:
    def change(members: Members) -> Members:
        lines = members[name].decode().splitlines()
        cells = lines[row].split(",")
        cells[column] = value
        lines[row] = ",".join(cells)
        return {**members, name: ("\n".join(lines) + "\n").encode()}

    return change


def members_swapped(first: str, second: str) -> Callable[[Members], Members]:
    return lambda members: {**members, first: members[second], second: members[first]}


P = "runs/2/predictions.csv"
MEMBER_FORGERIES = [
    ("a score changed", field_changed(P, 5, 3, "0.123"), "chain", "memrl-rules 2025-01-02: its rows are not those"),
    ("a score of NaN", field_changed(P, 5, 3, "nan"), "contents", f"{P}: row 5: score 'nan' is no value"),
    ("an infinite score", field_changed(P, 5, 3, "inf"), "contents", f"{P}: row 5: score 'inf' is no value"),
    ("a score out of range", field_changed(P, 5, 3, "1.5"), "contents", f"{P}: row 5: score '1.5' is no value"),
    (
        "a score in other digits",
        field_changed(P, 5, 3, "0.50"),
        "contents",
        "score '0.50' is not written as it must be, '0.5'",
    ),
    ("a sentence in a field", field_changed(P, 5, 4, "利好"), "contents", "invalid '利好' is no value"),
    ("an unknown industry", field_changed(P, 5, 1, "999999"), "contents", "is out of order"),
    ("rows reordered", lines_swapped(P, 4, 5), "contents", "is out of order"),
    ("a row twice", line_doubled(P, 4), "contents", "stands there twice"),
    ("a row removed", line_dropped(P, 4), "rows", "memrl-rules: 2025-01-02 801030 2 stands where"),
    ("a day removed", line_dropped("runs/2/days.jsonl", 3), "chain", "2025-01-08 stands where 2025-01-07 must"),
    ("days reordered", lines_swapped("runs/2/days.jsonl", 3, 4), "chain", "2025-01-08 stands where 2025-01-07 must"),
    ("a broken line", edited("runs/2/days.jsonl", '"parent"', '"parental"'), "contents", "line 1 is no manifest"),
    ("a day's count changed", edited("runs/2/days.jsonl", '"invalid":0', '"invalid":9'), "chain", "its own digest"),
    ("runs swapped", members_swapped("runs/2/days.jsonl", "runs/3/days.jsonl"), "chain", "is a day of reflexion"),
    ("rows of another run", members_swapped(P, "runs/3/predictions.csv"), "chain", "its rows are not those"),
    ("a close changed", field_changed("closes.csv", 9, 2, "777.5"), "labels", "the labels that follow from the closes"),
    ("a close of zero", field_changed("closes.csv", 9, 2, "0.0"), "contents", "close '0.0' is no value"),
    ("a close removed", line_dropped("closes.csv", 9), "labels", "the labels that follow from the closes are not"),
    ("a claimed figure", field_changed("figures/ic_matrix.csv", 7, 8, "0.9"), "figures", "ic_matrix: row 7"),
    ("a claimed gain", field_changed("figures/comparison.csv", 40, 8, "0.9"), "figures", "gain is said to be 0.9"),
    ("a claimed p", field_changed("figures/inference.csv", 9, 12, "0.0001"), "figures", "p is said to be 0.0001"),
    (
        "labels of another base",
        edited("manifest.json", '"close_t"', '"open_next"'),
        "window",
        "its labels are said to be over open_next; bundles have close_t",
    ),
    (
        "an interval that no test reaches",
        edited("manifest.json", '"confidence": 0.95', '"confidence": 0.9999999999999999'),
        "contents",
        "manifest.json: evaluation.confidence: Input should be less than or equal to 0.9999",
    ),
    (
        "endless inference",
        edited("manifest.json", '_draws": 100', '_draws": 9999999'),
        "window",
        "more than 20000 draws",
    ),
    ("a claimed row removed", line_dropped("figures/comparison.csv", 3), "figures", "has 143 rows, 144 follow"),
    ("an absent figure", without("figures/comparison.csv"), "contents", "figures/comparison.csv: is missing"),
    ("a file added", lambda m: {**m, "runs/4/notes.txt": b"hi"}, "contents", "runs/4/notes.txt: is no part"),
    ("a file removed", without("runs/3/evidence.csv"), "contents", "runs/3/evidence.csv: is missing"),
    ("no manifest", without("manifest.json"), "contents", "manifest.json: is missing"),
    ("the window moved", edited("manifest.json", '"2025-01-02"', '"2025-01-03"'), "rows", "stands where"),
    ("a window on a holiday", edited("manifest.json", '"2025-01-02"', '"2025-01-01"'), "window", "2025-01-01 is no"),
    (
        "a window of the far future",
        edited("manifest.json", '"2025-01-02"', '"2099-01-02"'),
        "window",
        "beyond the XSHG",
    ),
    ("a horizon of zero", edited("manifest.json", "  1,\n  2,", "  0,\n  2,"), "window", "horizons [0, 2, 4]"),
    ("an industry dropped", edited("manifest.json", '  "801010",\n', ""), "rows", "stands where"),
    ("another licence", edited("manifest.json", "Predictions, digests", "All rights"), "window", "the licence note"),
    ("a name that moves the cursor", edited("manifest.json", '"a submitter"', '"\\u001b[2J"'), "window", "cannot be"),
    ("a secret key", edited("manifest.json", '"cache"', '"key": 1,\n "cache"'), "contents", "manifest.json: key"),
    ("another format", edited("manifest.json", "finevolve-bundle", "bundle"), "contents", "is not the manifest"),
    (
        "a later version",
        edited("manifest.json", '"version": 1', '"version": 2'),
        "contents",
        "version '2', this program",
    ),
    (
        "a hidden byte",
        edited("manifest.json", "{\n", "{ \n"),
        "contents",
        "manifest.json: is not written as it must be, line 1: '{ ' where '{' must stand",
    ),
    (
        "a manifest in one line",
        lambda m: {**m, "manifest.json": json.dumps(json.loads(m["manifest.json"])).encode()},
        "contents",
        'manifest.json: is not written as it must be, line 1: \'{"cache": ',
    ),
    (
        "a line more",
        lambda m: {**m, "manifest.json": m["manifest.json"] + b"\n"},
        "contents",
        "stands behind its end",
    ),
    (
        "a blank in a day",
        edited("runs/2/days.jsonl", '"parent":', '"parent": '),
        "contents",
        """runs/2/days.jsonl: line 1 is not written as it must be, ' """,
    ),
    ("a source that is a sentence", field_changed("news.csv", 1, 1, "某公司大涨"), "contents", "is no value of that"),
    ("news of no day", field_changed("news.csv", 1, 0, "2025-02-30"), "news", "2025-02-30"),
    ("another head", edited("manifest.json", '"head": "', '"head": "0'), "chain", "its chain ends elsewhere"),
    ("other settings", edited("manifest.json", '"learning_rate": 0.3', '"learning_rate": 0.4'), "chain", "settings or"),
    ("other news", edited("manifest.json", '"news": "', '"news": "0'), "settings", "the dataset's digest is not"),
    ("an unknown column", edited(P, "session,code", "session,sector"), "contents", "has other columns than"),
    ("a table cut off", lambda m: {**m, P: m[P][:-9]}, "contents", "is broken off in its last row"),
    ("no table at all", lambda m: {**m, P: b"PAR1\xff\xfe"}, "contents", "is no plain text"),
]


@pytest.mark.parametrize(
    ("forge", "check", "line"), [case[1:] for case in MEMBER_FORGERIES], ids=[case[0] for case in MEMBER_FORGERIES]
)
def test_a_changed_member_is_refused_though_its_checksum_was_repaired(
    members: Members, forge: Callable[[Members], Members], check: str, line: str
) -> None:
    failed = refusals(sealed(forge(members)))
    assert "checksums" not in failed
    assert line in failed[check]


def test_a_changed_member_fails_its_checksum_where_that_was_not_repaired(members: Members) -> None:
    failed = refusals(field_changed(P, 5, 3, "0.123")(members))
    assert failed["checksums"] == f"{P}: fails its checksum"


def test_figures_of_another_version_of_the_program_are_refused_with_what_to_do(members: Members) -> None:
    changed = field_changed("figures/ic_matrix.csv", 7, 8, "0.9")(members)
    assert "another version" not in refusals(sealed(changed))["figures"]
    other = edited("manifest.json", figures_code(), "0" * 32)(changed)
    assert refusals(sealed(other))["figures"].endswith("another version of this program: pack it again with this one")


def test_a_list_of_checksums_that_names_more_is_refused(members: Members) -> None:
    more = {**members, "SHA256SUMS": members["SHA256SUMS"] + b"0" * 64 + b"  other\n"}
    assert refusals(more)["checksums"] == "SHA256SUMS: fails its checksum"


# -- rows changed, and bound to their days again ----------------------------------------------------------------------


def cell(table: pd.DataFrame, at: int, **values: object) -> pd.DataFrame:
    for name, value in values.items():
        table.loc[table.index[at], name] = value
    return table


def days_changed(change: Callable[[Run], Run]) -> Callable[[Content], Content]:
    """The days of MemRL changed, and sealed and chained anew."""
    return lambda content: with_run(content, MEMRL, lambda run: resealed_days(change(run)))


def rows_changed(
    table: str, change: Callable[[pd.DataFrame], pd.DataFrame], run: int = MEMRL
) -> Callable[[Content], Content]:
    return lambda content: with_rows(content, run, table, change)


def counted(number: int, **counts: int) -> Callable[[Run], Run]:
    def change(run: Run) -> Run:
        days = list(run.days)
        days[number] = days[number].model_copy(update={"counts": days[number].counts.model_copy(update=counts)})
        return replace(run, days=tuple(days))

    return change


def with_usage(number: int, calls: int) -> Callable[[Run], Run]:
    def change(run: Run) -> Run:
        days = list(run.days)
        days[number] = days[number].model_copy(update={"usage": days[number].usage.model_copy(update={"calls": calls})})
        return replace(run, days=tuple(days))

    return change


def with_failures(failures: dict[str, int]) -> Callable[[Run], Run]:
    def change(run: Run) -> Run:
        return replace(run, days=(run.days[0].model_copy(update={"failures": failures}), *run.days[1:]))

    return change


def of_other_inputs(run: Run) -> Run:
    days = tuple(day.model_copy(update={"inputs": {**day.inputs, "news_window": "f" * 32}}) for day in run.days)
    return replace(run, days=days)


def another_prompt(frame: pd.DataFrame) -> pd.DataFrame:
    """The prompt of the first sector-day, for the second one."""
    own = frame["prompt_digest"].iloc[0]
    frame.loc[frame.index[3:6], "prompt_digest"] = own
    return frame


ROW_FORGERIES = [
    ("a score changed", rows_changed("predictions", lambda f: cell(f, 4, score=0.123)), "figures", "ic_matrix: row"),
    (
        "a score dropped",
        rows_changed("predictions", lambda f: cell(f, 4, score=np.nan, invalid="missing")),
        "counts",
        "2025-01-02: invalid is said to be 0, and is 1",
    ),
    (
        "a score without a reason",
        rows_changed("predictions", lambda f: cell(f, 4, score=np.nan)),
        "rows",
        "801030: a score is missing without a reason",
    ),
    ("a prompt of another sector", rows_changed("predictions", another_prompt), "rows", "the prompt of another"),
    (
        "two prompts for one sector",
        rows_changed("predictions", lambda f: cell(f, 4, prompt_digest="0" * 32)),
        "rows",
        "its horizons are told of different prompts",
    ),
    (
        "fewer articles than Pipe",
        rows_changed("predictions", lambda f: f.assign(articles=f["articles"] + 1)),
        "prompts",
        "articles and lacked",
    ),
    (
        "a prompt unlike Pipe's without experience",
        rows_changed("predictions", lambda f: f.assign(prompt_digest=["0" + p[1:] for p in f["prompt_digest"]])),
        "prompts",
        "was asked another prompt than Pipe, though it was shown no memory",
    ),
    (
        "a future memory",
        rows_changed("retrievals", lambda f: cell(f, 0, memory_id="2025-01-15/801010", made_on="2025-01-15")),
        "memories",
        "memory 2025-01-15/801010 was not there yet",
    ),
    (
        "a memory of the same day",
        rows_changed("retrievals", lambda f: cell(f, 0, memory_id="2025-01-03/801010", made_on="2025-01-03")),
        "memories",
        "was not there yet",
    ),
    (
        "a memory that nobody made",
        rows_changed("retrievals", lambda f: cell(f, 0, memory_id="2025-01-02/801010/x")),
        "memories",
        "memory 2025-01-02/801010/x was never made",
    ),
    (
        "a memory of another sector",
        rows_changed("retrievals", lambda f: cell(f, 0, memory_id="2025-01-02/801980")),
        "memories",
        "is no one's of 2025-01-02 in that sector",
    ),
    (
        "a memory available too early",
        rows_changed("retrievals", lambda f: cell(f, 0, available_from="2025-01-02")),
        "memories",
        "was available from 2025-01-02, made on 2025-01-02",
    ),
    (
        "a memory available too late",
        rows_changed("retrievals", lambda f: cell(f, 0, available_from="2025-01-16")),
        "memories",
        "was not there yet",
    ),
    ("a wrong age", rows_changed("retrievals", lambda f: cell(f, 0, age=7)), "memories", "7 sessions old, and is 1"),
    (
        "outcomes known too early",
        rows_changed("retrievals", lambda f: cell(f, 0, matured_share=1.0)),
        "memories",
        "1.00 of its outcomes are said to be known, 0.33 could",
    ),
    (
        "a source of the future",
        rows_changed(
            "retrievals",
            lambda f: f.assign(sources=[["2025-01-16/801010"] if n == 0 else s for n, s in enumerate(f["sources"])]),
            REFLEXION,
        ),
        "memories",
        "rests on 2025-01-16/801010, whose outcome was not known",
    ),
    (
        "ranks with a hole",
        rows_changed("retrievals", lambda f: cell(f, 0, rank=2), REFLEXION),
        "memories",
        "ranks of its memories do not count from 1",
    ),
    (
        "a memory made twice",
        rows_changed("memories", lambda f: pd.concat([f.iloc[:1].assign(phase="append"), f.assign(phase="mature")])),
        "memories",
        "is made twice",
    ),
    (
        "a lesson from the future",
        rows_changed("evidence", lambda f: cell(f, 0, session="2025-01-02")),
        "evidence",
        "whose outcome did not become known that day",
    ),
    (
        "a lesson of another value",
        rows_changed("evidence", lambda f: cell(f, 0, alpha=0.5)),
        "evidence",
        "alpha 0.5, but it was",
    ),
    (
        "a lesson outside the window",
        rows_changed("evidence", lambda f: cell(f, 0, predicted_on="2024-12-31")),
        "evidence",
        "which nobody predicted",
    ),
    (
        "rows of no session",
        rows_changed("memories", lambda f: cell(f, len(f) - 1, session="2025-01-18", memory_id="2025-01-18/801980")),
        "rows",
        "memories has a row of 2025-01-18, which is no session of the window",
    ),
    ("calls left out", days_changed(with_usage(4, 3)), "counts", "3 calls are told, its rows take 31"),
    ("calls invented", days_changed(with_usage(4, 99)), "counts", "99 calls are told, its rows take 31"),
    ("lessons invented", days_changed(counted(4, updates=5)), "counts", "updates is said to be 5, and is 0"),
    ("maturities invented", days_changed(counted(4, matured=5)), "counts", "matured is said to be 5, and is"),
    ("retrievals hidden", days_changed(counted(4, retrievals=0)), "counts", "retrievals is said to be 0"),
    (
        "a Pipe that asks nobody",
        rows_changed("predictions", lambda f: f.assign(prompt_digest=""), PIPE),
        "prompts",
        "run pipe-rules 2025-01-02 801010: no model was asked, so it is not Pipe",
    ),
    (
        "a Pipe with memories",
        rows_changed("memories", lambda f: f.reindex([0]).assign(**PIPES_MEMORY), PIPE),
        "prompts",
        "run pipe-rules: has 1 rows of memories, so it is not Pipe",
    ),
    ("calls below zero", days_changed(with_failures({"reasked": -1})), "counts", "counts something below zero"),
    ("words for failures", days_changed(with_failures({"a word\n": 1})), "counts", "is no name of a failure"),
    ("another dataset", days_changed(of_other_inputs), "settings", "memrl-rules 2025-01-02: rests on other tables"),
]


@pytest.mark.parametrize(
    ("forge", "check", "line"), [case[1:] for case in ROW_FORGERIES], ids=[case[0] for case in ROW_FORGERIES]
)
def test_changed_rows_are_refused_though_they_were_bound_to_their_days_again(
    content: Content, forge: Callable[[Content], Content], check: str, line: str
) -> None:
    failed = refusals(bound(forge(content)).members())
    assert not {"checksums", "contents", "chain"} & set(failed)
    assert line in failed[check]


def only(content: Content, *numbers: int) -> Content:
    """The content with some of its runs."""
    header = content.header.model_copy(update={"runs": tuple(content.header.runs[n] for n in numbers)})
    return replace(content, header=header, runs=tuple(content.runs[n] for n in numbers))


def test_a_bundle_without_pipe_is_refused(content: Content) -> None:
    failed = refusals(recomputed(only(content, MEMRL, REFLEXION)).members())
    assert failed["window"] == "run memrl-rules: no Pipe of its backbone is there, so no difference can be told"


def test_a_run_that_stands_twice_is_refused(content: Content) -> None:
    failed = refusals(bound(only(content, PIPE, MEMRL, MEMRL)).members())
    assert failed["window"] == "run memrl-rules stands there twice"


def test_a_run_under_another_name_is_refused(content: Content) -> None:
    """Pipe's days as those of a mechanism that it is not."""
    header = content.header.model_copy(
        update={
            "runs": (
                content.header.runs[PIPE],
                content.header.runs[PIPE].model_copy(update={"mechanism": "best_ever"}),
            )
        }
    )
    failed = refusals(replace(content, header=header, runs=(content.runs[PIPE],) * 2).members())
    assert failed["settings"] == "run best_ever-rules: was made with experiment 'pipe-rules'"


def test_runs_under_different_settings_are_refused_together(content: Content) -> None:
    def other(run: Run) -> Run:
        identity = {**run.identity, "market_wide": True}
        days = tuple(day.model_copy(update={"identity": digest_json(identity)}) for day in run.days)
        return resealed_days(replace(run, identity=identity, days=days))

    changed = with_run(content, MEMRL, other)
    runs = list(changed.header.runs)
    runs[MEMRL] = runs[MEMRL].model_copy(update={"identity": dict(changed.runs[MEMRL].identity)})
    changed = bound(replace(changed, header=changed.header.model_copy(update={"runs": tuple(runs)})))
    assert refusals(changed.members())["settings"] == "run memrl-rules: market_wide is True, and False in pipe-rules"


# -- a forgery that agrees with itself --------------------------------------------------------------------------------


def better_scores(content: Content) -> Content:
    """Scores replaced by the labels' signs wherever those are known, and everything that follows recomputed."""
    labels = labels_of(content.header, content.closes)
    known = labels[labels["alpha"].notna()].set_index(["predicted_on", "code", "horizon"])["alpha"].to_dict()

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        keys = zip(frame["session"], frame["code"], frame["horizon"], strict=True)
        return frame.assign(score=[float(np.sign(known.get(key, 0.0))) for key in keys])

    return recomputed(with_rows(content, MEMRL, "predictions", change))


def test_invented_scores_agree_with_themselves_and_fail_where_the_run_can_be_repeated(
    content: Content, own: OwnData
) -> None:
    """The bundle alone cannot tell, and does not say that it could."""
    forged = better_scores(content).members()
    assert verified(forged).level == SELF_CONSISTENT
    failed = refusals(forged, own=own, reach="all")
    assert list(failed) == ["own run memrl-rules"]
    assert "in the bundle, and" in failed["own run memrl-rules"]


def other_closes(content: Content) -> Content:
    """Closes that rise with a sector's scores, and everything that follows from them."""
    closes = content.closes.copy()
    closes.loc[closes["code"] == "801010", "close"] *= np.linspace(1, 1.2, int((closes["code"] == "801010").sum()))
    forged = recomputed(replace(content, closes=closes))
    return forged


def test_invented_closes_fail_against_own_closes(content: Content, own: OwnData) -> None:
    forged = other_closes(content)
    emptied = with_rows(with_rows(forged, MEMRL, "evidence", lambda f: f[:0]), REFLEXION, "evidence", lambda f: f[:0])
    members = recomputed(emptied).members()
    assert verified(members).level == SELF_CONSISTENT
    failed = refusals(members, own=own, reach="closes")
    assert failed["own closes"].startswith("2025-01-03 801010: close ")


def test_closes_kept_back_fail_against_own_closes(content: Content, own: OwnData) -> None:
    """Without a close there is no label: a way to leave out what went wrong."""
    gone = (content.closes["session"] == "2025-01-16") & (content.closes["code"] == "801980")
    forged = replace(content, closes=content.closes[~gone].reset_index(drop=True))
    check = OwnChecker(forged, own).closes()
    assert (check.status, check.detail) == ("failed", "2025-01-16 801980: this home has a close, the bundle has none")


@pytest.mark.parametrize("kept", ["2025-01-02", "2025-01-15", ""], ids=["the first", "all but the last", "none"])
def test_whole_sessions_of_closes_kept_back_fail_against_own_closes(content: Content, own: OwnData, kept: str) -> None:
    """Not a single close of a session is as much of a hole as one that is missing."""
    sessions = content.closes["session"]
    forged = replace(content, closes=content.closes[sessions <= kept].reset_index(drop=True))
    check = OwnChecker(forged, own).closes()
    assert check.status == "failed"
    assert check.detail.endswith("801010: this home has a close, the bundle has none")


def test_invented_prompts_fail_against_own_news(content: Content, own: OwnData) -> None:
    """Even where no answers are at hand, prompts without experience follow from the news."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(prompt_digest=["0" + prompt[1:] for prompt in frame["prompt_digest"]])

    alone = recomputed(with_rows(only(content, PIPE), PIPE, "predictions", change)).members()
    assert verified(alone).level == SELF_CONSISTENT
    failed = refusals(alone, own=silent(own), reach="all")
    assert failed == {"own prompts pipe-rules": "2025-01-02 801010: this home's news give another prompt"}


def test_the_benchmark_index_is_among_the_closes(content: Content) -> None:
    assert BENCHMARK in set(content.closes["code"])
    assert tuple(content.header.horizons) == HORIZONS


# -- hostile files ----------------------------------------------------------------------------------------------------


def zipped(tar: bytes) -> bytes:
    return gzip.compress(tar, mtime=0)


def tar_with(members: Members, *extra: tuple[tarfile.TarInfo, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.USTAR_FORMAT) as out:
        for name in sorted(members):
            info = tarfile.TarInfo(name)
            info.size = len(members[name])
            out.addfile(info, io.BytesIO(members[name]))
        for info, data in extra:
            info.size = len(data)
            out.addfile(info, io.BytesIO(data) if data else None)
    return sink.getvalue()


def info(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


HOSTILE = [
    ("a path upwards", lambda m: zipped(tar_with(m, (info("../../etc/cron"), b"x"))), "has a name that no bundle has"),
    ("an absolute path", lambda m: zipped(tar_with(m, (info("/etc/passwd"), b"x"))), "has a name that no bundle has"),
    ("a name with a line break", lambda m: zipped(tar_with(m, (info("a\nb"), b"x"))), "has a name that no bundle"),
    ("a symbolic link", lambda m: zipped(tar_with(m, (info("a", tarfile.SYMTYPE, "/etc"), b""))), "is no plain file"),
    ("a hard link", lambda m: zipped(tar_with(m, (info("a", tarfile.LNKTYPE, "b"), b""))), "is no plain file"),
    ("a device", lambda m: zipped(tar_with(m, (info("a", tarfile.CHRTYPE), b""))), "is no plain file"),
    ("a folder", lambda m: zipped(tar_with(m, (info("runs", tarfile.DIRTYPE), b""))), "is no plain file"),
    ("a member twice", lambda m: zipped(tar_with(m, (info("closes.csv"), b"x"))), "holds member 'closes.csv' twice"),
    ("members out of order", lambda m: zipped(tar_with({}, *((info(n), m[n]) for n in m))), "members out of order"),
    ("too many members", lambda m: zipped(tar_bytes({f"x{n}": b"" for n in range(501)})), "more than 500 members"),
    ("bytes behind the members", lambda m: zipped(tar_bytes(m) + b"hidden" * 2000), "holds bytes outside its members"),
    ("bytes behind the file", lambda m: zipped(tar_bytes(m)) + b"more", "goes on behind its end"),
    ("a second file behind it", lambda m: zipped(tar_bytes(m)) * 2, "goes on behind its end"),
    ("a file broken off", lambda m: zipped(tar_bytes(m))[:-2000], "is broken off"),
    ("an empty file", lambda m: b"", "is broken off"),
    ("no gzip", lambda m: b"PK\x03\x04" + b"0" * 100, "is no gzip file"),
    ("no tar", lambda m: zipped(b"hello" * 999), "holds no tar"),
    ("a damaged byte", lambda m: bytes(reversed(zipped(tar_bytes(m)))), "is no gzip file"),
]


@pytest.mark.parametrize(("make", "line"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_a_hostile_file_is_no_bundle(
    tmp_path: Path, members: Members, make: Callable[[Members], bytes], line: str
) -> None:
    path = tmp_path / "hostile.bundle.tar.gz"
    path.write_bytes(make(members))
    with pytest.raises(BundleError, match=r"^bundle hostile\.bundle\.tar\.gz: ") as refused:
        read_archive(path)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_bomb_is_stopped_before_it_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_TAR", 4 * 2**20)
    squeezed = zlib.compressobj(9, wbits=31)
    path = tmp_path / "bomb.bundle.tar.gz"
    with open(path, "wb") as sink:
        for _ in range(256):
            sink.write(squeezed.compress(bytes(2**20)))
        sink.write(squeezed.flush())
    assert path.stat().st_size < 2**20
    with pytest.raises(BundleError, match="unpacks to more than 4194304 bytes"):
        read_archive(path)


def test_a_huge_file_is_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LARGEST_FILE", 10)
    path = tmp_path / "huge.bundle.tar.gz"
    path.write_bytes(bytes(11))
    with pytest.raises(BundleError, match="has more than 10 bytes"):
        read_archive(path)


def test_a_deeply_nested_manifest_is_refused_in_one_line(members: Members) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert "manifest.json: " in refusals(sealed({**members, "manifest.json": deep}))["contents"]


def test_a_file_has_the_same_bytes_wherever_and_whenever_it_is_written(tmp_path: Path, members: Members) -> None:
    first = write_archive(tmp_path / "a" / "one.bundle.tar.gz", members)
    second = write_archive(tmp_path / "b" / "other.bundle.tar.gz", dict(reversed(members.items())))
    assert first.digest == second.digest
    one, other = (next((tmp_path / folder).iterdir()).read_bytes() for folder in "ab")
    assert one == other
    assert read_archive(tmp_path / "a" / "one.bundle.tar.gz").members == members


# -- what must not stand in a bundle ----------------------------------------------------------------------------------


def test_no_word_of_the_news_or_of_a_model_stands_in_a_bundle(members: Members, own: OwnData) -> None:
    whole = tar_bytes(members).decode("utf-8")
    for (table, _), frame in own.reader.frames.items():
        if table == "news_window":
            for text in {*frame["title"], *frame["content"], *frame["article_id"], *frame["importance_reason"]}:
                assert text not in whole
    assert not [letter for letter in whole if "\u4e00" <= letter <= "\u9fff"]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("", ""),
        ("score is missing", "missing"),
        ("score '利好消息' is no number", "no_number"),
        ("score 7 is outside [-1, 1]", "out_of_range"),
        ("the provider's content filter refused an answer", "refused"),
        ("answer: no JSON object in '某公司公告…'", "unreadable"),
    ],
)
def test_a_reason_is_kept_without_the_words_it_quotes(reason: str, kind: str) -> None:
    assert invalid_kind(reason) == kind


@pytest.mark.parametrize("path", ["/home/someone/model.gguf", "C:\\models\\m", "~/models/m", "file:///srv/m"])
def test_a_path_of_the_machine_is_refused_before_it_is_packed(content: Content, path: str) -> None:
    run = content.runs[PIPE]
    named = replace(run, identity={**run.identity, "backbone": {"kind": "openai", "model": path}})
    facts = Facts("", {}, "rules", {}, content.closes, content.news)
    with pytest.raises(FinEvolveError, match="looks like a path of this machine"):
        pack(world_settings(), [named], facts)


def test_a_manifest_tells_versions_settings_and_digests(members: Members) -> None:
    told = json.loads(members["manifest.json"])
    assert told["made_by"] == {"finevolve-pipeline": "0.1.0", "code of figures": figures_code()}
    assert [run["mechanism"] for run in told["runs"]] == ["pipe", "memrl", "reflexion"]
    assert told["cache"]["rules"]["answers"] == 0
    assert "No article text" in told["licence"]
