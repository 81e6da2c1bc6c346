"""The cache: keys of all that changes an answer, one answer for all, nothing lost, no damage unnoticed."""

import hashlib
import os
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from finevolve_pipeline import databases
from finevolve_pipeline.errors import CacheError
from finevolve_pipeline.llm import cache as cache_module
from finevolve_pipeline.llm.cache import (
    About,
    AnswerCache,
    AnswerEntry,
    Tally,
    VectorCache,
    answer_key,
    answers_path,
    document_of,
    reply_of,
    vector_key,
    vectors_path,
)
from finevolve_pipeline.llm.requests import Call, Message, Prompt, Reply, Usage
from resources.records import answer_cache, vector_cache
from resources.storage import DATABASE

IDENTITY = {"kind": "openai", "model": "m", "decoding": {"temperature": 1.0, "seed": 7}}
SCHEMA = {"type": "object", "properties": {"score": {"type": "number"}}}
CALL = Call(None, Prompt((Message("system", "规则"), Message("user", "锂电 news"))))
ABOUT = About("qwen", "predict", "2025-01-02", "801730")
REPLY = Reply(
    '{"scores": {"10": 0.3}}', Usage(1, 900, 800, 70, 50, 0.00125), "stop", {"server_error": 2, "reasked": 1}, "qwen3"
)
KEY = bytes(range(32))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "answers.sqlite"


@pytest.fixture
def answers(kept):
    """In a file, and then in a database that hosts share."""
    cache = answer_cache(kept)
    yield cache
    cache.close()


@pytest.fixture
def vectors(kept):
    """Likewise."""
    cache = vector_cache(kept)
    yield cache
    cache.close()


@pytest.fixture
def in_file(path):
    """Answers in a file, for what is true of files alone."""
    cache = AnswerCache(path)
    yield cache
    cache.close()


def keys(number):
    return [vector_key(IDENTITY, str(position)) for position in range(number)]


