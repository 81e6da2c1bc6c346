"""Mechanisms by name: the built-in ones, and those that other packages offer under `finevolve.mechanisms`."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import ValidationError

from finevolve_pipeline.digests import source_digest
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.mechanisms.base import Event, Mechanism, MechanismSettings
from finevolve_pipeline.mechanisms.baselines import Momentum, NewsVolume, Random, Reversal, Zero
from finevolve_pipeline.mechanisms.canaries import OracleCanary
from finevolve_pipeline.mechanisms.expel import ExpeL
from finevolve_pipeline.mechanisms.expel_original import ExpeLOriginal
from finevolve_pipeline.mechanisms.mem0 import Mem0
from finevolve_pipeline.mechanisms.mem0_full import Mem0Full
from finevolve_pipeline.mechanisms.memrl import MemRL
from finevolve_pipeline.mechanisms.memrl_original import MemRLOriginal
from finevolve_pipeline.mechanisms.pipe import Pipe
from finevolve_pipeline.mechanisms.placebos import RandomRetrieval, ShuffledOutcomes, StaleMemories
from finevolve_pipeline.mechanisms.reasoningbank import ReasoningBank
from finevolve_pipeline.mechanisms.reflexion import Reflexion
from finevolve_pipeline.mechanisms.reflexion_original import ReflexionOriginal
from finevolve_pipeline.settings import Settings

KIND = "kind"
"""Key of a section that says whose settings these are; its own name if there is none."""

SEED = "seed"
"""Key of a section: with another seed the model is asked anew, by the same prompts. 0 if there is none."""

GROUP = "finevolve.mechanisms"
"""Entry point group: name = the mechanism's name in the settings, object = a `Mechanism` subclass."""

BUILT_IN: Mapping[str, type[Mechanism]] = {
    # The paper's six.
    "pipe": Pipe,
    "mem0": Mem0,
    "memrl": MemRL,
    "reflexion": Reflexion,
    "expel": ExpeL,
    "reasoningbank": ReasoningBank,
    # As in their own publications, where those differ.
    "mem0_full": Mem0Full,
    "memrl_original": MemRLOriginal,
    "reflexion_original": ReflexionOriginal,
    "expel_original": ExpeLOriginal,
    # Controls: experience of which nothing can be learnt, a leak that must be caught, forecasts that cost nothing.
    "placebo_random": RandomRetrieval,
    "placebo_shuffled": ShuffledOutcomes,
    "placebo_stale": StaleMemories,
    "oracle_canary": OracleCanary,
    "zero": Zero,
    "random": Random,
    "momentum": Momentum,
    "reversal": Reversal,
    "news_volume": NewsVolume,
}


def mechanism_class(name: str, section: Mapping[str, Any] | None = None) -> type[Mechanism]:
    """The mechanism of an experiment; a built-in one is never replaced by another package's.

    Args:
        name: in the settings.
        section: `[mechanisms.<name>]`. Its `kind` says whose mechanism it is, `name` itself if there is none: so one
            mechanism can be tried with several settings, each under a name of its own.

    Raises:
        SettingsError: there is none, or an entry point is no mechanism.
    """
    kind = (section or {}).get(KIND, name)
    if not isinstance(kind, str):
        raise SettingsError(f"mechanisms.{name}.{KIND}: {kind!r} is no text; name a mechanism, or leave it out")
    if name in BUILT_IN and kind != name:
        raise SettingsError(f"mechanisms.{name}.{KIND}: {name} is a mechanism itself; give this section another name")
    if kind in BUILT_IN:
        return BUILT_IN[kind]
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if kind not in offered:
        known = ", ".join([*BUILT_IN, *sorted(offered)])
        where = f"the `kind` of [mechanisms.{name}]" if kind != name else "[experiments]"
        raise SettingsError(
            f"mechanism {kind!r}: not among {known}; correct {where}, or install the package that offers it"
        )
    return _loaded(offered[kind])


