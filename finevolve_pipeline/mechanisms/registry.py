"""Mechanisms by name: the built-in ones, and those that other packages offer under `finevolve.mechanisms`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import ValidationError

from finevolve_pipeline.digests import source_digest
from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.mechanisms.base import Mechanism, MechanismSettings
from finevolve_pipeline.mechanisms.mem0 import Mem0
from finevolve_pipeline.mechanisms.memrl import MemRL
from finevolve_pipeline.mechanisms.pipe import Pipe

GROUP = "finevolve.mechanisms"
"""Entry point group: name = the mechanism's name in the settings, object = a `Mechanism` subclass."""

BUILT_IN: Mapping[str, type[Mechanism]] = {"pipe": Pipe, "mem0": Mem0, "memrl": MemRL}


def mechanism_class(name: str) -> type[Mechanism]:
    """The mechanism of that name; a built-in one is never replaced by another package's.

    Raises:
        SettingsError: there is none, or an entry point is no mechanism.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in offered:
        known = ", ".join([*BUILT_IN, *sorted(offered)])
        raise SettingsError(
            f"mechanism {name!r}: not among {known}; correct [experiments] or install the package that offers it"
        )
    return _loaded(offered[name])


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
        return kind.settings_model.model_validate(dict(values))
    except ValidationError as broken:
        first = broken.errors()[0]
        key = ".".join(("mechanisms", name, *(str(part) for part in first["loc"])))
        known = ", ".join(kind.settings_model.model_fields) or "none"
        raise SettingsError(f"{key}: {first['msg']} (keys of {name}: {known})") from None


def code_digest(kind: type[Mechanism]) -> str:
    """Digest of the code behind a mechanism: the modules of its classes and those it names."""
    modules = {base.__module__ for base in kind.__mro__ if issubclass(base, Mechanism)}
    return source_digest(*sorted(modules | set(kind.code_modules)))
