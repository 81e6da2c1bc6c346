"""Bundles: the same cache gives the same bytes and comes back whole; nothing of a bad bundle comes in at all."""

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from finevolve_pipeline.errors import CacheError
from finevolve_pipeline.llm import bundle as bundle_module
from finevolve_pipeline.llm.bundle import Contents, export_bundle, import_bundle
from finevolve_pipeline.llm.cache import About, AnswerCache, Tally, VectorCache, document_of, vector_key
from finevolve_pipeline.llm.requests import Reply, Usage

IDENTITIES = {"qwen": {"model": "qwen3", "decoding": {"seed": 7}}, "unused": {"model": "x"}}
MEMBERS = ["answers.parquet", "vectors.parquet", "manifest.json"]


@dataclass
class Caches:
    """Both caches of one folder."""

    answers: AnswerCache
    vectors: VectorCache

    def counts(self):
        return self.answers.count(), self.vectors.count()

    def close(self):
        self.answers.close()
        self.vectors.close()


@pytest.fixture
def caches(tmp_path):
    """Makes empty caches in a folder of the given name."""
    made = []

    def make(name):
        made.append(
            Caches(AnswerCache(tmp_path / name / "answers.sqlite"), VectorCache(tmp_path / name / "vectors.sqlite"))
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


def key(number):
    return vector_key({"kind": "test"}, str(number))


def reply(number):
    text = json.dumps({"scores": {"10": number / 1000}, "key_factor": f"理由 {number}"}, ensure_ascii=False)
    return Reply(text, Usage(1, 900 + number, 800, 70, 50, 0.001 * number), "stop", {"reasked": number % 2}, "qwen3")


def fill(one, numbers):
    for number in numbers:
        phase = "tag" if number % 3 else "predict"
        one.answers.put(
            key(number), reply(number), About("deepseek" if number % 5 else "qwen", phase, "2025-01-02", "a")
        )
        one.vectors.put_many({key(number): np.full(1 + number % 4, number, np.float32)})
    return one


# Round trip


@pytest.mark.parametrize("rows", [4096, 7])
def test_a_bundle_comes_back_byte_for_byte(caches, tmp_path, monkeypatch, rows):
    monkeypatch.setattr(bundle_module, "_GROUP_ROWS", rows)  # one group of rows, or many
    one = fill(caches("one"), range(40))
    one.answers.put(key("odd"), Reply("lone \udc80 \x00", Usage(), "length"), About("qwen", "tag", "", "a and 7 more"))
    manifest = export_bundle(tmp_path / "one.zip", one.answers, one.vectors, IDENTITIES)
    other = caches("other")
    imported = import_bundle(tmp_path / "one.zip", other.answers, other.vectors)
    assert (imported.answers, imported.vectors) == (Tally(new=41), Tally(new=40))
    assert (imported.new, imported.same, imported.conflicting) == (81, 0, 0)
    assert imported.manifest == manifest
    assert all(other.answers.get(key(number)) == reply(number) for number in range(40))
    assert list(other.answers.entries()) == list(one.answers.entries())
    assert [entry.about for entry in other.answers.entries()] == [entry.about for entry in one.answers.entries()]
    assert list(other.vectors.entries()) == list(one.vectors.entries())
    export_bundle(tmp_path / "other.zip", other.answers, other.vectors, imported.manifest.identities)
    assert (tmp_path / "other.zip").read_bytes() == (tmp_path / "one.zip").read_bytes()


def test_the_order_of_asking_leaves_no_trace(caches, tmp_path):
    for name, numbers in (("forth", range(30)), ("back", reversed(range(30)))):
        one = fill(caches(name), numbers)
        export_bundle(tmp_path / f"{name}.zip", one.answers, one.vectors, IDENTITIES)
    assert (tmp_path / "forth.zip").read_bytes() == (tmp_path / "back.zip").read_bytes()


def test_empty_caches_make_a_bundle_too(caches, tmp_path):
    one, other = caches("one"), caches("other")
    export_bundle(tmp_path / "one.zip", one.answers, one.vectors, {})
    assert import_bundle(tmp_path / "one.zip", other.answers, other.vectors).new == 0


def test_the_manifest_tells_what_is_inside_and_how_it_was_asked(caches, tmp_path):
    one = fill(caches("one"), range(10))
    manifest = export_bundle(tmp_path / "b.zip", one.answers, one.vectors, IDENTITIES)
    assert (manifest.answers, manifest.vectors) == (10, 10)
    assert manifest.contents == (
        Contents("deepseek", "predict", 3),
        Contents("deepseek", "tag", 5),
        Contents("qwen", "predict", 1),
        Contents("qwen", "tag", 1),
    )
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        told = json.loads(archive.read("manifest.json"))
        digests = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in MEMBERS[:2]}
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert told["sha256"] == digests
    assert told["identities"] == {"qwen": IDENTITIES["qwen"]}