def child(code, *arguments, **options):
    """A Python process of its own in which `cache`, the given home's, is open; it prints lines."""
    head = (
        "import sys, os\nfrom pathlib import Path\nfrom finevolve_pipeline.llm.cache import *\n"
        "from finevolve_pipeline.llm.requests import Reply, Usage\nfrom resources.records import answer_cache\n"
        "cache = answer_cache(Path(sys.argv[1]))\nABOUT = About('b', 'predict', '2025-01-02', '801730')\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


# Keys


def test_a_key_is_the_same_wherever_and_however_its_parts_were_made():
    other = {"decoding": {"seed": 7, "temperature": 1.0}, "model": "m", "kind": "openai"}
    again = Call(None, Prompt((Message("system", "规" + "则"), Message("user", "锂电 news"))))
    assert answer_key(IDENTITY, CALL, SCHEMA) == answer_key(other, again, dict(SCHEMA))


def test_the_way_keys_are_made_is_pinned():
    """Whoever changes it loses every cache there is, and must change ANSWER_KEY or VECTOR_KEY with it."""

    def sha256(*parts):
        return hashlib.sha256(b"".join(struct.pack("<Q", len(part)) + part for part in parts)).digest()

    who = hashlib.sha256(b'{"decoding":{"seed":7,"temperature":1.0},"kind":"openai","model":"m"}').digest()
    shape = hashlib.sha256(b'{"properties":{"score":{"type":"number"}},"type":"object"}').digest()
    texts = [text.encode() for text in ("system", "规则", "user", "锂电 news")]
    assert answer_key(IDENTITY, CALL, SCHEMA) == sha256(b"finevolve answer 1", who, shape, b"", *texts)
    assert vector_key(IDENTITY, "锂电") == sha256(b"finevolve vector 1", who, "锂电".encode())


def prompt(*messages):
    return Call(None, Prompt(tuple(Message(*one) for one in messages)))


DIFFERENT = {
    "model": lambda: answer_key(IDENTITY | {"model": "n"}, CALL, SCHEMA),
    "one inside": lambda: answer_key(IDENTITY | {"decoding": {"temperature": 1.0, "seed": 8}}, CALL, SCHEMA),
    "number's type": lambda: answer_key(IDENTITY | {"decoding": {"temperature": 1, "seed": 7}}, CALL, SCHEMA),
    "true for 1": lambda: answer_key(IDENTITY | {"decoding": {"temperature": True, "seed": 7}}, CALL, SCHEMA),
    "schema": lambda: answer_key(IDENTITY, CALL, SCHEMA | {"required": ["score"]}),
    "swapped identity and schema": lambda: answer_key(SCHEMA, CALL, IDENTITY),
    "variant": lambda: answer_key(IDENTITY, replace(CALL, variant="batch of 8"), SCHEMA),
    "seed": lambda: answer_key(IDENTITY, replace(CALL, seed=1), SCHEMA),
    "another seed": lambda: answer_key(IDENTITY, replace(CALL, seed=2), SCHEMA),
    "role": lambda: answer_key(IDENTITY, prompt(("system", "规则"), ("assistant", "锂电 news")), SCHEMA),
    "text": lambda: answer_key(IDENTITY, prompt(("system", "规则"), ("user", "锂电 News")), SCHEMA),
    "moved between messages": lambda: answer_key(IDENTITY, prompt(("system", "规则锂"), ("user", "电 news")), SCHEMA),
    "one message": lambda: answer_key(IDENTITY, prompt(("system", "规则user锂电 news")), SCHEMA),
    "order": lambda: answer_key(IDENTITY, prompt(("user", "锂电 news"), ("system", "规则")), SCHEMA),
    "a lone surrogate": lambda: answer_key(IDENTITY, prompt(("system", "规则"), ("user", "锂电 news\udc80")), SCHEMA),
    "a vector": lambda: vector_key(IDENTITY, "规则"),
}


def test_everything_that_can_change_an_answer_changes_its_key():
    found = [answer_key(IDENTITY, CALL, SCHEMA), *(made() for made in DIFFERENT.values())]
    assert len(set(found)) == len(DIFFERENT) + 1
    assert {len(key) for key in found} == {32}


def test_an_identity_that_is_changed_in_place_is_another_one():
    identity = {"model": "m", "decoding": {"seed": 1}}
    before = answer_key(identity, CALL, SCHEMA), vector_key(identity, "x")
    identity["decoding"]["seed"] = 2
    assert (answer_key(identity, CALL, SCHEMA), vector_key(identity, "x")) != before
    identity["decoding"]["seed"] = 1
    assert (answer_key(identity, CALL, SCHEMA), vector_key(identity, "x")) == before


def test_an_identity_with_nan_is_refused():
    with pytest.raises(ValueError, match="JSON compliant"):
        answer_key({"temperature": float("nan")}, CALL, SCHEMA)


# Replies


@pytest.mark.parametrize(
    "reply",
    [REPLY, Reply("", Usage()), Reply("\ud83d 坏 \udc80 \x00 \u2028", Usage(cost=1e-9), "length", {}, "模型")],
    ids=["usual", "empty", "lone surrogates"],
)
def test_a_reply_comes_back_as_it_was(answers, reply):
    assert answers.get(KEY) is None
    assert answers.put(KEY, reply, ABOUT) == reply
    answers.close()
    assert answers.get(KEY) == reply
    assert reply_of(document_of(reply)) == reply


def test_the_stored_form_is_pinned():
    # Whoever changes it must raise SCHEMA_VERSION and the bundle's VERSION.
    assert document_of(REPLY).decode() == (
        '{"failures":{"reasked":1,"server_error":2},"finish":"stop","model":"qwen3",'
        '"text":"{\\"scores\\": {\\"10\\": 0.3}}","usage":{"cached_prompt_tokens":800,"calls":1,'
        '"completion_tokens":70,"cost":0.00125,"prompt_tokens":900,"reasoning_tokens":50}}'
    )


def test_the_first_answer_stays_unless_it_is_replaced(answers):
    later = Reply("later", Usage(1))
    answers.put(KEY, REPLY, ABOUT)
    assert answers.put(KEY, later, ABOUT) == REPLY
    assert answers.get(KEY) == REPLY
    answers.replace(KEY, later, ABOUT)
    assert answers.get(KEY) == later
    assert answers.count() == 1


def test_an_answer_too_long_or_under_no_key_is_refused(answers):
    with pytest.raises(
        CacheError, match=r"predict 801730 of 2025-01-02 by qwen has \d+ bytes.*lower max_tokens of qwen"
    ):
        answers.put(KEY, Reply("x" * 5_000_000, Usage()), ABOUT)
    with pytest.raises(CacheError, match="key 616263 has 3 bytes, no SHA-256"):
        answers.put(b"abc", REPLY, ABOUT)
    assert answers.count() == 0


def test_what_an_entry_is_for_is_kept_in_harmless_characters(answers):
    answers.put(KEY, REPLY, About("qwen", "tag", "2025-01-02", "a\x1b[31m\nb\udc80" + "x" * 300))
    (entry,) = answers.entries()
    assert entry.about.subject == ("a?[31m?b?" + "x" * 300)[:200]


def test_totals_are_by_backbone_and_phase(answers):
    first, second, third = keys(3)
    answers.put(first, REPLY, ABOUT)
    answers.put(second, REPLY, ABOUT)
    answers.put(third, Reply("{}", Usage(1, 10, 0, 5, 0, 0.5)), About("deepseek", "tag", "2025-01-02", "a1"))
    assert [(one.backbone, one.phase, one.entries, one.usage) for one in answers.totals()] == [
        ("deepseek", "tag", 1, Usage(1, 10, 0, 5, 0, 0.5)),
        ("qwen", "predict", 2, Usage(2, 1800, 1600, 140, 100, 0.0025)),
    ]
    assert answers.backbones() == ["deepseek", "qwen"]
    assert [entry.key for entry in answers.entries(["deepseek"])] == [third]
    assert list(answers.entries([])) == []
    assert [entry.key for entry in answers.entries()] == sorted([first, second, third])


def test_merging_keeps_or_replaces_what_differs(answers):
    same, other, new = keys(3)
    changed = document_of(Reply("changed", Usage()))
    answers.put(same, REPLY, ABOUT)
    answers.put(other, REPLY, ABOUT)
    elsewhere = About("renamed", "tag", "2025-01-03", "x")
    entries = [
        AnswerEntry(same, elsewhere, document_of(REPLY)),
        AnswerEntry(other, ABOUT, changed),
        AnswerEntry(new, ABOUT, changed),
    ]
    assert answers.merge(entries) == Tally(new=1, same=1, conflicting=1)
    assert answers.get(other) == REPLY
    assert answers.merge(entries, replace=True) == Tally(new=0, same=2, conflicting=1)
    assert answers.get(other).text == "changed"


def test_a_merge_that_breaks_off_leaves_nothing(answers):
    def broken():
        yield AnswerEntry(KEY, ABOUT, document_of(REPLY))
        raise ValueError("broken off")

    with pytest.raises(ValueError, match="broken off"):
        answers.merge(broken())
    assert answers.count() == 0
    answers.put(KEY, REPLY, ABOUT)
    assert answers.count() == 1


# Several at once

HAMMER = """
import hashlib, random
order = list(range(300)); random.Random(os.getpid()).shuffle(order)
said = {}
sys.stdin.readline()
for number in order:
    key = hashlib.sha256(str(number).encode()).digest()
    said[number] = cache.put(key, Reply(f"{os.getpid()} {number}", Usage(1)), ABOUT).text
print("|".join(said[number] for number in range(300)))
"""


def test_processes_that_ask_the_same_at_once_end_with_the_same_answers(kept, answers):
    running = [child(HAMMER, kept) for _ in range(3)]  # there are no tables yet: they also race to make them
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], ended
    said = {out.strip() for out, _ in ended}
    assert len(said) == 1
    texts = said.pop().split("|")
    assert [text.split()[1] for text in texts] == [str(number) for number in range(300)]
    assert sorted(answers.get(entry.key).text for entry in answers.entries()) == sorted(texts)
    assert answers.verify() == cache_module.Health(entries=300)


