"""Experiments that differ in their seed alone: other samples and draws, the same questions, and seed 0 as ever."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from replay_world import contents, small_parts, small_settings

from finevolve_pipeline.errors import MissingPartitionError, ReplayMismatchError
from finevolve_pipeline.llm.cache import answer_key
from finevolve_pipeline.llm.requests import Call, Reply
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.replay.journal import ReplayStore
from finevolve_pipeline.replay.runner import identity, run
from finevolve_pipeline.settings import Settings

MECHANISMS = ["pipe", "pipe_aa", "mem0", "random", "momentum", "placebo_random", "placebo_shuffled", "expel"]


def settings_with(*seeds: int) -> Settings:
    return small_settings(
        last="2025-01-09",
        horizons=(1, 2),
        experiments={"mechanisms": MECHANISMS, "backbones": ["rules-noisy"], "seeds": list(seeds)},
    )


THREE, ONE = settings_with(0, 1, 2), settings_with(0)
SESSIONS = THREE.benchmark.sessions


class Listening(RulesBackbone):
    """Noisy rules that write down what they are asked."""

    def __init__(self) -> None:
        super().__init__("rules-noisy", 0.2, 1)
        self.heard: list[Call] = []

    async def answer(self, call: Call) -> Reply:
        self.heard.append(call)
        return await super().answer(call)


def replay(root: Path, key: str, settings: Settings = THREE, until: int | None = None, first: int = 0) -> Listening:
    """Replay an experiment into `root`; gives back who was asked."""
    backbone = Listening()
    parts = small_parts(settings, backbone=backbone)
    run(settings.experiment(key), SESSIONS[first:until], parts, ReplayStore(root), lambda _: None)
    return backbone


def scores(root: Path, key: str) -> pd.Series:
    frame = ReplayStore(root).read_predictions(key)
    return frame.set_index(["session", "code", "horizon"])["score"]


def retrieved(root: Path, key: str) -> list[str]:
    return ReplayStore(root).read_retrievals(key)["memory_id"].tolist()


@pytest.mark.parametrize("mechanism", ["mem0", "random", "placebo_shuffled"])
def test_seed_0_among_several_is_the_run_without_seeds_byte_for_byte(tmp_path: Path, mechanism: str) -> None:
    replay(tmp_path / "several", f"{mechanism}-rules-noisy")
    replay(tmp_path / "alone", f"{mechanism}-rules-noisy", ONE)
    assert contents(tmp_path / "several") == contents(tmp_path / "alone")


@pytest.mark.parametrize("mechanism", ["mem0", "pipe_aa", "random", "placebo_random"])
def test_every_seed_predicts_otherwise(tmp_path: Path, mechanism: str) -> None:
    keys = [experiment.key for experiment in THREE.all_experiments if experiment.mechanism == mechanism]
    assert len(keys) == 3
    for key in keys:
        replay(tmp_path, key, until=2)
    found = [scores(tmp_path, key) for key in keys]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert (found[a] != found[b]).mean() > 0.9


def test_a_forecast_by_formula_is_the_same_for_every_seed(tmp_path: Path) -> None:
    for key in ("momentum-rules-noisy", "momentum-rules-noisy@1"):
        replay(tmp_path, key, until=3)
    pd.testing.assert_series_equal(scores(tmp_path, "momentum-rules-noisy"), scores(tmp_path, "momentum-rules-noisy@1"))


def test_the_questions_of_pipe_are_the_same_for_every_seed_and_their_samples_are_not(tmp_path: Path) -> None:
    plain, other = (replay(tmp_path, key).heard for key in ("pipe-rules-noisy", "pipe-rules-noisy@1"))
    assert [call.prompt.messages for call in plain] == [call.prompt.messages for call in other]
    assert {call.seed for call in plain} == {0}
    assert len({call.seed for call in other} | {0}) == 2
    of_model = {"kind": "openai", "model": "m"}
    keys = [answer_key(of_model, call, {}) for call in (*plain, *other)]
    assert len(set(keys)) == len(keys)


def test_pipe_once_more_is_no_copy_of_pipe_with_seed_1(tmp_path: Path) -> None:
    for key in ("pipe_aa-rules-noisy", "pipe-rules-noisy@1"):
        replay(tmp_path, key, until=2)
    assert (scores(tmp_path, "pipe_aa-rules-noisy") != scores(tmp_path, "pipe-rules-noisy@1")).mean() > 0.9


def test_what_a_placebo_draws_differs_by_seed(tmp_path: Path) -> None:
    for key in ("placebo_random-rules-noisy", "placebo_random-rules-noisy@1"):
        replay(tmp_path, key)
    one, other = (retrieved(tmp_path, f"placebo_random-rules-noisy{at}") for at in ("", "@1"))
    assert len(one) == len(other) > 0
    assert one != other


def test_updates_of_a_mechanism_are_asked_with_the_seed_too(tmp_path: Path) -> None:
    heard = replay(tmp_path, "expel-rules-noisy@2").heard
    assert {call.request.phase for call in heard} == {"predict", "extract_insight"}
    assert len({call.seed for call in heard}) == 1


def test_the_seed_is_in_the_identity_and_changes_nothing_else_in_it() -> None:
    parts = small_parts(THREE, backbone=Listening())
    plain, other = (identity(THREE.experiment(f"placebo_random-rules-noisy{at}"), parts) for at in ("", "@2"))
    assert other["experiment"] == plain["experiment"] + "@2" == "placebo_random-rules-noisy@2"
    assert plain["mechanism"]["seed"] == 0
    assert other["mechanism"]["seed"] > 0
    assert plain["mechanism"]["settings"]["shuffle_seed"] == 1
    assert other["mechanism"]["settings"]["shuffle_seed"] > 1
    differs = {key for key in plain if plain[key] != other[key]}
    assert differs == {"experiment", "mechanism"}
    assert {key for key in plain["mechanism"] if plain["mechanism"][key] != other["mechanism"][key]} == {
        "seed",
        "settings",
    }


def test_a_chain_with_a_seed_made_in_pieces_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    replay(tmp_path / "whole", "mem0-rules-noisy@1")
    for first, until in ((0, 2), (2, 3), (3, None)):
        replay(tmp_path / "pieces", "mem0-rules-noisy@1", first=first, until=until)
    assert contents(tmp_path / "pieces") == contents(tmp_path / "whole")


def test_days_of_one_seed_are_not_taken_for_another_s(tmp_path: Path) -> None:
    replay(tmp_path, "mem0-rules-noisy@1", until=2)
    (tmp_path / "mem0-rules-noisy@1").rename(tmp_path / "mem0-rules-noisy@2")
    with pytest.raises(ReplayMismatchError, match=r"mem0-rules-noisy@2 .*reset mem0-rules-noisy@2 --from 2025-01-02"):
        replay(tmp_path, "mem0-rules-noisy@2", until=3)


def test_the_command_that_is_named_for_missing_days_names_the_seed(tmp_path: Path) -> None:
    told = "--mechanism mem0 --backbone rules-noisy --seed 2`"
    with pytest.raises(MissingPartitionError, match=told):
        replay(tmp_path, "mem0-rules-noisy@2", first=2)