def test_one_backbone_can_go_alone(caches, tmp_path):
    one, other = fill(caches("one"), range(10)), caches("other")
    manifest = export_bundle(tmp_path / "b.zip", one.answers, one.vectors, IDENTITIES, only=["qwen"])
    assert {content.backbone for content in manifest.contents} == {"qwen"}
    import_bundle(tmp_path / "b.zip", other.answers, other.vectors)
    assert [other.answers.get(key(number)) is not None for number in range(10)] == [True, *[False] * 4] * 2
    assert other.vectors.count() == 10


def test_a_backbone_without_answers_is_an_error_and_leaves_the_old_file(caches, tmp_path):
    one = fill(caches("one"), range(10))
    (tmp_path / "b.zip").write_text("old")
    with pytest.raises(CacheError, match=r"no answer of backbone 'qwem'; `finevolve cache stats` lists them"):
        export_bundle(tmp_path / "b.zip", one.answers, one.vectors, {}, only=["qwen", "qwem"])
    assert (tmp_path / "b.zip").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["b.zip"]


def test_importing_again_changes_nothing_and_what_differs_is_kept_or_replaced(caches, tmp_path):
    one, other = fill(caches("one"), range(10)), caches("other")
    export_bundle(tmp_path / "b.zip", one.answers, one.vectors, {})
    mine = Reply("mine", Usage(1))
    other.answers.put(key(3), mine, About("qwen", "tag", "2025-01-02", "a"))
    other.vectors.put_many({key(4): np.ones(1, np.float32)})
    first = import_bundle(tmp_path / "b.zip", other.answers, other.vectors)
    assert (first.answers, first.vectors) == (Tally(9, 0, 1), Tally(9, 0, 1))
    assert other.answers.get(key(3)) == mine
    again = import_bundle(tmp_path / "b.zip", other.answers, other.vectors, replace=True)
    assert (again.answers, again.vectors) == (Tally(0, 9, 1), Tally(0, 9, 1))
    assert other.answers.get(key(3)) == reply(3)
    assert import_bundle(tmp_path / "b.zip", other.answers, other.vectors).same == 20


# Hostile bundles


@dataclass
class Forged:
    """A bundle made by hand, with correct checksums unless a test spoils them.

    Rows are (key, backbone, phase, day, subject, reply) and (key, dimensions, vector).
    """

    answers: list = field(
        default_factory=lambda: [
            (key, "qwen", "predict", "2025-01-02", "a", document_of(reply(number)))
            for number, key in enumerate(sorted(key(number) for number in range(3)))
        ]
    )
    vectors: list = field(default_factory=lambda: [(key(1), 2, np.ones(2, "<f4").tobytes())])
    answer_schema: pa.Schema = bundle_module._ANSWERS.schema
    parquet: dict = field(default_factory=dict)
    manifest: dict = field(default_factory=dict)
    members: dict = field(default_factory=dict)
    compression: int = zipfile.ZIP_STORED

    def table(self, rows, schema):
        options = {"use_dictionary": False, "write_statistics": False, "store_schema": False} | self.parquet
        sink = io.BytesIO()
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(column, one.type) for column, one in zip(columns, schema, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), sink, **options)
        return sink.getvalue()

    def write(self, path):
        tables = {
            "answers.parquet": self.table(self.answers, self.answer_schema),
            "vectors.parquet": self.table(self.vectors, bundle_module._VECTORS.schema),
        }
        manifest = {
            "format": "finevolve-cache",
            "version": 1,
            "answers": len(self.answers),
            "vectors": len(self.vectors),
            "contents": [{"backbone": "qwen", "phase": "predict", "answers": len(self.answers)}],
            "identities": {},
            "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in tables.items()},
        } | self.manifest
        members = tables | {"manifest.json": json.dumps(manifest).encode()} | self.members
        with zipfile.ZipFile(path, "w", self.compression) as archive:
            for name, data in members.items():
                if data is not None:
                    archive.writestr(name, data)
        return path

    def edited(self, **changes):
        """The second answer with other columns, or with other text in its document."""
        names = ["key", "backbone", "phase", "day", "subject", "document"]
        row = dict(zip(names, self.answers[1], strict=True)) | changes
        self.answers[1] = tuple(row.values())
        return self

    def document(self, old, new):
        text = self.answers[1][-1].decode()
        assert old in text
        return self.edited(document=text.replace(old, new, 1).encode())