def recalls(kind: type[Mechanism]) -> bool:
    """Whether its predictions may be shown experience."""
    return kind.retrieve is not Mechanism.retrieve


def without_experience(settings: Settings) -> frozenset[str]:
    """The compared mechanisms that add none to Pipe: Pipe itself, other samples of it, forecasts without a model.

    Raises:
        SettingsError: as `mechanism_class`.
    """
    sections = settings.mechanisms
    return frozenset(
        name for name in settings.experiments.mechanisms if not recalls(mechanism_class(name, sections[name]))
    )


def section_doubts(sections: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Sections `[mechanisms.<name>]` that configure nothing there is, with what may be meant."""
    known = [*BUILT_IN, *(point.name for point in entry_points(group=GROUP))]
    doubts = []
    for name, section in sections.items():
        kind = section.get(KIND, name)
        if kind in known:
            continue
        key = f"mechanisms.{name}" + (f".{KIND}" if KIND in section else "")
        if not isinstance(kind, str):
            doubts.append(f"{key}: {kind!r} is no text; name a mechanism")
            continue
        nearest = get_close_matches(kind, known, 1)
        meant = f"do you mean {nearest[0]}?" if nearest else f"name one with `{KIND}`, or install what offers it"
        doubts.append(f"{key}: no mechanism {kind!r}; {meant}")
    return tuple(doubts)


def hidden_entry_points() -> tuple[str, ...]:
    """What other packages offer under the name of a built-in mechanism, so that it is never used."""
    return tuple(
        f"{point.name} of {point.dist.name if point.dist else point.value} is ignored: a built-in mechanism of that "
        "name is never replaced; the package must offer it under another one"
        for point in entry_points(group=GROUP)
        if point.name in BUILT_IN
    )


def _loaded(point: EntryPoint) -> type[Mechanism]:
    try:
        found = point.load()
    except (ImportError, AttributeError) as broken:
        raise SettingsError(
            f"mechanism {point.name!r}: entry point {point.value} cannot be loaded: {broken}"
        ) from broken
    if not (isinstance(found, type) and issubclass(found, Mechanism)):
        raise SettingsError(
            f"mechanism {point.name!r}: entry point {point.value} is no subclass of mechanisms.base.Mechanism"
        )
    return found


def mechanism_settings(name: str, kind: type[Mechanism], values: Mapping[str, Any]) -> MechanismSettings:
    """The typed settings of a mechanism from its section `[mechanisms.<name>]`.

    Raises:
        SettingsError: an unknown key, a missing one, or a value that is not allowed.
    """
    try:
        return kind.settings_model.model_validate(
            {key: value for key, value in values.items() if key not in (KIND, SEED)}
        )
    except ValidationError as broken:
        first = broken.errors()[0]
        key = ".".join(("mechanisms", name, *(str(part) for part in first["loc"])))
        known = ", ".join(kind.settings_model.model_fields) or "none"
        raise SettingsError(f"{key}: {first['msg']} (keys of {name}: {known})") from None


def sample_seed(name: str, values: Mapping[str, Any]) -> int:
    """The seed in the section of a mechanism.

    Raises:
        SettingsError: it is no whole number from 0 on.
    """
    seed = values.get(SEED, 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise SettingsError(f"mechanisms.{name}.{SEED}: {seed!r} is no whole number from 0 on")
    return seed


def code_digest(kind: type[Mechanism]) -> str:
    """Digest of the code behind a mechanism: the modules of its classes, of its events, and those it names."""
    modules = {base.__module__ for base in kind.__mro__ if issubclass(base, Mechanism)}
    modules |= {base.__module__ for event in kind.events for base in event.__mro__ if issubclass(base, Event)}
    try:
        return source_digest(*sorted(modules | set(kind.code_modules)))
    except ModuleNotFoundError as unknown:
        raise SettingsError(f"mechanism {kind.__name__}: its code cannot be identified ({unknown})") from None
