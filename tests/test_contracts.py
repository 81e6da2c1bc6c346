"""The quick contract check refuses exactly what `tables.conform` refuses."""

import math

import pandera.pandas as pandera
import pyarrow as pa
import pytest

from finevolve_pipeline.contracts import holds, table_of
from finevolve_pipeline.errors import TableError
from finevolve_pipeline.tables import (
    Contract,
    InformationCoefficients,
    Predictions,
    Retrievals,
    arrow_schema,
    conform,
)

PREDICTIONS = {
    "session": ["2025-01-02", "2025-01-02"],
    "experiment": ["pipe-rules"] * 2,
    "code": ["801010"] * 2,
    "horizon": [10, 20],
    "score": [0.5, math.nan],
    "invalid_reason": ["", "missing"],
    "confidence": [0.5, math.nan],
    "key_factor": ["需求"] * 2,
    "logic_chain": ["a → b"] * 2,
    "prompt_digest": ["0"] * 2,
    "articles": [3, 3],
    "articles_cut": [0, 0],
}
RETRIEVALS = {
    "session": ["2025-01-03"],
    "experiment": ["mem0-rules"],
    "code": ["801010"],
    "rank": [1],
    "memory_id": ["2025-01-02/801010"],
    "kind": ["trajectory"],
    "horizon": [0],
    "made_on": ["2025-01-02"],
    "available_from": ["2025-01-03"],
    "sources": [["2025-01-02/801010"]],
    "similarity": [0.9],
    "q": [math.nan],
    "visits": [0],
    "selection_score": [0.9],
    "age": [1],
    "matured_share": [0.0],
    "news_overlap": [0.5],
    "in_prompt": ["whole"],
}


@pytest.mark.parametrize(("columns", "contract"), [(PREDICTIONS, Predictions), (RETRIEVALS, Retrievals)])
def test_a_sound_table_passes_both_ways(columns, contract):
    table = table_of(columns, contract, "here")
    assert holds(table, contract)
    assert len(conform(table.to_pandas(), contract, "here")) == len(columns["session"])


@pytest.mark.parametrize(
    ("columns", "contract", "column", "value"),
    [
        (PREDICTIONS, Predictions, "score", 1.01),
        (PREDICTIONS, Predictions, "score", -1.01),
        (PREDICTIONS, Predictions, "horizon", 0),
        (PREDICTIONS, Predictions, "session", "2025-1-2"),
        (PREDICTIONS, Predictions, "code", None),
        (RETRIEVALS, Retrievals, "age", -1),
        (RETRIEVALS, Retrievals, "matured_share", 1.5),
        (RETRIEVALS, Retrievals, "matured_share", math.nan),
        (RETRIEVALS, Retrievals, "news_overlap", -0.1),
        (RETRIEVALS, Retrievals, "in_prompt", "somewhere"),
        (RETRIEVALS, Retrievals, "in_prompt", None),
    ],
)
def test_a_broken_rule_is_named_with_its_value(columns, contract, column, value):
    broken = {**columns, column: [value, *columns[column][1:]]}
    with pytest.raises(TableError, match=rf"^here: column '{column}'"):
        table_of(broken, contract, "here")


@pytest.mark.parametrize(
    ("column", "value"),
    [("articles", 2**31), ("articles", "many"), ("score", "high"), ("key_factor", "\ud800")],
)
def test_a_value_of_another_type_is_refused(column, value):
    with pytest.raises(TableError, match=rf"^here: column '{column}'"):
        table_of({**PREDICTIONS, column: [value, value]}, Predictions, "here")


def test_a_missing_column_is_named():
    with pytest.raises(TableError, match="here: column 'score' is missing"):
        table_of({k: v for k, v in PREDICTIONS.items() if k != "score"}, Predictions, "here")


class NotThree(Contract):
    """A contract with a rule that `contracts` does not know."""

    number: int = pandera.Field(ne=3)


def test_a_contract_with_a_rule_unknown_here_goes_the_long_way():
    table = pa.table({"number": pa.array([2, 4], pa.int64())})
    assert not holds(table, NotThree)
    assert table_of({"number": [2, 4]}, NotThree, "here") == table
    with pytest.raises(TableError, match="here: column 'number': 3 in row 1"):
        table_of({"number": [2, 3]}, NotThree, "here")


def test_a_value_outside_its_set_breaks_the_contract():
    row = {"backbone": "b", "mechanism": "m", "value": 0.1, "pipe": 0.1, "gain": 0.0, "experiment": "m-b"}
    row |= {"cells": "own", "stage": "overall", "metric": "tsIC", "method": "pearson", "horizon": 10, "defined": 1}
    row |= {"undefined": 0, "value_undefined_zero": 0.1, "pairs": 1, "coverage": 1.0}
    columns = {field.name: [row[field.name]] for field in arrow_schema(InformationCoefficients)}
    assert holds(table_of(columns, InformationCoefficients, "here"), InformationCoefficients)
    with pytest.raises(TableError, match="here: column 'stage': warm in row 0"):
        table_of({**columns, "stage": ["warm"]}, InformationCoefficients, "here")
