"""Backbones from settings: one object per `[backbones.<name>]` section that answers typed requests."""

from __future__ import annotations

from pathlib import Path

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.llm.requests import Backbone
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.settings import RulesSettings, Settings
from resources.model_backbone import ModelBackbone
from resources.outside import Outside


def build_backbone(name: str, settings: Settings, home: Path, experiment: str = "") -> Backbone:
    """The backbone of that name in the settings. Nothing is opened or asked before its first call.

    Args:
        name: of a [backbones] section.
        settings: effective settings.
        home: where answers are cached and spending is written down.
        experiment: on whose account its calls go; empty for the dataset (tagging).

    Raises:
        SettingsError: there is no such section.
    """
    section = settings.backbones.get(name)
    if section is None:
        known = ", ".join(sorted(settings.backbones))
        raise SettingsError(f"backbone {name!r}: not among {known}; add a [backbones.{name}] section")
    if isinstance(section, RulesSettings):
        return RulesBackbone(name, section.noise, section.seed)
    return ModelBackbone(name, section, Outside.of(settings, home), experiment)
