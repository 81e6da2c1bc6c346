"""Digests tell content apart, and only content."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from finevolve_pipeline import digests
from finevolve_pipeline.digests import digest_table


def test_json_digest_ignores_the_order_of_keys() -> None:
    assert digests.digest_json({"a": 1, "b": [1, 2]}) == digests.digest_json({"b": [1, 2], "a": 1})
    assert digests.digest_json({"a": 1, "b": [1, 2]}) != digests.digest_json({"a": 1, "b": [2, 1]})


def test_json_digest_refuses_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        digests.digest_json({"alpha": float("nan")})


def test_text_digest_takes_broken_unicode() -> None:
    assert digests.digest_text("\ud800") != digests.digest_text("\ud801")


FRAME = pd.DataFrame({"code": ["801010", "801030"], "close": [1.0, np.nan], "topics": [["a"], []]})


@pytest.mark.parametrize(
    "other",
    [
        FRAME.iloc[::-1],
        FRAME.assign(close=[1.0, 2.0]),
        FRAME.assign(close=[np.nextafter(1.0, 2.0), np.nan]),
        FRAME.rename(columns={"close": "open"}),
        FRAME.assign(topics=[["a"], ["b"]]),
    ],
    ids=["row order", "a value", "the last bit", "a column's name", "a list"],
)
def test_frame_digest_sees(other: pd.DataFrame) -> None:
    assert digests.digest_frame(other) != digests.digest_frame(FRAME)


def test_frame_digest_ignores_index_and_how_the_frame_came_about() -> None:
    parts = pd.concat([FRAME.iloc[:1], FRAME.iloc[1:]]).set_axis([7, 8])
    assert digests.digest_frame(parts) == digests.digest_frame(FRAME)


def test_frame_digest_survives_parquet(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "frame.parquet")
    assert digests.digest_frame(pd.read_parquet(tmp_path / "frame.parquet")) == digests.digest_frame(FRAME)


PLAIN = "def f(x):\n    return x + 1\n"
REWORDED = "# why\ndef f(x):\n    'what'\n    return (x + 1)  # one\n"
CHANGED = "def f(x):\n    return x + 2\n"


def test_source_digest_sees_code_and_data_but_no_comment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def digest_of(version: str, code: str, data: str) -> str:
        package = tmp_path / version / "digested_package"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "rules.py").write_text(code)
        (package / "lexicon.toml").write_text(data)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(tmp_path / version)
            return digests.source_digest("digested_package")

    plain = digest_of("plain", PLAIN, "up = 1")
    assert digest_of("reworded", REWORDED, "up = 1") == plain
    assert digest_of("changed", CHANGED, "up = 1") != plain
    assert digest_of("other data", PLAIN, "up = 2") != plain


def test_source_digest_names_a_module_that_does_not_exist() -> None:
    with pytest.raises(ModuleNotFoundError, match="finevolve_pipeline_absent"):
        digests.source_digest("finevolve_pipeline_absent")


def test_a_missing_number_has_one_digest_whatever_lies_under_it() -> None:
    one = pa.array([1.0, 5.0], mask=np.array([False, True]))
    other = pa.array([1.0, 7.0], mask=np.array([False, True]))
    zero = pa.array([1.0, 0.0])
    assert digest_table(pa.table({"x": one})) == digest_table(pa.table({"x": other}))
    assert digest_table(pa.table({"x": one})) != digest_table(pa.table({"x": zero}))


def test_missing_times_and_texts_can_be_digested() -> None:
    times = pa.array([None, 1], pa.timestamp("us", tz="Asia/Shanghai"))
    texts = pa.array([None, "a"], pa.string())
    empty = pa.array(["", "a"], pa.string())
    assert digest_table(pa.table({"t": times, "x": texts})) != digest_table(pa.table({"t": times, "x": empty}))
