"""What made the report, as views: versions and digests by heading, and every effective setting.

What must not live here: HTML. Text is escaped by the template, whatever it holds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from finevolve_pipeline.evaluation.report.inputs import ReportInputs


@dataclass(frozen=True)
class ManifestView:
    """One heading of the manifest with its values, each as text."""

    heading: str
    values: tuple[tuple[str, str], ...]


def manifest(inputs: ReportInputs) -> tuple[ManifestView, ...]:
    """The manifests and the settings' digest, values as text."""
    views = [ManifestView("settings", (("digest", inputs.settings.digest),))]
    views += [
        ManifestView(str(heading), tuple((str(key), _plain(value)) for key, value in values.items()))
        for heading, values in inputs.manifests.items()
    ]
    return tuple(views)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def effective_settings(inputs: ReportInputs) -> str:
    """Every effective setting as indented JSON."""
    return json.dumps(inputs.settings.model_dump(mode="json"), ensure_ascii=False, indent=2)
