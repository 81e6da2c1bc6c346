"""What things are called on the pages: stages, cells, correlations, industries, kinds of experience.

What must not live here: sentences.
"""

from __future__ import annotations

from finevolve_pipeline.evaluation import ic
from finevolve_pipeline.evaluation.comparison import ALL_HORIZONS
from finevolve_pipeline.evaluation.report.words import Words
from finevolve_pipeline.evaluation.stages import COLD_START, EXPLOITATION, OVERALL
from finevolve_pipeline.universe import Industry

METHOD_NAMES = {"spearman": "Spearman", "pearson": "Pearson"}


def stage_name(stage: str, words: Words) -> str:
    """A stage as people write it."""
    names = {
        OVERALL: words("Overall"),
        COLD_START: words("Cold start"),
        EXPLOITATION: words("Exploitation"),
    }
    return names[stage]


def cells_name(cells: str, words: Words) -> str:
    """Which cells a coefficient is of."""
    return {ic.COMMON: words("common"), ic.OWN: words("own")}[cells]


def horizon_name(horizon: int, words: Words) -> str:
    """A horizon in sessions, or the mean over all: `10d`, `mean`."""
    return words("mean") if horizon == ALL_HORIZONS else f"{horizon}d"


def coefficient_name(metric: str, horizon: int, words: Words) -> str:
    """A coefficient with its horizon: `csIC 10d`, `csIC, mean`."""
    return words("{metric}, mean", metric=metric) if horizon == ALL_HORIZONS else f"{metric} {horizon}d"


def industry_names(industry: Industry, words: Words) -> str:
    """An industry's names: both in English, the Chinese one in Chinese."""
    names = {"en": f"{industry.name_zh} {industry.name_en}", "zh": industry.name_zh}
    return names[words.language]


def kind_name(kind: str, words: Words) -> str:
    """What a kind of experience is called; a mechanism's own kinds stay as they are."""
    names = {
        "trajectory": words("trajectory"),
        "reflection": words("reflection"),
        "insight": words("insight"),
        "reasoning_item": words("reasoning item"),
        "fact": words("fact"),
    }
    return names.get(kind, kind.replace("_", " "))
