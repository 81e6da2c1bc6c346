"""What the seed of an experiment changes: the samples a model is asked for, and what a mechanism draws itself.

Runs that differ in their seed alone are samples of one thing, so nothing random in them may be shared: neither with
each other nor with a section that has a seed of its own. So `pipe_aa`, whose section says seed 1, is no copy of `pipe`
with the experiment seed 1: copies do not differ, and would make the noise floor too low. Seed 0 changes nothing. No
prompt ever holds a seed.

What belongs here: how the seeds of a section and of an experiment become one. What must not: drawing anything.
"""

from __future__ import annotations

from typing import TypeVar

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.mechanisms.base import MechanismSettings

STRIDE = 2**20
"""Section seeds below it never meet those of another experiment seed; all fit into 31 bits, as some providers ask."""

DRAWN_BY = "_seed"
"""How the name of a mechanism's setting ends that is a seed, e.g. `shuffle_seed`."""

S = TypeVar("S", bound=MechanismSettings)


def combined(key: str, own: int, seed: int) -> int:
    """One seed from a section's and an experiment's: `own + 2**20 * seed`, so `own` for experiment seed 0.

    Args:
        key: where `own` stands in the settings, for the error text.
        own: seed of the section.
        seed: seed of the experiment.

    Raises:
        SettingsError: `own` is so large that two experiments would share their samples.
    """
    if seed and own >= STRIDE:
        raise SettingsError(
            f"{key}: {own} is too large beside [experiments] seeds, which need it below {STRIDE}; give a smaller one"
        )
    return own + STRIDE * seed


def seeded(name: str, settings: S, seed: int) -> S:
    """The settings of a mechanism as an experiment's seed makes them: its own seeds are combined with it.

    Its own seeds are the whole numbers whose names end in `_seed`.

    Args:
        name: of the section `[mechanisms.<name>]`.
        settings: as the section says.
        seed: of the experiment.

    Raises:
        SettingsError: one of them is too large (see `combined`).
    """
    own = {field: value for field, value in settings if field.endswith(DRAWN_BY) and type(value) is int}
    moved = {field: combined(f"mechanisms.{name}.{field}", value, seed) for field, value in own.items()}
    return settings.model_copy(update=moved)
