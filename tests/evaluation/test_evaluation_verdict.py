"""What may be said of a run: beyond noise, not beyond noise, not known; in English and in Chinese."""

from __future__ import annotations

import dataclasses
import math
import re

import pandas as pd
import pytest
from inferred import Inferred, inference, level

from finevolve_pipeline.evaluation.report.verdict_text import verdict_sentences
from finevolve_pipeline.evaluation.report.words import Words, chinese
from finevolve_pipeline.evaluation.verdict import Detectable, Finding, judge
from finevolve_pipeline.settings import EvaluationSettings, load_settings

SETTINGS = load_settings().evaluation

METRICS = ("tsIC", "csIC")

LEVELS = tuple(
    level(mechanism, metric, horizon, 0.02, 0.4, detectable=0.05)
    for mechanism in ("pipe", "mem0", "expel")
    for metric in METRICS
    for horizon in (10, 20)
)
"""No coefficient differs from zero beyond noise."""


def open_differences(*horizons: int, mechanisms: tuple[str, ...] = ("mem0", "expel")) -> tuple[Inferred, ...]:
    """Tested, not beyond noise, with sizes that could have been seen of 0.041 in both metrics."""
    return tuple(
        Inferred(mechanism, metric, horizon, 0.01, 0.7, 0.041)
        for mechanism in mechanisms
        for metric in METRICS
        for horizon in horizons
    )


AT_TWENTY = (
    Inferred("mem0", "csIC", 20, 0.031, 0.011, 0.025, half=0.019),
    Inferred("expel", "csIC", 20, -0.04, 0.3, 0.031),
    Inferred("mem0", "tsIC", 20, 0.001, 0.9, 0.03),
    Inferred("expel", "tsIC", 20, -0.0044, 0.0004, 0.03, half=0.002),
)
"""Mem0 lies above Pipe in csIC, ExpeL below in tsIC; the other two differences are open."""


def sentences(*rows: Inferred, settings: EvaluationSettings = SETTINGS) -> tuple[str, ...]:
    return verdict_sentences(inference(*rows), settings, Words())


# -- the verdict as data


def test_only_what_the_adjusted_p_puts_beyond_noise_is_found() -> None:
    (backbone,) = judge(inference(*LEVELS, *AT_TWENTY), SETTINGS).backbones
    (at_twenty,) = backbone.differences
    ts, cs = at_twenty.outcomes
    assert cs.found == (Finding("mem0", "csIC", 20, 0.031, pytest.approx(0.012), pytest.approx(0.05), 0.011),)
    assert [(finding.mechanism, finding.is_above) for finding in at_twenty.found] == [("expel", False), ("mem0", True)]
    assert (ts.open, cs.open) == (("mem0",), ("expel",))
    assert cs.detectable == Detectable(0.025, 0.031)
    assert not any(horizon.found for horizon in backbone.levels)


def test_a_large_difference_that_is_not_beyond_noise_stays_open() -> None:
    (backbone,) = judge(inference(*LEVELS, Inferred("mem0", "csIC", 10, 0.5, 0.051, 0.6)), SETTINGS).backbones
    outcome = backbone.differences[0].outcomes[1]
    assert (outcome.found, outcome.open, outcome.untested) == ((), ("mem0",), ("expel",))


def test_the_level_is_what_the_confidence_leaves() -> None:
    loose = SETTINGS.model_copy(update={"confidence": 0.6})
    assert not judge(inference(*LEVELS, *open_differences(10)), SETTINGS).backbones[0].differences[0].found
    verdict = judge(inference(*LEVELS, Inferred("mem0", "csIC", 10, 0.01, 0.39)), loose)
    assert verdict.level == 0.4
    assert [one.mechanism for one in verdict.backbones[0].differences[0].found] == ["mem0"]


def test_the_mean_over_the_horizons_comes_last_and_is_of_differences_only() -> None:
    (backbone,) = judge(inference(*LEVELS, *open_differences(0, 20, 10)), SETTINGS).backbones
    assert [one.horizon for one in backbone.differences] == [10, 20, 0]
    assert [one.horizon for one in backbone.levels] == [10, 20]


def test_stage_and_correlation_are_those_asked_for() -> None:
    rows = inference(*LEVELS, dataclasses.replace(AT_TWENTY[0], stage="cold_start", method="pearson"))
    assert judge(rows, SETTINGS).method == "spearman"
    (cold,) = judge(rows, SETTINGS, "cold_start", "pearson").backbones
    assert (cold.has_pipe, cold.mechanisms) == (False, ("mem0",))


