"""Backbones from settings: one object per `[backbones.<name>]` section that answers typed requests."""

from __future__ import annotations

from finevolve_pipeline.errors import SettingsError
from finevolve_pipeline.llm.requests import Backbone
from finevolve_pipeline.llm.rules.backbone import RulesBackbone
from finevolve_pipeline.settings import Settings


def build_backbone(name: str, settings: Settings) -> Backbone:
    """The backbone of that name in the settings.

    Raises:
        SettingsError: there is no such section.
    """
    section = settings.backbones.get(name)
    if section is None:
        known = ", ".join(sorted(settings.backbones))
        raise SettingsError(f"backbone {name!r}: not among {known}; add a [backbones.{name}] section")
    match section.kind:
        case "rules":
            return RulesBackbone()
