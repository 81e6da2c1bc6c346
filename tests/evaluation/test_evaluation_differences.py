"""Differences from Pipe as figures need them, what runs cost beside them, and how retrieved memories are spread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from finevolve_pipeline.evaluation.diagnostics import retrieval_distribution
from finevolve_pipeline.evaluation.differences import forest_rows, industry_differences
from finevolve_pipeline.evaluation.spending import no_usage, spending, usage_table
from finevolve_pipeline.settings import Experiment
from finevolve_pipeline.tables import Inference, empty

PIPE, MEM0, MEMRL = (Experiment(mechanism=name, backbone="rules") for name in ("pipe", "mem0", "memrl"))
LONELY = Experiment(mechanism="mem0", backbone="other")


def inference(*rows: dict[str, Any]) -> pd.DataFrame:
    base = dict.fromkeys(empty(Inference).columns, np.nan) | {
        "backbone": "rules",
        "stage": "overall",
        "method": "spearman",
        "quantity": "difference",
    }
    return pd.DataFrame([{**base, **row} for row in rows])


def difference(mechanism: str, metric: str, horizon: int, estimate: float, **more: Any) -> dict[str, Any]:
    interval = {"low": estimate - 0.02, "high": estimate + 0.02, "p_holm": 0.3}
    return {"mechanism": mechanism, "metric": metric, "horizon": horizon, "estimate": estimate, **interval, **more}


def test_the_forest_holds_the_differences_of_one_stage_and_method_without_pipes_own() -> None:
    table = inference(
        difference("pipe", "csIC", 10, 0.0),
        difference("mem0", "csIC", 10, 0.03, p_holm=0.049),
        difference("mem0", "csIC", 20, 0.01, p_holm=0.05),
        difference("memrl", "csIC", 10, np.nan, p_holm=np.nan),
        difference("mem0", "csIC", 10, 9.0, method="pearson"),
        difference("mem0", "csIC", 10, 9.0, stage="cold_start"),
        difference("mem0", "csIC", 10, 9.0, quantity="level"),
    )
    rows = forest_rows(table, "overall", "spearman", 0.95)
    assert rows[["mechanism", "horizon"]].to_numpy().tolist() == [["mem0", 10], ["mem0", 20], ["memrl", 10]]
    assert rows["found"].tolist() == [True, False, False]
    assert forest_rows(table, "overall", "spearman", 0.94)["found"].tolist() == [True, True, False]
    assert forest_rows(empty(Inference), "overall", "spearman", 0.95).empty


def test_industries_are_paired_with_pipe_of_the_same_backbone() -> None:
    values = {PIPE: (0.1, 0.2), MEM0: (0.3, np.nan), LONELY: (0.5, 0.5)}
    industries = pd.DataFrame(
        [
            {"experiment": run.key, "code": code, "horizon": 10, "ic": value}
            for run, both in values.items()
            for code, value in zip(("801010", "801030"), both, strict=True)
        ]
    )
    found = industry_differences(industries, values)
    assert found[["backbone", "mechanism"]].to_numpy().tolist() == [["rules", "mem0"], ["rules", "mem0"]]
    assert found["difference"].tolist() == pytest.approx([0.2, np.nan], nan_ok=True)


def test_of_several_seeds_the_mean_is_paired_and_it_exists_only_if_each_has_a_value() -> None:
    again = Experiment(mechanism="mem0", backbone="rules", seed=1)
    values = {PIPE: (0.1, 0.2), MEM0: (0.3, 0.4), again: (0.5, np.nan)}
    industries = pd.DataFrame(
        [
            {"experiment": run.key, "code": code, "horizon": 10, "ic": value}
            for run, both in values.items()
            for code, value in zip(("801010", "801030"), both, strict=True)
        ]
    )
    assert industry_differences(industries, values)["difference"].tolist() == pytest.approx([0.3, np.nan], nan_ok=True)


def day(run: Experiment, session: str, cost: float, prompt: int = 100) -> dict[str, object]:
    return {
        "experiment": run.key,
        "session": session,
        "calls": 31,
        "prompt_tokens": prompt,
        "cached_prompt_tokens": 40,
        "completion_tokens": 10,
        "reasoning_tokens": 0,
        "cost": cost,
    }


def test_what_a_run_took_is_summed_over_its_days_and_set_beside_its_mean_gain() -> None:
    usage = usage_table(
        [day(PIPE, "2025-01-02", 0.5), day(PIPE, "2025-01-03", 0.5), day(MEM0, "2025-01-02", 2.0, prompt=700)]
    )
    table = inference(difference("mem0", "csIC", 0, 0.01), difference("mem0", "csIC", 10, 0.5))
    rows = spending(usage, table, [PIPE, MEM0, MEMRL], "spearman").set_index("experiment")
    assert list(rows.index) == ["pipe-rules", "mem0-rules"]
    assert rows.loc["pipe-rules", ["sessions", "calls", "prompt_tokens", "cost"]].tolist() == [2, 62, 200, 1.0]
    assert rows.loc["mem0-rules", ["gain_csIC", "low_csIC", "high_csIC"]].tolist() == pytest.approx([0.01, -0.01, 0.03])
    assert np.isnan(rows.loc["mem0-rules", "gain_tsIC"])
    assert np.isnan(rows.loc["pipe-rules", "gain_csIC"])


def test_without_usage_nothing_was_spent() -> None:
    assert spending(no_usage(), empty(Inference), [PIPE], "spearman").empty


def test_ages_and_shares_of_memories_are_spread_by_run_and_kind() -> None:
    retrievals = pd.DataFrame(
        {
            "experiment": "mem0-rules",
            "kind": ["trajectory"] * 4 + ["fact"],
            "age": [1, 1, 3, 9, 0],
            "matured_share": [0.0, 1 / 3, 1.0, 1.0, 0.0],
            "news_overlap": [0.0, 0.01, 0.05, 0.9, 0.2],
        }
    )
    found = (
        retrieval_distribution(retrievals, ["experiment", "kind"]).set_index(["kind", "quantity", "value"]).sort_index()
    )
    ages = found.loc[("trajectory", "age")]
    assert ages["memories"].to_dict() == {1.0: 2, 3.0: 1, 9.0: 1}
    assert ages["cumulative"].to_dict() == {1.0: 0.5, 3.0: 0.75, 9.0: 1.0}
    overlap = found.loc[("trajectory", "news_overlap"), "memories"]
    assert (overlap[0.0], overlap[0.05], overlap[0.9], overlap.sum()) == (1, 2, 1, 4)
    matured = found.loc[("trajectory", "matured_share"), "cumulative"]
    assert (matured[0.0], matured[0.3], matured[0.35], matured[1.0]) == (0.25, 0.25, 0.5, 1.0)
    assert found.loc[("fact", "age", 0.0), "cumulative"] == 1.0
    assert retrieval_distribution(retrievals.iloc[:0], ["experiment", "kind"]).empty