def test_threads_that_ask_the_same_at_once_end_with_the_same_answers(answers):
    said = {}

    def ask(thread):
        said[thread] = [answers.put(key, Reply(f"{thread}", Usage()), ABOUT).text for key in keys(100)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(said) == 4
    assert all(texts == said[0] for texts in said.values())


WRITE = """
import hashlib
for number in range(10**6):
    key = hashlib.sha256(str(number).encode()).digest()
    cache.put(key, Reply("answer " * 50 + str(number), Usage(1)), ABOUT)
    print(key.hex(), flush=True)
"""


def test_a_writer_that_is_killed_loses_nothing_it_has_stored(kept, answers):
    writer = child(WRITE, kept)
    stored = [writer.stdout.readline().strip() for _ in range(400)]
    os.kill(writer.pid, signal.SIGKILL)
    rest = writer.stdout.read()  # not communicate(), which would lose what readline() has buffered
    assert writer.wait(timeout=30) == -signal.SIGKILL
    stored += [line for line in rest.split("\n")[:-1] if len(line) == 64]
    assert all(answers.get(bytes.fromhex(key)) is not None for key in stored)
    health = answers.verify()
    assert (health.damaged, health.structure) == ((), ())
    assert health.entries - len(stored) in (0, 1)  # one may have been stored and not told
    answers.put(KEY, REPLY, ABOUT)
    assert answers.get(KEY) == REPLY


def test_a_merge_that_is_killed_leaves_nothing(kept, answers):
    answers.put(KEY, REPLY, ABOUT)
    code = """
import hashlib, signal
def entries():
    for number in range(5000):
        yield AnswerEntry(hashlib.sha256(str(number).encode()).digest(), ABOUT, document_of(Reply("x" * 900, Usage())))
    os.kill(os.getpid(), signal.SIGKILL)
cache.merge(entries())
"""
    process = child(code, kept)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert answers.verify() == cache_module.Health(entries=1)


def test_a_forked_child_opens_the_file_anew_though_another_thread_was_using_it(answers):
    answers.put(KEY, REPLY, ABOUT)
    (other,) = keys(1)
    held, forked = threading.Event(), threading.Event()

    def hold():
        with answers._database._lock:
            held.set()
            forked.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            code = 0 if answers.get(KEY) == REPLY and answers.put(other, REPLY, ABOUT) == REPLY else 2
        finally:
            os._exit(code)
    forked.set()
    thread.join(30)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert answers.get(other) == REPLY
    assert answers.verify() == cache_module.Health(entries=2)


def test_a_reader_of_all_sees_one_moment_while_others_write(answers):
    first, *later = sorted(keys(20))
    answers.put(first, REPLY, ABOUT)
    read = answers.entries()
    assert next(read).key == first
    for key in later:
        answers.put(key, REPLY, ABOUT)
    assert list(read) == []
    assert answers.count() == 20


# Damage


DAMAGES = {
    "a byte of the answer": "UPDATE answers SET reply = substr(reply, 1, 9) || {one} || substr(reply, 11)",
    "a cut answer": "UPDATE answers SET reply = substr(reply, 1, length(reply) - 1)",
    "the subject": "UPDATE answers SET subject = '801731'",
    "the key": "UPDATE answers SET key = {key}",
    "the checksum": "UPDATE answers SET checksum = {one}",
}
IN_FILES = {
    "a subject that is no text": "UPDATE answers SET subject = CAST(x'ff801b5b' AS TEXT)",
    "a subject of another type": "UPDATE answers SET subject = 1.5",
}


def literal(data):
    return f"decode('{data.hex()}', 'hex')" if os.environ.get(DATABASE) else f"x'{data.hex()}'"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_row_is_found_and_deleted(answers, path, changed, damage):
    statement = DAMAGES[damage].format(one=literal(b"\0"), key=literal(bytes(31) + b"\1"))
    found_and_deleted(answers, partial(changed, path, statement))


@pytest.mark.parametrize("damage", IN_FILES)
def test_a_damage_that_only_a_file_can_have_is_found_and_deleted(in_file, path, changed, damage):
    found_and_deleted(in_file, partial(changed, path, IN_FILES[damage]))


def found_and_deleted(answers, damage):
    (good,) = keys(1)
    answers.put(KEY, REPLY, ABOUT)
    answers.close()
    damage()
    answers.put(good, REPLY, ABOUT)
    (found,) = answers.verify().damaged
    assert found.about.isprintable()
    with pytest.raises(CacheError, match=f"answer {found.key.hex()} .* is damaged; `finevolve cache verify --repair`"):
        answers.get(found.key)
    with pytest.raises(CacheError, match="is damaged"):
        list(answers.entries())
    with pytest.raises(CacheError, match="is damaged"):
        answers.put(found.key, REPLY, ABOUT)
    assert answers.delete([found.key, KEY]) == 1
    assert answers.verify() == cache_module.Health(entries=1)
    assert answers.put(KEY, REPLY, ABOUT) == REPLY


def test_any_flipped_byte_of_the_file_is_found_or_harmless(in_file, path):
    """Bytes all over the file, one at a time: the answer is right, there is an error, or a miss; never a wrong one."""
    for key in keys(30):
        in_file.put(key, REPLY, ABOUT)
    in_file.close()
    whole = path.read_bytes()
    found = 0
    for position in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        cache = AnswerCache(path)
        got = []
        try:
            got = [cache.get(key) for key in keys(30)]
        except CacheError:
            found += 1
        finally:
            cache.close()
        assert all(reply in (REPLY, None) for reply in got)
    assert found > 20


def test_a_whole_file_that_is_damaged_says_so(in_file, path):
    path.parent.mkdir()
    path.write_bytes(b"This is no database at all. " * 100)
    with pytest.raises(
        CacheError, match=r"answers\.sqlite: the file is damaged \(file is not a database\); .*import a bundle"
    ):
        in_file.get(KEY)
    assert "the file is damaged" in in_file.verify().structure[0]


def test_a_truncated_file_says_so(in_file, path):
    for key in keys(100):
        in_file.put(key, REPLY, ABOUT)
    in_file.close()
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2)
    health = AnswerCache(path).verify()
    assert len(health.structure) == 1
    assert "damaged" in health.structure[0]


