"""Table contracts: the one place for column names, types, units and meaning.

Every stored table is validated against its contract when written (`conform`); Dagster's column schema and the
documentation come from the same models. Times are `datetime64[us, Asia/Shanghai]`; sessions and days are
ISO dates as text (`2025-05-30`), so that they sort and join like partition keys. Missing numbers are NaN.
"""

from functools import lru_cache
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pandera.pandas as pa
import pyarrow
from pandera.errors import SchemaError, SchemaErrors

from finevolve_pipeline.errors import TableError

Time = Annotated[pd.DatetimeTZDtype, "us", "Asia/Shanghai"]
"""Column type of every time."""

TIME = "datetime64[us, Asia/Shanghai]"
_DAY = r"^\d{4}-\d{2}-\d{2}$"


def _text(description: str, **options: Any) -> Any:
    return pa.Field(description=description, **options)


class Contract(pa.DataFrameModel):
    """Base of all contracts: exact columns in order, types coerced where that loses nothing."""

    class Config:
        strict = True
        coerce = True
        ordered = True


class RawNews(Contract):
    """What a source sent, in canonical fields, one row per item. Partition: calendar day x source."""

    source: str = _text("source id, e.g. cls")
    source_id: str = _text("the source's own id of the item, or a digest of url and text where it has none")
    url: str = _text("address of the item, empty if unknown")
    title: str = _text("title as sent, may be empty")
    content: str = _text("body as sent, may be empty (hot lists have titles only)")
    published_at: Time = _text("first publication")
    modified_at: Time = _text("last modification, NaT if not given", nullable=True)
    crawled_at: Time = _text("when it was fetched, NaT for imported files", nullable=True)
    origin: str = _text("where the row came from: file:<name>, crawl, or a service such as tushare")
    industries_given: object = _text("industry codes that came with the row (official layout), else empty list")
    importance_given: float = _text("importance that came with the row, NaN if none", nullable=True)


class Articles(Contract):
    """Cleaned news, de-duplicated across sources, earliest kept. Partition: calendar day."""

    article_id: str = _text("stable id: digest of source and source_id", unique=True)
    source: str = _text("source of the kept (earliest) copy")
    source_id: str = _text("that source's id")
    url: str = _text("address of the kept copy")
    title: str = _text("clean title; a leading 【...】 of the body becomes the title")
    content: str = _text("clean body; empty where the source has a title only")
    published_at: Time = _text("first publication")
    origin: str = _text("where the kept copy came from: file:<name>, crawl, or a service such as tushare")
    duplicates: object = _text("later copies of the same day: list of source:source_id")
    industries_given: object = _text("industry codes that came with the row, else empty list")
    importance_given: float = _text("importance that came with the row, NaN if none", nullable=True)


class TaggedArticles(Contract):
    """Articles with industries and importance. Partition: calendar day."""

    article_id: str = _text("as in articles", unique=True)
    source: str = _text("as in articles")
    url: str = _text("as in articles")
    title: str = _text("as in articles")
    content: str = _text("as in articles")
    published_at: Time = _text("first publication")
    industries: object = _text("Shenwan level-1 codes, sorted list; empty unless scope is industry")
    scope: str = _text("industry, market or none", isin=["industry", "market", "none"])
    importance: np.int8 = _text("1 (trivial) to 10 (moves the market)", ge=1, le=10)
    importance_reason: str = _text("why, in words")
    topics: object = _text("topics, sorted list")
    tagger: str = _text("identity of the tagger: backbone, and digest of it and of its prompts")
    rejected_industries: object = _text("names the tagger gave for industries that are none, sorted list")


class BenchmarkNews(TaggedArticles):
    """Tagged articles with importance >= the threshold and a specific industry. Partition: calendar day."""


