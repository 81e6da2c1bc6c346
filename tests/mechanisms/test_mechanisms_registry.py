"""Mechanisms by name: built-in ones, and other packages' by entry point."""

from importlib.metadata import EntryPoint

import pytest

from finevolve_pipeline.errors import ReplayMismatchError, SettingsError
from finevolve_pipeline.mechanisms import registry
from finevolve_pipeline.mechanisms.base import Mechanism, UpdateFailed
from finevolve_pipeline.mechanisms.mem0 import Mem0
from finevolve_pipeline.mechanisms.memrl import MemRL, Rewarded
from finevolve_pipeline.mechanisms.pipe import Pipe
from finevolve_pipeline.settings import load_settings


class Outside(Mechanism):
    """A mechanism of another package."""


def offer(monkeypatch, name, value):
    point = EntryPoint(name=name, value=value, group=registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == registry.GROUP else [])


@pytest.mark.parametrize(("name", "kind"), [("pipe", Pipe), ("mem0", Mem0), ("memrl", MemRL)])
def test_the_built_in_mechanisms_take_the_packaged_settings(name, kind):
    assert registry.mechanism_class(name) is kind
    values = load_settings().mechanisms[name]
    assert registry.mechanism_settings(name, kind, values).model_dump() == values


def test_another_package_offers_a_mechanism(monkeypatch):
    offer(monkeypatch, "outside", f"{__name__}:Outside")
    assert registry.mechanism_class("outside") is Outside


def test_a_built_in_mechanism_cannot_be_replaced(monkeypatch):
    offer(monkeypatch, "pipe", f"{__name__}:Outside")
    assert registry.mechanism_class("pipe") is Pipe


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("json:dumps", "entry point json:dumps is no subclass of mechanisms.base.Mechanism"),
        ("no_such_package:X", "entry point no_such_package:X cannot be loaded"),
        ("json:no_such_name", "entry point json:no_such_name cannot be loaded"),
    ],
)
def test_an_entry_point_that_is_none_is_refused(monkeypatch, value, message):
    offer(monkeypatch, "odd", value)
    with pytest.raises(SettingsError, match=message):
        registry.mechanism_class("odd")


def test_an_unknown_mechanism_lists_the_known_ones(monkeypatch):
    offer(monkeypatch, "outside", f"{__name__}:Outside")
    with pytest.raises(SettingsError, match=r"mechanism 'dreams': not among pipe, mem0, memrl, .*, outside"):
        registry.mechanism_class("dreams")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"top_k": 5, "min_similarity": 0.1, "k": 1}, r"mechanisms.mem0.k: Extra inputs are not permitted"),
        ({"top_k": 5}, "mechanisms.mem0.min_similarity: Field required"),
        (
            {"top_k": 0, "min_similarity": 0.1},
            "mechanisms.mem0.top_k: Input should be greater than or equal to 1",
        ),
        (
            {"top_k": 5, "min_similarity": 2},
            "mechanisms.mem0.min_similarity: Input should be less than or equal",
        ),
    ],
)
def test_settings_are_checked_and_the_keys_named(values, message):
    with pytest.raises(SettingsError, match=rf"{message}.*\(keys of mem0: top_k, min_similarity\)"):
        registry.mechanism_settings("mem0", Mem0, values)


@pytest.mark.parametrize("value", ["5", 5.0, True])
def test_a_number_is_neither_a_text_nor_a_truth_value(value):
    with pytest.raises(SettingsError, match=r"mechanisms\.mem0\.top_k: Input should be a valid integer"):
        registry.mechanism_settings("mem0", Mem0, {"top_k": value, "min_similarity": 0.1})


@pytest.mark.parametrize("seed", ["1", 1.5, True, -1])
def test_a_seed_is_a_whole_number_from_0_on(seed):
    with pytest.raises(SettingsError, match=r"mechanisms\.aa\.seed: .* is no whole number from 0 on"):
        registry.sample_seed("aa", {"kind": "pipe", "seed": seed})


def test_an_unknown_kind_is_told_from_an_unknown_mechanism():
    with pytest.raises(SettingsError, match=r"mechanism 'dreams': .* correct the `kind` of \[mechanisms\.mine\]"):
        registry.mechanism_class("mine", {"kind": "dreams"})


@pytest.mark.parametrize("kind", [5, ["expel"], True])
def test_a_kind_that_is_no_text_is_refused(kind):
    with pytest.raises(
        SettingsError, match=r"mechanisms\.mine\.kind: .* is no text; name a mechanism, or leave it out"
    ):
        registry.mechanism_class("mine", {"kind": kind})


def test_the_section_of_a_built_in_mechanism_is_its_own():
    with pytest.raises(SettingsError, match=r"mechanisms\.expel\.kind: expel is a mechanism itself; give this section"):
        registry.mechanism_class("expel", {"kind": "mem0", "top_k": 3})


def test_code_that_has_no_name_cannot_be_identified(monkeypatch):
    monkeypatch.setattr(Outside, "__module__", "__main__")
    with pytest.raises(SettingsError, match=r"Outside: its code cannot be identified .* put it into a module"):
        registry.code_digest(Outside)


def test_each_mechanism_s_code_has_its_own_digest():
    digests = {registry.code_digest(kind) for kind in (Pipe, Mem0, MemRL, Outside)}
    assert len(digests) == 4


def test_events_come_back_from_the_journal_as_they_went():
    event = Rewarded("801170", "2025-01-02/801170", 10, 0.5, -0.0123456789, ("2025-01-02/801170", "x"))
    assert MemRL.decode(event.to_json()) == event
    failed = UpdateFailed("801170", "no answer")
    assert Pipe.decode(failed.to_json()) == failed


def test_an_event_of_another_mechanism_is_refused():
    event = Rewarded("801170", "2025-01-02/801170", 10, 0.5, 0.1, ())
    with pytest.raises(ReplayMismatchError, match="Mem0: the journal holds an event 'rewarded'"):
        Mem0.decode(event.to_json())
