"""Tables against their contracts, quickly.

`tables.conform` takes about ten milliseconds a table, whatever its size, and a run writes thousands of small
ones. Here the contract's own rules are asked of the Arrow columns at once; only a table that breaks one,
or a contract with a rule unknown here, goes to `tables.conform`, which names the rule, the value and the
row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from finevolve_pipeline.errors import TableError
from finevolve_pipeline.tables import Contract, arrow_schema, conform

Rule = Callable[[pa.ChunkedArray], bool]


def table_of(columns: Mapping[str, Sequence[Any] | pd.Series[Any]], contract: type[Contract], where: str) -> pa.Table:
    """Columns as a table that holds its contract. NaN becomes null, as in every stored table.

    Args:
        columns: values by column name, all of one length.
        contract: the contract to hold.
        where: table and partition, for the error text.

    Raises:
        TableError: a column is missing, a value is of another type, or a rule is broken.
    """
    arrays = []
    for field in arrow_schema(contract):
        if field.name not in columns:
            raise TableError(f"{where}: column {field.name!r} is missing")
        try:
            arrays.append(pa.array(columns[field.name], type=field.type, from_pandas=True))
        except (pa.ArrowException, UnicodeEncodeError, OverflowError) as broken:
            raise TableError(f"{where}: column {field.name!r}: {str(broken).splitlines()[0]}") from None
    table = pa.Table.from_arrays(arrays, schema=arrow_schema(contract))
    if not holds(table, contract):
        conform(table.to_pandas(), contract, where)
    return table


def holds(table: pa.Table, contract: type[Contract]) -> bool:
    """Whether every rule of the contract is known here and holds."""
    rules = _rules(contract)
    return rules is not None and all(rule(table[name]) for name, rule in rules)


@lru_cache
def _rules(contract: type[Contract]) -> tuple[tuple[str, Rule], ...] | None:
    """The contract's rules by column; None if one is unknown here."""
    rules: list[tuple[str, Rule]] = []
    for name, column in contract.to_schema().columns.items():
        if not column.nullable:
            rules.append((name, lambda values: values.null_count == 0))
        if column.unique:
            rules.append((name, lambda values: len(values.unique()) == len(values)))
        for check in column.checks:
            make = _KNOWN.get(check.name)
            if make is None:
                return None
            rules.append((name, make(**check.statistics)))
    return tuple(rules)


def _at_least(min_value: float) -> Rule:
    return lambda values: _least(values, min_value) >= min_value


def _above(min_value: float) -> Rule:
    return lambda values: _least(values, min_value + 1) > min_value


def _at_most(max_value: float) -> Rule:
    return lambda values: _greatest(values, max_value) <= max_value


def _matches(pattern: str) -> Rule:
    wanted = re.compile(pattern)
    return lambda values: all(wanted.match(value) for value in values.unique().to_pylist())


def _least(values: pa.ChunkedArray, otherwise: float) -> Any:
    found = pc.min(values).as_py()
    return otherwise if found is None else found


def _greatest(values: pa.ChunkedArray, otherwise: float) -> Any:
    found = pc.max(values).as_py()
    return otherwise if found is None else found


def _among(allowed_values: Sequence[Any]) -> Rule:
    return lambda values: set(values.unique().to_pylist()) <= {*allowed_values, None}


_KNOWN: Mapping[str, Callable[..., Rule]] = {
    "greater_than_or_equal_to": _at_least,
    "greater_than": _above,
    "less_than_or_equal_to": _at_most,
    "str_matches": _matches,
    "isin": _among,
}