class NewsWindow(Contract):
    """Articles observable at a session's 24:00 cutoff, most important and newest first. Partition: session."""

    session: str = _text("the session", str_matches=_DAY)
    position: np.int32 = _text("order: importance descending, then newest, then id")
    article_id: str = _text("as in articles", unique=True)
    source: str = _text("as in articles")
    title: str = _text("as in articles")
    content: str = _text("as in articles")
    published_at: Time = _text("first publication, at or before the cutoff")
    industries: object = _text("Shenwan level-1 codes; empty for market-wide articles")
    importance: np.int8 = _text("1 to 10", ge=1, le=10)
    importance_reason: str = _text("why, in words")
    topics: object = _text("topics")


class Bars(Contract):
    """Daily bars of indices, one row per code. Partition: session. Missing numbers stay NaN."""

    session: str = _text("the session", str_matches=_DAY)
    code: str = _text("index code, six digits")
    open: float = _text("index points", gt=0, nullable=True)
    high: float = _text("index points", gt=0, nullable=True)
    low: float = _text("index points", gt=0, nullable=True)
    close: float = _text("index points", gt=0, nullable=True)
    volume: float = _text("shares", ge=0, nullable=True)
    amount: float = _text("yuan", ge=0, nullable=True)


class Outcomes(Contract):
    """Realised returns. `matured_alpha` holds them by the session they become known, `alpha` by prediction day."""

    predicted_on: str = _text("session t of the prediction", str_matches=_DAY)
    matured_on: str = _text("session t+h (t+1+h from close_next), when the outcome is known", str_matches=_DAY)
    code: str = _text("industry code")
    horizon: np.int16 = _text("h in sessions", gt=0)
    close_from: float = _text("industry close on t, or where the label base starts, index points", nullable=True)
    close_to: float = _text("industry close on t+h, or where the label base ends, index points", nullable=True)
    industry_return: float = _text("close_to/close_from-1, fraction", nullable=True)
    benchmark_return: float = _text("the same of CSI1000, fraction", nullable=True)
    alpha: float = _text("industry_return - benchmark_return, fraction", nullable=True)


class LabelBases(Outcomes):
    """Realised returns by prediction day from every label base, for the evaluation only."""

    base: str = _text(
        "where the return starts: close_t: C(t+h)/C(t); open_next: C(t+h)/O(t+1); close_next: C(t+1+h)/C(t+1)",
        isin=["close_t", "open_next", "close_next"],
    )


class Predictions(Contract):
    """Frozen predictions, one row per industry and horizon. Partition: session x experiment."""

    session: str = _text("session of the prediction", str_matches=_DAY)
    experiment: str = _text("mechanism-backbone, with @seed where it is not 0")
    code: str = _text("industry code")
    horizon: np.int16 = _text("h in sessions", gt=0)
    score: float = _text("score in [-1, 1]; NaN where invalid", ge=-1, le=1, nullable=True)
    invalid_reason: str = _text("why the score is invalid, empty if valid")
    confidence: float = _text("the model's confidence in [0, 1], NaN if not given", nullable=True)
    key_factor: str = _text("the factor the model names first")
    logic_chain: str = _text("the model's reasoning")
    prompt_digest: str = _text("digest of the exact prompt")
    articles: np.int32 = _text("articles shown")
    articles_cut: np.int32 = _text("articles that the news budget cut")


WHOLE, SHORTENED, LEFT_OUT = "whole", "shortened", "left out"
"""How a retrieved memory stood in the prompt (`Retrievals.in_prompt`)."""