def test_an_empty_file_is_a_cache_that_holds_nothing(in_file, path):
    path.parent.mkdir()
    path.touch()
    assert in_file.get(KEY) is None
    assert in_file.put(KEY, REPLY, ABOUT) == REPLY


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("PRAGMA user_version = 2", "of version 2, this program reads 1; export it with the program that wrote it"),
        ("PRAGMA application_id = 5", "not a cache of answers; move this file away"),
    ],
)
def test_a_file_of_another_version_or_program_is_left_alone(in_file, path, statement, line):
    in_file.put(KEY, REPLY, ABOUT)
    in_file.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
    before = path.read_bytes()
    with pytest.raises(CacheError, match=line):
        in_file.put(KEY, REPLY, ABOUT)
    assert path.read_bytes() == before


def test_vectors_are_not_taken_for_answers(path):
    cache = VectorCache(path)
    cache.put_many({KEY: np.ones(3, np.float32)})
    cache.close()
    with pytest.raises(CacheError, match="not a cache of answers"):
        AnswerCache(path).get(KEY)


def test_a_file_that_may_only_be_read_gives_answers_and_says_why_it_takes_none(in_file, path, monkeypatch):
    in_file.put(KEY, REPLY, ABOUT)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda file, **rest: connect(f"file:{file}?mode=ro", uri=True, **rest))
    reader = AnswerCache(path)
    assert reader.get(KEY) == REPLY
    with pytest.raises(CacheError, match=r"cannot be written \(attempt to write a readonly database\)"):
        reader.put(keys(1)[0], REPLY, ABOUT)
    reader.close()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match=r"its folder cannot be made \(.*\); name another home"):
        AnswerCache(tmp_path / "file" / "cache" / "answers.sqlite").get(KEY)


