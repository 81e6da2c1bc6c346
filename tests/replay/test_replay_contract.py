"""The quick contract check refuses exactly what `tables.conform` refuses."""

import math

import pytest

from finevolve_pipeline.errors import TableError
from finevolve_pipeline.replay.contract import holds, schema_of, table_of
from finevolve_pipeline.tables import Comparison, InformationCoefficients, Predictions, Retrievals, conform

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
    "made_on": ["2025-01-02"],
    "similarity": [0.9],
    "q": [math.nan],
    "visits": [0],
    "selection_score": [0.9],
    "age": [1],
    "matured_share": [0.0],
    "news_overlap": [0.5],
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
        (RETRIEVALS, Retrievals, "age", 0),
        (RETRIEVALS, Retrievals, "matured_share", 1.5),
        (RETRIEVALS, Retrievals, "matured_share", math.nan),
        (RETRIEVALS, Retrievals, "news_overlap", -0.1),
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


def test_a_contract_with_a_rule_unknown_here_goes_the_long_way():
    assert not holds(schema_of(InformationCoefficients).empty_table(), InformationCoefficients)
    assert holds(schema_of(Comparison).empty_table(), Comparison)