class Retrievals(Contract):
    """Every memory retrieved for a prediction. Partition: session x experiment."""

    session: str = _text("session of the prediction", str_matches=_DAY)
    experiment: str = _text("mechanism-backbone, with @seed where it is not 0")
    code: str = _text("industry code")
    rank: np.int16 = _text("1 = first")
    memory_id: str = _text("id of the memory")
    kind: str = _text("trajectory, reflection, insight, reasoning_item, fact or rule")
    horizon: np.int16 = _text("the horizon it is for, in sessions; 0 = all", ge=0)
    made_on: str = _text("session the memory was made", str_matches=_DAY)
    available_from: str = _text("first session on which it may be shown", str_matches=_DAY)
    sources: object = _text("ids of the predictions it rests on")
    similarity: float = _text("cosine to the present news block, NaN if not used", nullable=True)
    q: float = _text("utility Q when retrieved, NaN if the mechanism has none", nullable=True)
    visits: np.int32 = _text("Q updates so far")
    selection_score: float = _text("the number the final ranking used", nullable=True)
    age: np.int32 = _text("sessions since it was made; 0: today, from outcomes", ge=0)
    matured_share: float = _text("share of its sources' horizons whose outcome is known", ge=0, le=1)
    news_overlap: float = _text("Jaccard of its sources' article ids and today's", ge=0, le=1)
    in_prompt: str = _text(
        f"how it stood in the prompt: {WHOLE}, {SHORTENED}, or {LEFT_OUT} (what experience_tokens cut)",
        isin=[WHOLE, SHORTENED, LEFT_OUT],
    )


class InformationCoefficients(Contract):
    """Information coefficients in long form. Partition: experiment (own cells), or one table (`ic_matrix`)."""

    experiment: str = _text("mechanism-backbone, with @seed where it is not 0")
    mechanism: str = _text("experience mechanism")
    backbone: str = _text("LLM backbone")
    cells: str = _text("own: all valid cells of the run; common: valid in every compared run", isin=["own", "common"])
    stage: str = _text("cold_start, exploitation or overall", isin=["cold_start", "exploitation", "overall"])
    horizon: np.int16 = _text("h in sessions")
    metric: str = _text("tsIC: mean over industries; csIC: mean over days", isin=["tsIC", "csIC"])
    method: str = _text("spearman or pearson", isin=["spearman", "pearson"])
    value: float = _text("the coefficient, NaN if none is defined", nullable=True)
    defined: np.int32 = _text("correlations that entered the mean")
    undefined: np.int32 = _text("correlations left out: constant or too few pairs")
    value_undefined_zero: float = _text("the mean with undefined counted as 0", nullable=True)
    pairs: np.int32 = _text("valid (score, alpha) cells")
    coverage: float = _text("valid cells / cells of the grid whose label exists", ge=0, le=1, nullable=True)


class Comparison(Contract):
    """Gain over Pipe, as in Table 2: one row per mechanism, stage, metric, method and horizon. Means over seeds."""

    backbone: str = _text("LLM backbone")
    mechanism: str = _text("experience mechanism")
    stage: str = _text("cold_start, exploitation or overall")
    metric: str = _text("tsIC or csIC")
    method: str = _text("spearman or pearson")
    horizon: np.int16 = _text("h in sessions; 0 = mean over the horizons")
    value: float = _text("the coefficient on common cells", nullable=True)
    pipe: float = _text("Pipe's on the same cells", nullable=True)
    gain: float = _text("value - pipe", nullable=True)
    seeds: np.int16 = _text("runs of the mechanism that differ in their seed, and entered value", ge=1)