def test_a_folder_in_place_of_the_file_is_an_error(in_file, path):
    path.mkdir(parents=True)
    with pytest.raises(CacheError, match="cannot be opened"):
        in_file.get(KEY)


FILL = """
import hashlib, resource, signal
cache.put(hashlib.sha256(b"first").digest(), Reply("first", Usage()), ABOUT)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
stored = 0
try:
    for number in range(10000):
        cache.put(hashlib.sha256(str(number).encode()).digest(), Reply(os.urandom(500).hex(), Usage()), ABOUT)
        stored += 1
except Exception as error:
    print(type(error).__name__, stored, error)
"""


def test_a_full_disk_is_one_clear_error_and_loses_nothing(tmp_path, in_file):
    out, errors = child(FILL, tmp_path).communicate(timeout=60)
    name, stored, line = out.split(maxsplit=2)
    assert name == "CacheError", errors
    assert "the disk is full or fails" in line
    assert "free some space" in line
    assert in_file.count() == int(stored) + 1
    assert in_file.verify().structure == ()


def test_a_file_that_another_process_holds_is_an_error_after_a_while(in_file, path, monkeypatch):
    in_file.put(KEY, REPLY, ABOUT)
    monkeypatch.setattr(databases, "BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(path)) as holder:
        holder.execute("BEGIN EXCLUSIVE")  # readers go on nevertheless
        waiting = AnswerCache(path)
        assert waiting.get(KEY) == REPLY
        with pytest.raises(CacheError, match="locked by another process"):
            waiting.put(keys(1)[0], REPLY, ABOUT)
        holder.rollback()
        waiting.put(keys(1)[0], REPLY, ABOUT)
        waiting.close()


def test_nothing_of_a_prompt_is_in_the_file(in_file, path):
    secret = "机密文章的全文"
    call = Call(None, Prompt((Message("user", secret),)))
    in_file.put(answer_key(IDENTITY, call, SCHEMA), REPLY, ABOUT)
    in_file.close()
    assert secret.encode() not in path.read_bytes()
    (entry,) = in_file.entries()
    assert secret not in entry.document.decode()


def test_equal_contents_store_equal_bytes(tmp_path):
    """No time of day, no process id: two caches filled alike are the same row by row."""

    def filled(name):
        cache = AnswerCache(tmp_path / name)
        for key in keys(5):
            cache.put(key, REPLY, ABOUT)
        cache.close()
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            return connection.execute("SELECT * FROM answers ORDER BY key").fetchall()

    assert filled("one") == filled("two")


# Vectors


def test_vectors_come_back_bit_for_bit_and_of_any_length(vectors):
    random = np.random.default_rng(3)
    given = {key: random.standard_normal(1 + 7 * place).astype(np.float32) for place, key in enumerate(keys(1200))}
    stored = vectors.put_many(given)
    vectors.close()
    found = vectors.get_many([*given, KEY])
    for got in (stored, found):
        assert got.keys() == given.keys()
        assert all(got[key].tobytes() == vector.tobytes() for key, vector in given.items())
        assert all(got[key].dtype == np.float32 and got[key].flags.writeable for key in given)
    assert vectors.count() == 1200
    assert sum(vectors.by_dimensions().values()) == 1200


def test_the_first_vector_stays(vectors):
    first, second = np.array([1, 0], np.float32), np.array([0, 1], np.float32)
    vectors.put_many({KEY: first})
    assert vectors.put_many({KEY: second})[KEY].tolist() == [1, 0]
    assert vectors.by_dimensions() == {2: 1}
    assert vectors.put_many({}) == {}


@pytest.mark.parametrize(
    ("vector", "line"),
    [
        (np.array([1, np.nan]), "NaN or infinity"),
        (np.array([1e300]), "NaN or infinity"),
        (np.ones((2, 2)), r"of shape \(2, 2\) is not one row"),
        (np.ones(0), "has 0 dimensions"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_vector_that_is_none_is_refused_with_all_of_its_batch(vectors, vector, line):
    with pytest.raises(CacheError, match=line):
        vectors.put_many({keys(1)[0]: np.ones(2), KEY: vector})
    assert vectors.count() == 0


@pytest.mark.parametrize("damage", ["vector = {two}", "dimensions = 3"])
def test_a_damaged_vector_is_found(vectors, tmp_path, changed, damage):
    vectors.put_many({KEY: np.ones(2)})
    vectors.close()
    changed(vectors_path(tmp_path), f"UPDATE vectors SET {damage.format(two=literal(bytes(8)))}")
    damage_is_found(vectors)


def test_dimensions_that_are_no_number_are_found(tmp_path, changed):
    vectors = VectorCache(vectors_path(tmp_path))
    vectors.put_many({KEY: np.ones(2)})
    changed(vectors_path(tmp_path), "UPDATE vectors SET dimensions = x'02'")
    damage_is_found(vectors)
    vectors.close()


def damage_is_found(vectors):
    for read in (partial(vectors.get_many, [KEY]), lambda: list(vectors.entries())):
        with pytest.raises(CacheError, match=f"vector {KEY.hex()} .* is damaged; `finevolve cache verify --repair`"):
            read()
    assert [one.key for one in vectors.verify().damaged] == [KEY]


def test_vectors_are_replaced_where_that_is_asked_for(vectors):
    first, second = np.array([1, 0], np.float32), np.array([0, 1, 0], np.float32)
    (other,) = keys(1)
    vectors.put_many({KEY: first})
    vectors.replace_many({KEY: second, other: first})
    found = vectors.get_many([KEY, other])
    assert (found[KEY].tolist(), found[other].tolist()) == ([0, 1, 0], [1, 0])
    assert vectors.by_dimensions() == {2: 1, 3: 1}


def test_caches_lie_below_the_home(tmp_path):
    assert answers_path(tmp_path) == tmp_path / "cache" / "answers.sqlite"
    assert vectors_path(tmp_path) == tmp_path / "cache" / "vectors.sqlite"