def test_a_forged_bundle_that_is_right_is_imported(caches, tmp_path):
    """So what the tests below refuse is refused for what they spoil."""
    one = caches("one")
    assert import_bundle(Forged().write(tmp_path / "b.zip"), one.answers, one.vectors).new == 4


BYTES_SCHEMA = pa.schema([pa.field("key", pa.binary(), nullable=False), *list(bundle_module._ANSWERS.schema)[1:]])
NULLS_SCHEMA = pa.schema([one.with_nullable(True) for one in bundle_module._ANSWERS.schema])


def giant():
    """80 MB of one letter, which pack to a few kB."""
    rows = Forged().answers
    return Forged(answers=[(*row[:-1], b"x" * 40_000_000) for row in rows[:2]], parquet={"compression": "zstd"})


def repeated():
    """One long text, written once and referred to by every row."""
    keys = sorted(key(number) for number in range(2000))
    rows = [(one, "qwen", "predict", "2025-01-02", "a", b"x" * 3_000_000) for one in keys[:3]]
    return Forged(answers=rows, parquet={"use_dictionary": True})


HOSTILE = {
    "text in place of a zip": (lambda: b"hello", "no bundle of version 1"),
    "nothing in it": (lambda: b"", "no bundle of version 1"),
    "no manifest": (lambda: Forged(members={"manifest.json": None}), "holds manifest.json 0 times"),
    "no vectors": (lambda: Forged(members={"vectors.parquet": None}), "holds vectors.parquet 0 times"),
    "a path out of the folder": (lambda: Forged(members={"../../x": b"x"}), r"holds '\.\./\.\./x', which is no part"),
    "an absolute path": (lambda: Forged(members={"/etc/x\x1b[2J": b"x"}), r"holds '/etc/x\?\[2J', which is no part"),
    "packed members": (lambda: Forged(compression=zipfile.ZIP_DEFLATED), "is packed or encrypted"),
    "a packed bomb": (
        lambda: Forged(compression=zipfile.ZIP_DEFLATED, members={"answers.parquet": bytes(50_000_000)}),
        "is packed or encrypted",
    ),
    "a long manifest": (lambda: Forged(members={"manifest.json": b" " * 2_000_000}), "has more than 1048576 bytes"),
    "a manifest that is no JSON": (lambda: Forged(members={"manifest.json": b"{"}), "no bundle of version 1"),
    "a nested manifest": (lambda: Forged(members={"manifest.json": b"[" * 500_000}), "no bundle of version 1"),
    "a manifest that is a list": (lambda: Forged(members={"manifest.json": b"[]"}), "no bundle of version 1"),
    "another format": (lambda: Forged(manifest={"format": "x"}), "no bundle of version 1"),
    "another version": (lambda: Forged(manifest={"version": 2}), r"no bundle of version 1 \(format .*, version 2\)"),
    "NaN in the manifest": (lambda: Forged(manifest={"answers": float("nan")}), "no bundle of version 1"),
    "a negative count": (lambda: Forged(manifest={"answers": -3}), "no bundle of version 1"),
    "identities that are none": (lambda: Forged(manifest={"identities": {"qwen": 1}}), "no bundle of version 1"),
    "a wrong checksum": (
        lambda: Forged(manifest={"sha256": {"answers.parquet": "00", "vectors.parquet": "00"}}),
        "answers.parquet fails its checksum",
    ),
    "no checksum": (lambda: Forged(manifest={"sha256": {}}), "answers.parquet fails its checksum"),
    "a wrong count of rows": (lambda: Forged(manifest={"answers": 4}), "answers.parquet has 3 rows, not 4"),
    "a wrong count by backbone": (
        lambda: Forged(manifest={"contents": [{"backbone": "qwen", "phase": "tag", "answers": 3}]}),
        "manifest.json counts other answers than answers.parquet holds",
    ),
    "keys of another length": (
        lambda: Forged(
            answers=[(row[0][:16], *row[1:]) for row in Forged().answers], answer_schema=BYTES_SCHEMA
        ),
        "answers.parquet has other columns",
    ),
    "columns that may be empty": (lambda: Forged(answer_schema=NULLS_SCHEMA), "answers.parquet has other columns"),
    "keys out of order": (lambda: Forged(answers=Forged().answers[::-1]), "is out of order"),
    "a key twice": (lambda: Forged(answers=Forged().answers[:1] * 2), "is out of order"),
    "groups too large for memory": (giant, r"group 0 unpacks to 2 rows, 8\d+ bytes"),
    "a text that every row repeats": (repeated, "encoded in a way that can grow without bound"),
    "a huge text": (lambda: Forged().edited(document=b"x" * 5_000_000), "has 5000000 bytes, more than 4194304"),
    "a document that is no JSON": (lambda: Forged().edited(document=b"{"), "answers.parquet: entry [0-9a-f]{64} "),
    "a document nested without end": (lambda: Forged().edited(document=b"[" * 100_000), "no reply: RecursionError"),
    "a document that is a number": (lambda: Forged().edited(document=b"5"), "no reply: TypeError"),
    "a document no UTF-8": (lambda: Forged().edited(document=b"\xff\xfe{"), "entry [0-9a-f]{64} .*can't decode"),
    "usage NaN": (lambda: Forged().document('"cost":0.001', '"cost":NaN'), "answers.parquet: entry"),
    "usage infinite": (lambda: Forged().document('"cost":0.001', '"cost":1e999'), "answers.parquet: entry"),
    "usage negative": (lambda: Forged().document('"cost":0.001', '"cost":-0.001'), "costs -0.001"),
    "cost as text": (lambda: Forged().document('"cost":0.001', '"cost":"0.001"'), "costs '0.001'"),
    "tokens negative": (lambda: Forged().document('"calls":1', '"calls":-1'), "no whole number"),
    "tokens broken": (lambda: Forged().document('"calls":1', '"calls":1.5'), "no whole number"),
    "tokens true": (lambda: Forged().document('"calls":1', '"calls":true'), "no whole number"),
    "tokens without end": (lambda: Forged().document('"calls":1', '"calls":1' + "0" * 5000), "answers.parquet: entry"),
    "unknown usage": (lambda: Forged().document('"calls":1', '"calls":1,"x":1'), "no reply: TypeError"),
    "failures no counts": (lambda: Forged().document('"reasked":1', '"reasked":"1"'), "no whole number"),
    "failures no object": (lambda: Forged().document('{"reasked":1}', "[1]"), "no whole number"),
    "a model that is none": (lambda: Forged().document('"model":"qwen3"', '"model":null'), "has no text"),
    "a key written twice": (lambda: Forged().document('"finish":', '"finish":"x","finish":'), "is no canonical JSON"),
    "blanks": (lambda: Forged().document('"finish":', '"finish": '), "is no canonical JSON"),
    "control characters": (lambda: Forged().edited(subject="\x1b[2J"), "characters that are not allowed"),
    "a long subject": (lambda: Forged().edited(subject="a" * 201), "characters that are not allowed"),
    "no backbone": (lambda: Forged().edited(backbone=""), "characters that are not allowed"),
    "a time in place of a day": (lambda: Forged().edited(day="12:30"), "characters that are not allowed"),
    "a vector with NaN": (
        lambda: Forged(vectors=[(key(1), 1, np.array([np.nan], "<f4").tobytes())]), "has NaN or infinity in it"
    ),
    "a vector of another length": (lambda: Forged(vectors=[(key(1), 3, b"1234")]), "has 3 dimensions in 4 bytes"),
    "a vector of no length": (lambda: Forged(vectors=[(key(1), 0, b"")]), "has 0 dimensions in 0 bytes"),
    "a vector of negative length": (lambda: Forged(vectors=[(key(1), -1, b"")]), "has -1 dimensions in 0 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_nothing_of_a_bad_bundle_is_stored(caches, tmp_path, case):
    make, line = HOSTILE[case]
    forged, path = make(), tmp_path / "b.zip"
    if isinstance(forged, bytes):
        path.write_bytes(forged)
    else:
        forged.write(path)
    one = fill(caches("one"), [7])
    with pytest.raises(CacheError, match=line) as refused:
        import_bundle(path, one.answers, one.vectors, replace=True)
    assert str(refused.value).startswith(f"bundle {path}: ")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500 + len(str(path))
    assert one.counts() == (1, 1)
    assert one.answers.get(key(7)) == reply(7)


def test_a_bundle_cut_anywhere_is_refused(caches, tmp_path):
    one, other = fill(caches("one"), range(5)), caches("other")
    export_bundle(tmp_path / "b.zip", one.answers, one.vectors, IDENTITIES)
    whole = (tmp_path / "b.zip").read_bytes()
    for size in [*range(0, len(whole), 61), len(whole) - 1]:
        (tmp_path / "cut.zip").write_bytes(whole[:size])
        with pytest.raises(CacheError, match=r"cut\.zip"):
            import_bundle(tmp_path / "cut.zip", other.answers, other.vectors)
    assert other.counts() == (0, 0)


def test_a_bundle_with_a_flipped_byte_is_refused_or_gives_the_same(caches, tmp_path):
    """Some bytes of a zip carry no meaning, e.g. permissions. No other one may change what is imported."""
    one = fill(caches("one"), range(5))
    export_bundle(tmp_path / "b.zip", one.answers, one.vectors, IDENTITIES)
    whole = (tmp_path / "b.zip").read_bytes()
    refused = 0
    positions = range(0, len(whole), 29)
    for position in positions:
        flipped = bytearray(whole)
        flipped[position] ^= 0x20
        (tmp_path / "flipped.zip").write_bytes(flipped)
        other = caches(str(position))
        try:
            import_bundle(tmp_path / "flipped.zip", other.answers, other.vectors)
        except CacheError:
            refused += 1
            assert other.counts() == (0, 0)
        else:
            assert list(other.answers.entries()) == list(one.answers.entries())
            assert list(other.vectors.entries()) == list(one.vectors.entries())
        other.close()
    assert refused > 0.9 * len(positions)


def test_a_bad_entry_at_the_very_end_undoes_all_before(caches, tmp_path):
    one = fill(caches("one"), range(100))
    last = max(key(number) for number in range(100))
    export_bundle(tmp_path / "good.zip", one.answers, one.vectors, {})
    forged = Forged(parquet={"row_group_size": 10})
    forged.answers = [
        (entry.key, "qwen", "predict", "2025-01-02", "a", entry.document if entry.key != last else b"{}")
        for entry in one.answers.entries()
    ]
    other = caches("other")
    with pytest.raises(CacheError, match=f"entry {last.hex()} no reply: KeyError"):
        import_bundle(forged.write(tmp_path / "b.zip"), other.answers, other.vectors)
    assert other.counts() == (0, 0)
    assert import_bundle(tmp_path / "good.zip", other.answers, other.vectors).new == 200


def test_bad_vectors_undo_good_answers(caches, tmp_path):
    one = caches("one")
    forged = Forged(vectors=[(key(1), 1, b"1234"), (key(1), 1, b"1234")])
    with pytest.raises(CacheError, match=r"vectors\.parquet: key .* is out of order"):
        import_bundle(forged.write(tmp_path / "b.zip"), one.answers, one.vectors)
    assert one.counts() == (0, 0)


def test_a_damaged_cache_is_not_exported(caches, tmp_path):
    one = fill(caches("one"), range(3))
    with one.answers.transaction() as connection:
        connection.execute("UPDATE answers SET day = '2025-01-03' WHERE key = ?", (key(1),))
    with pytest.raises(CacheError, match="is damaged; `finevolve cache verify --repair`"):
        export_bundle(tmp_path / "b.zip", one.answers, one.vectors, {})
    assert not (tmp_path / "b.zip").exists()


def test_a_missing_file_is_an_error_of_the_system(caches, tmp_path):
    one = caches("one")
    with pytest.raises(FileNotFoundError):
        import_bundle(tmp_path / "none.zip", one.answers, one.vectors)