class Inference(Contract):
    """How far every coefficient, and every difference from Pipe, can be told from chance. Means over seeds."""

    backbone: str = _text("LLM backbone")
    mechanism: str = _text("experience mechanism")
    stage: str = _text("cold_start, exploitation or overall", isin=["cold_start", "exploitation", "overall"])
    metric: str = _text("tsIC or csIC", isin=["tsIC", "csIC"])
    method: str = _text("spearman or pearson", isin=["spearman", "pearson"])
    horizon: np.int16 = _text("h in sessions; 0 = mean over the horizons (differences only)", ge=0)
    quantity: str = _text("level: the coefficient; difference: from Pipe, paired", isin=["level", "difference"])
    estimate: float = _text("the coefficient or the difference, on common cells; NaN if undefined", nullable=True)
    standard_error: float = _text("of the estimate", ge=0, nullable=True)
    degrees: float = _text("degrees of freedom of the t distribution that the test and the interval use", nullable=True)
    low: float = _text("lower end of the interval (evaluation.confidence)", nullable=True)
    high: float = _text("upper end", nullable=True)
    p: float = _text("two-sided p-value of zero by the default test", ge=0, le=1, nullable=True)
    p_holm: float = _text("Holm's adjusted p: over backbone, stage, method and quantity", ge=0, le=1, nullable=True)
    p_bh: float = _text("Benjamini-Hochberg's, over the same tests", ge=0, le=1, nullable=True)
    p_newey_west: float = _text("Newey-West, lag h-1, normal", ge=0, le=1, nullable=True)
    p_fixed_b: float = _text("Newey-West, lag 2h, fixed-b critical values", ge=0, le=1, nullable=True)
    p_hansen_hodrick: float = _text(
        "Hansen-Hodrick, lag h-1; NaN if its variance is negative", ge=0, le=1, nullable=True
    )
    p_naive: float = _text("t test that takes days for independent; for comparison only", ge=0, le=1, nullable=True)
    minimum_detectable: float = _text("size that the test would find with power 0.8", ge=0, nullable=True)
    sessions: np.int32 = _text("sessions of the stage", ge=0)
    effective_sample: float = _text("sessions with a value / h: spans that do not overlap", ge=0, nullable=True)
    defined: np.int32 = _text("correlations that entered: days (csIC) or industries (tsIC)", ge=0)
    undefined: np.int32 = _text("correlations left out", ge=0)
    icir: float = _text("mean / standard deviation of those correlations, not annualised", nullable=True)
    positive_share: float = _text("share of them above zero", ge=0, le=1, nullable=True)
    hit_rate: float = _text("levels: share of cells whose score has the sign of alpha", ge=0, le=1, nullable=True)
    dispersion: float = _text("levels: mean over days of the scores' standard deviation", ge=0, nullable=True)
    coverage: float = _text("levels: common cells / cells whose label exists", ge=0, le=1, nullable=True)
    seeds: np.int16 = _text("seeds that entered", ge=1)
    seed_sd: float = _text("standard deviation of the estimate over seeds, NaN with one", ge=0, nullable=True)


class Sensitivity(Contract):
    """What the evaluation finds if one thing of it is changed: a row per variant, stage, coefficient and quantity."""

    variant: str = _text("headline, or the one thing that is changed; cutoff_change: after less before the cutoff")
    stage: str = _text("overall; exploitation for other splits of the stages", isin=["overall", "exploitation"])
    backbone: str = _text("LLM backbone")
    mechanism: str = _text("experience mechanism")
    metric: str = _text("tsIC or csIC", isin=["tsIC", "csIC"])
    method: str = _text("spearman or pearson", isin=["spearman", "pearson"])
    horizon: np.int16 = _text("h in sessions; 0 = mean over the horizons (differences only)", ge=0)
    quantity: str = _text("level: the coefficient; difference: from Pipe, paired", isin=["level", "difference"])
    cells: str = _text("own (a difference: those of the mechanism and of Pipe) or common", isin=["own", "common"])
    label_base: str = _text("where returns start", isin=["close_t", "open_next", "close_next"])
    sessions: np.int32 = _text("sessions of the stage; of cutoff_change: of the shorter side", ge=0)
    estimate: float = _text("NaN if undefined", nullable=True)
    standard_error: float = _text("of the estimate", ge=0, nullable=True)
    degrees: float = _text("of freedom of its t distribution", nullable=True)
    low: float = _text("lower end of the interval (evaluation.confidence)", nullable=True)
    high: float = _text("upper end", nullable=True)
    p: float = _text("two-sided p-value of zero", ge=0, le=1, nullable=True)
    p_holm: float = _text("Holm's adjusted p: over variant, backbone and quantity", ge=0, le=1, nullable=True)
    finding: str = _text("above or below zero beyond noise by p_holm", isin=["above", "below", "noise", "untested"])
    change: str = _text("the finding beside the headline's", isin=["same", "new", "weaker", "reversed", "untested"])


