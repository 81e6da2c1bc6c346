"""How the seeds of a section and of an experiment become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.mechanisms.base import MechanismSettings
from finevolve_pipeline.mechanisms.seeding import STRIDE, combined, seeded
from finevolve_pipeline.settings import LARGEST_SEED

SECTION = st.integers(0, STRIDE - 1)
EXPERIMENT = st.integers(0, LARGEST_SEED)


class Drawing(MechanismSettings):
    shuffle_seed: int = Field(ge=0)
    random_seed: int = 5
    top_k: int = 3
    said_seed: str = "three"
    with_seed: bool = True


@given(own=st.integers(0, 2**40))
def test_experiment_seed_0_leaves_a_section_s_seed_as_it_is(own: int) -> None:
    assert combined("mechanisms.x.seed", own, 0) == own


@given(first=st.tuples(SECTION, EXPERIMENT), second=st.tuples(SECTION, EXPERIMENT))
def test_two_pairs_of_seeds_meet_only_if_they_are_the_same(first: tuple[int, int], second: tuple[int, int]) -> None:
    assert (combined("k", *first) == combined("k", *second)) == (first == second)
    assert combined("k", *first) < 2**31


def test_a_section_s_seed_that_would_meet_another_experiment_s_is_refused_by_its_key() -> None:
    with pytest.raises(SettingsError, match=rf"^mechanisms\.mine\.seed: {STRIDE} is too large .* below {STRIDE}"):
        combined("mechanisms.mine.seed", STRIDE, 1)


def test_whole_numbers_named_seed_are_combined_and_nothing_else() -> None:
    written = Drawing(shuffle_seed=1)
    assert seeded("mine", written, 0) == written
    made = seeded("mine", written, 2)
    assert made.model_dump() == written.model_dump() | {
        "shuffle_seed": 1 + 2 * STRIDE,
        "random_seed": 5 + 2 * STRIDE,
    }
    with pytest.raises(SettingsError, match=r"mechanisms\.mine\.shuffle_seed: "):
        seeded("mine", Drawing(shuffle_seed=STRIDE), 1)