def test_a_verdict_does_not_change() -> None:
    verdict = judge(inference(*LEVELS), SETTINGS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        verdict.stage = "cold_start"  # type: ignore[misc]


# -- the verdict in words


def test_no_difference_beyond_noise_is_told_with_what_could_have_been_seen() -> None:
    first, second, *_ = sentences(*LEVELS, *open_differences(10, 0))
    assert first == (
        "At 10 sessions no mechanism differs from Pipe beyond noise; only differences of about 0.041 tsIC and "
        "0.041 csIC or more could have been seen."
    )
    assert second.startswith("On average over the horizons no mechanism differs from Pipe beyond noise; ")


def test_a_difference_beyond_noise_is_told_with_direction_size_interval_and_adjusted_p() -> None:
    (told,) = (one for one in sentences(*LEVELS, *AT_TWENTY) if one.startswith("At 20 sessions"))
    assert told == (
        "At 20 sessions ExpeL lies below Pipe in tsIC (-0.0044, 95 % interval -0.0064 to -0.0024, adjusted p below "
        "0.001); Mem0 lies above Pipe in csIC (+0.031, 95 % interval 0.012 to 0.050, adjusted p 0.011); no other "
        "tested difference from Pipe goes beyond noise; only differences of about 0.03 tsIC and 0.025 to 0.031 csIC or "
        "more could have been seen."
    )


def test_where_every_difference_goes_beyond_noise_nothing_is_said_of_others() -> None:
    rows = [Inferred("mem0", metric, 10, 0.03, 0.01, 0.02) for metric in METRICS]
    told = sentences(*LEVELS[:8], *rows)
    assert told[0].endswith("Mem0 lies above Pipe in csIC (+0.030, 95 % interval 0.020 to 0.040, adjusted p 0.01).")


def test_not_found_is_never_called_equal() -> None:
    told = " ".join(sentences(*LEVELS, *open_differences(10, 20, 0)))
    assert "What is not beyond noise is not shown to be equal: a smaller difference may be there." in told
    assert not re.search(r"\b(same|identical|as good|no difference|no effect)\b", told)


def test_sizes_that_are_not_known_are_not_told() -> None:
    first, *_ = sentences(*LEVELS, Inferred("mem0", "csIC", 10, 0.01, 0.7), Inferred("mem0", "tsIC", 10, 0.01, 0.7))
    assert first == (
        "At 10 sessions none of the mechanisms that could be tested in tsIC and csIC differs from Pipe beyond noise."
    )


def test_mechanisms_that_could_not_be_tested_are_named_and_left_out_of_the_rest() -> None:
    rows = (
        *(Inferred("mem0", metric, 40, 0.01, 0.7, 0.05) for metric in METRICS),
        *(Inferred("expel", metric, 40, math.nan) for metric in METRICS),
    )
    first, second, *_ = sentences(*LEVELS, *rows)
    assert first.startswith("At 40 sessions none of the mechanisms that could be tested in tsIC and csIC differs")
    assert second == (
        "At 40 sessions ExpeL could not be tested in tsIC and csIC: undefined, or too few sessions or industries."
    )


def test_a_metric_that_could_not_be_tested_is_not_judged() -> None:
    first, second, *_ = sentences(*LEVELS[:8], Inferred("mem0", "csIC", 40, 0.01, 0.7, 0.05))
    assert first.startswith("At 40 sessions none of the mechanisms that could be tested in csIC differs from Pipe")
    assert second == "At 40 sessions Mem0 could not be tested in tsIC: undefined, or too few sessions or industries."


def test_sizes_that_no_correlation_has_are_not_told_as_sizes() -> None:
    known, beyond = (Inferred(name, "csIC", 10, 0.01, 0.7, size) for name, size in (("mem0", 0.28), ("expel", 1.2)))
    (both, *_), (alone, *_) = sentences(*LEVELS[:4], known, beyond), sentences(*LEVELS[:4], beyond)
    assert both.endswith("about 0.28 csIC (for some runs none: it would exceed 1) or more could have been seen.")
    assert alone.endswith("differs from Pipe beyond noise.")


def test_coefficients_that_could_not_be_tested_are_not_said_to_be_noise() -> None:
    rows = [level("pipe", "csIC", 10, 0.01, 0.7), level("pipe", "csIC", 40, 0.01, math.nan)]
    assert any("none of the runs' own coefficients that could be tested" in one for one in sentences(*rows))


def test_too_few_sessions_everywhere_leave_the_question_open() -> None:
    rows = [dataclasses.replace(one, p_holm=math.nan) for one in (*LEVELS, *open_differences(10, 0))]
    assert sentences(*rows) == (
        "On backbone rules no difference from Pipe could be tested: the coefficients are undefined, or the sessions "
        "are too few. Whether any mechanism differs is not known.",
        "On backbone rules no coefficient could be tested: undefined, or too few sessions.",
    )


def test_without_pipe_nothing_is_compared() -> None:
    first, *rest = sentences(*LEVELS[4:])
    assert first == "Backbone rules has no Pipe run, so nothing can be compared."
    assert "differs from Pipe" not in " ".join(rest)


def test_pipe_alone_is_judged_by_its_own_coefficients() -> None:
    first, second, *_ = sentences(*(level("pipe", "csIC", h, 0.03 if h == 10 else -0.03, 0.001) for h in (10, 20)))
    assert first == "On backbone rules only Pipe has been run, so nothing can be compared."
    assert second == "On backbone rules these coefficients lie above zero beyond noise: Pipe (csIC 10d)."
    told = " ".join(sentences(*(level("pipe", "csIC", h, 0.03 if h == 10 else -0.03, 0.001) for h in (10, 20))))
    assert (
        "lie below zero beyond noise, so the scores order the industries the wrong way round: Pipe (csIC 20d)" in told
    )


def test_runs_whose_coefficients_are_not_beyond_noise_are_not_said_to_predict() -> None:
    told = " ".join(sentences(*LEVELS, *open_differences(10)))
    assert (
        "no run's own coefficient differs from zero beyond noise: that any of them predicts is not shown; only "
        "coefficients of about 0.05 tsIC and 0.05 csIC or more could have been seen."
    ) in told


def test_a_twin_of_pipe_is_told_from_one_that_could_not_be_distinguished() -> None:
    twin = [Inferred("pipe_aa", metric, 10, 0.0, math.nan) for metric in METRICS]
    told = sentences(*LEVELS[:4], *(level("pipe_aa", metric, 10, 0.02, 0.4) for metric in METRICS), *twin)
    assert told[0] == (
        "On backbone rules the coefficients of Pipe A/A are exactly Pipe's, so there is nothing to test."
    )
    assert not any("differs from Pipe beyond" in one for one in told)


def test_nothing_tested_yet_is_no_finding() -> None:
    nothing = verdict_sentences(inference(*LEVELS).iloc[:0], SETTINGS, Words())
    assert nothing == ("Nothing has been tested yet, so any difference between runs may be chance.",)


def test_with_several_backbones_each_sentence_names_its_own() -> None:
    rows = (*LEVELS, *open_differences(10, 0))
    told = sentences(*rows, *(dataclasses.replace(one, backbone="other") for one in rows))
    assert told[0].startswith("On backbone rules, at 10 sessions, no mechanism differs")
    assert told[1].startswith("On backbone rules, on average over the horizons, no mechanism differs")
    assert sum("backbone other" in one for one in told) == 3


def test_words_are_explained_where_they_are_used() -> None:
    told = sentences(*LEVELS, *AT_TWENTY)
    assert "below 0.05" in told[-2]
    assert told[-1].startswith("Could have been seen: a true value of that size would be found four times out of five")
    strict = SETTINGS.model_copy(update={"confidence": 0.99})
    assert "is below 0.01." in sentences(*LEVELS, settings=strict)[-2]


SITUATIONS: dict[str, tuple[Inferred, ...]] = {
    "nothing found": (*LEVELS, *open_differences(10, 20, 0)),
    "something found": (*LEVELS, *AT_TWENTY, *open_differences(10)),
    "no Pipe": LEVELS[4:],
    "Pipe alone": (level("pipe", "csIC", 10, 0.03, 0.001), level("pipe", "tsIC", 10, -0.03, 0.001)),
    "untested": tuple(dataclasses.replace(one, p_holm=math.nan) for one in (*LEVELS, *open_differences(10))),
    "partly tested": (*LEVELS, Inferred("mem0", "csIC", 10, 0.01, 0.7, 0.05)),
    "a twin": (*LEVELS, *(Inferred("mem0", m, 10, 0.0, math.nan) for m in METRICS)),
    "two backbones": (
        *LEVELS,
        *open_differences(10, 0),
        *(dataclasses.replace(one, backbone="other") for one in (*LEVELS, *AT_TWENTY)),
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_chinese_tells_the_same_numbers_and_names(situation: str) -> None:
    frame = inference(*SITUATIONS[situation])
    english, translated = (verdict_sentences(frame, SETTINGS, Words(language)) for language in ("en", "zh"))
    assert len(english) == len(translated)
    for one, other in zip(english, translated, strict=True):
        assert re.search(r"[\u4e00-\u9fff]", other)
        figures = r"[+-]?\d+\.\d+"
        assert sorted(re.findall(figures, one)) == sorted(re.findall(figures, other))
        for name in ("Mem0", "ExpeL", "rules", "other"):
            if re.search(rf"\b{name}\b(?! tested)", one):
                assert name in other


def test_chinese_of_nothing_tested_exists() -> None:
    assert verdict_sentences(pd.DataFrame(inference(*LEVELS).iloc[:0]), SETTINGS, Words("zh"))[0] in chinese().values()


def test_names_are_told_as_they_are() -> None:
    frame = inference(*LEVELS, *AT_TWENTY)
    frame["mechanism"] = frame["mechanism"].replace("mem0", "{evil} <b>%s")
    assert any("{evil} <b>%s lies above Pipe in csIC" in one for one in verdict_sentences(frame, SETTINGS, Words()))