CONTRACTS: dict[str, type[Contract]] = {
    "raw_news": RawNews,
    "articles": Articles,
    "tagged_articles": TaggedArticles,
    "benchmark_news": BenchmarkNews,
    "news_window": NewsWindow,
    "industry_bars": Bars,
    "benchmark_bars": Bars,
    "matured_alpha": Outcomes,
    "alpha": Outcomes,
    "label_bases": LabelBases,
    "ic_by_experiment": InformationCoefficients,
    "ic_matrix": InformationCoefficients,
    "comparison": Comparison,
    "inference": Inference,
    "sensitivity": Sensitivity,
}
"""Contract of every stored table by name."""

LISTS = ("industries", "industries_given", "rejected_industries", "topics", "duplicates", "sources")


def conform(frame: pd.DataFrame, contract: type[Contract], where: str) -> pd.DataFrame:
    """The frame in its contract's exact form.

    Args:
        frame: the rows; index is dropped.
        contract: the contract to hold.
        where: table and partition, for the error text.

    Raises:
        TableError: a rule is broken; the text names column, rule, first bad value and its row.
    """
    columns = list(_rules(contract).columns)
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise TableError(f"{where}: column {missing[0]!r} is missing")
    try:
        checked = _rules(contract).validate(_with_text(frame.loc[:, columns].reset_index(drop=True), contract))
    except (SchemaError, SchemaErrors) as broken:
        raise TableError(f"{where}: {_first_line(broken)}") from broken
    return pd.DataFrame(checked)


@lru_cache
def _text_columns(contract: type[Contract]) -> tuple[str, ...]:
    return tuple(n for n, column in contract.to_schema().columns.items() if str(column.dtype).startswith("string"))


@lru_cache
def _rules(contract: type[Contract]) -> pa.DataFrameSchema:
    """The contract without the type of its text columns, which `_with_text` sets: pandera takes 5 ms for each."""
    schema = contract.to_schema()
    for name in _text_columns(contract):
        schema = schema.update_column(name, dtype=None, coerce=False)
    return schema


def _with_text(frame: pd.DataFrame, contract: type[Contract]) -> pd.DataFrame:
    """Text columns as `str`; missing values stay missing, so that the contract can refuse them."""
    other = [name for name in _text_columns(contract) if frame[name].dtype != "str"]
    return frame.astype(dict.fromkeys(other, "str")) if other else frame


def _first_line(broken: SchemaError | SchemaErrors) -> str:
    column = getattr(getattr(broken, "schema", None), "name", None) or "table"
    cases = getattr(broken, "failure_cases", None)
    if isinstance(cases, pd.DataFrame) and len(cases):
        first = cases.iloc[0]
        named = first.get("column")  # only SchemaErrors has the columns "column" and "check"
        column = named if isinstance(named, str) else column
        check = getattr(broken, "check", None)
        rule = first.get("check", getattr(check, "error", None) or check)
        row = "" if pd.isna(first["index"]) else f" in row {int(first['index'])}"
        return f"column {column!r}: {first['failure_case']}{row} breaks the contract ({rule})"
    return f"column {column!r}: {str(broken).splitlines()[0]}"


def empty(contract: type[Contract]) -> pd.DataFrame:
    """A table of the contract with no rows and the right types."""
    columns = contract.to_schema().columns
    frame = pd.DataFrame({name: pd.Series([], dtype=str(column.dtype)) for name, column in columns.items()})
    return conform(frame, contract, contract.__name__)


@lru_cache
def arrow_schema(contract: type[Contract]) -> pyarrow.Schema:
    """The contract as stored in parquet (lists of text for list columns)."""
    fields = []
    for name, column in contract.to_schema().columns.items():
        kind = str(column.dtype)
        if name in LISTS:
            arrow: pyarrow.DataType = pyarrow.list_(pyarrow.string())
        elif kind.startswith("datetime64"):
            arrow = pyarrow.timestamp("us", tz="Asia/Shanghai")
        elif kind.startswith("int"):
            arrow = pyarrow.type_for_alias(kind)
        elif kind.startswith("float"):
            arrow = pyarrow.float64()
        else:
            arrow = pyarrow.string()
        fields.append(pyarrow.field(name, arrow))
    return pyarrow.schema(fields)
