"""The clocked gateway: the only way from stored tables to a mechanism or a prompt.

It stands at one session and answers for that session and earlier ones. A question about anything later, and
a table that holds something later than it may, raise `LookAheadError`. Two tables are read and no others:
`news_window` and `matured_alpha`.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.errors import LookAheadError, TableError
from finevolve_pipeline.graph import TableReader
from finevolve_pipeline.llm.tokens import TokenCount
from finevolve_pipeline.market.context import MarketContext, TrailingReturn
from finevolve_pipeline.mechanisms.base import Outcome
from finevolve_pipeline.news.block import NewsBlock, NewsItem
from finevolve_pipeline.news.window import blocks
from finevolve_pipeline.settings import Settings
from finevolve_pipeline.universe import CODES

NEWS = "news_window"
OUTCOMES = "matured_alpha"
INPUTS = (NEWS, OUTCOMES)
"""The tables a day of the replay rests on; the partition is the session."""


@dataclass(frozen=True)
class Visible:
    """How the tables are shown to every agent alike.

    Attributes:
        horizons: in sessions.
        market_wide: whether market-wide articles are shown.
        news_tokens: the news budget of a prompt.
        count: how the backbone counts them.
    """

    horizons: tuple[int, ...]
    market_wide: bool
    news_tokens: int
    count: TokenCount

    @classmethod
    def of(cls, settings: Settings, count: TokenCount) -> Visible:
        """As the settings say, for a backbone that counts so."""
        return cls(settings.benchmark.horizons, settings.news.market_wide, settings.prompts.news_tokens, count)


class Gateway:
    """Data up to the clock.

    Args:
        reader: the stored tables.
        visible: how they are shown.
    """

    def __init__(self, reader: TableReader, visible: Visible) -> None:
        self._reader = reader
        self._visible = visible
        self._clock: dt.date | None = None
        self._news: dict[dt.date, Mapping[str, NewsBlock]] = {}
        self._known_items: dict[str, NewsItem] = {}
        self._outcomes: tuple[dt.date, Mapping[str, tuple[Outcome, ...]]] | None = None

    @property
    def clock(self) -> dt.date | None:
        """The session it stands at; None before the first."""
        return self._clock

    def advance(self, session: dt.date) -> None:
        """Set the clock to a later session.

        Raises:
            LookAheadError: `session` is not later; what was learnt since would be shown to the past.
        """
        if self._clock is not None and session <= self._clock:
            raise LookAheadError(f"the replay's clock stands at {self._clock} and cannot be set back to {session}")
        if self._clock in self._news:
            self._news[self._clock] = _without_texts(self._news[self._clock])
        self._clock = session

    def view(self, asker: str) -> GatewayView:
        """The gateway for one asker, who is named if he asks for the future."""
        return GatewayView(self, asker)

    def news(self, session: dt.date, asker: str) -> Mapping[str, NewsBlock]:
        """The news block of every industry, as it stood at the cutoff of `session`.

        Raises:
            LookAheadError: `session` is after the clock, or the window holds an article from after its
                cutoff.
        """
        day = self._day_of_news(session, asker)
        return day if session == self._clock else _without_texts(day)

    def block(self, session: dt.date, code: str, asker: str) -> NewsBlock:
        """The news block of one industry; as `news`."""
        block = self._day_of_news(session, asker)[code]
        return block if session == self._clock else NewsBlock(block.items, block.cut)

    def outcomes(self, session: dt.date, asker: str) -> tuple[Outcome, ...]:
        """The outcomes that became known at the close of `session`: every horizon of every industry.

        Raises:
            LookAheadError: `session` is after the clock, or an outcome is from after `session`.
            TableError: an outcome is missing or does not belong to `session`.
        """
        self._require_known(session, asker, "outcomes")
        return tuple(outcome for own in self._day_of_outcomes(session).values() for outcome in own)

    def market(self, session: dt.date, code: str, asker: str) -> MarketContext:
        """The close of an industry and its trailing returns over each horizon, at the close of `session`.

        Raises:
            LookAheadError: `session` is after the clock.
        """
        self._require_known(session, asker, "market data")
        own = self._day_of_outcomes(session)[code]
        return MarketContext(
            close=own[0].close_to,
            trailing=tuple(TrailingReturn(one.horizon, one.industry_return, one.benchmark_return) for one in own),
        )

    def _day_of_news(self, session: dt.date, asker: str) -> Mapping[str, NewsBlock]:
        self._require_known(session, asker, "news")
        if session not in self._news:
            frame = self._reader.read(NEWS, session.isoformat())
            require_observable(frame, session)
            built = blocks(frame, CODES, self._visible.market_wide, self._visible.news_tokens, self._visible.count)
            self._news[session] = self._sharing_items(built)
        return self._news[session]

    def _day_of_outcomes(self, session: dt.date) -> Mapping[str, tuple[Outcome, ...]]:
        if self._outcomes is None or self._outcomes[0] != session:
            frame = self._reader.read(OUTCOMES, session.isoformat())
            self._outcomes = session, known_outcomes(frame, session, self._visible.horizons)
        return self._outcomes[1]

    def _require_known(self, session: dt.date, asker: str, what: str) -> None:
        if self._clock is None or session > self._clock:
            stood = "had not started" if self._clock is None else f"stood at {self._clock}"
            raise LookAheadError(f"{asker} asked for {what} of {session} while the clock {stood}")

    def _sharing_items(self, built: Mapping[str, NewsBlock]) -> Mapping[str, NewsBlock]:
        """The same blocks with one object an article.

        An article stands in the blocks of many sectors and of up to five sessions; without this the
        memories of a full window would hold its text many times over.
        """
        known: dict[str, NewsItem] = {}
        kept: dict[int, NewsItem] = {}  # by identity: within a session the blocks share their articles already
        for block in built.values():
            for item in block.items:
                if id(item) not in kept:
                    before = self._known_items.get(item.article_id)
                    known[item.article_id] = kept[id(item)] = before if before is not None and before == item else item
        self._known_items = known
        return {
            code: NewsBlock(tuple(kept[id(item)] for item in block.items), block.cut) for code, block in built.items()
        }


def _without_texts(day: Mapping[str, NewsBlock]) -> Mapping[str, NewsBlock]:
    """The blocks without the long texts they have cached; the articles keep theirs."""
    return {code: NewsBlock(block.items, block.cut) for code, block in day.items()}


class GatewayView:
    """The gateway bound to one asker."""

    def __init__(self, gateway: Gateway, asker: str) -> None:
        self._gateway = gateway
        self._asker = asker

    def news(self, session: dt.date) -> Mapping[str, NewsBlock]:
        """See `Gateway.news`."""
        return self._gateway.news(session, self._asker)

    def outcomes(self, session: dt.date) -> tuple[Outcome, ...]:
        """See `Gateway.outcomes`."""
        return self._gateway.outcomes(session, self._asker)

    def market(self, session: dt.date, code: str) -> MarketContext:
        """See `Gateway.market`."""
        return self._gateway.market(session, code, self._asker)


def require_observable(window: pd.DataFrame, session: dt.date) -> None:
    """Check that a news window holds only what could be read at the cutoff of its session.

    Args:
        window: `NewsWindow` of `session`.
        session: the session.

    Raises:
        LookAheadError: an article was published at the cutoff or later.
        TableError: a row belongs to another session.
    """
    if not len(window):
        return
    late = window["published_at"] >= pd.Timestamp(calendar.cutoff(session))
    if late.any():
        first = window.loc[late].iloc[0]
        raise LookAheadError(
            f"news_window {session}: article {first['article_id']} was published {first['published_at']}, "
            f"after the cutoff {calendar.cutoff(session)}; materialise news_window again"
        )
    others = window["session"] != session.isoformat()
    if others.any():
        raise TableError(
            f"news_window {session}: a row belongs to {window.loc[others, 'session'].iloc[0]}; "
            f"materialise news_window again"
        )


def known_outcomes(frame: pd.DataFrame, session: dt.date, horizons: Sequence[int]) -> Mapping[str, tuple[Outcome, ...]]:
    """The rows of `matured_alpha` of one session, checked: for every industry its outcomes by horizon.

    Args:
        frame: `Outcomes` of `session`.
        session: the session on which they became known.
        horizons: horizons wanted, in sessions.

    Raises:
        LookAheadError: an outcome became known after `session`.
        TableError: one is missing or stands there twice, or belongs to another session than the horizon says.
    """
    here = calendar.session_index(session)
    days = {text: dt.date.fromisoformat(text) for column in _DAYS for text in frame[column].unique()}
    rows = {
        (row[2], row[3]): Outcome(days[row[0]], days[row[1]], *row[2:])
        for row in zip(*(frame[column].tolist() for column in _COLUMNS), strict=True)
    }
    if len(rows) != len(frame):
        raise TableError(f"matured_alpha {session}: an outcome stands there twice; materialise matured_alpha again")
    for outcome in rows.values():
        if outcome.matured_on > session:
            raise LookAheadError(
                f"matured_alpha {session}: the outcome of {outcome.code} from {outcome.predicted_on} is "
                f"known on {outcome.matured_on} only; materialise matured_alpha again"
            )
    spans = {(o.predicted_on, o.matured_on, o.horizon) for o in rows.values()}
    for predicted_on, matured_on, horizon in sorted(spans):
        if matured_on != session or calendar.session_index(predicted_on) != here - horizon:
            raise TableError(
                f"matured_alpha {session}: an outcome from {predicted_on} to {matured_on} is not {horizon} "
                f"sessions up to {session}; materialise matured_alpha again"
            )
    try:
        return {code: tuple(rows[code, horizon] for horizon in horizons) for code in CODES}
    except KeyError as absent:
        code, horizon = absent.args[0]
        raise TableError(
            f"matured_alpha {session}: no row for {code} at horizon {horizon}; materialise matured_alpha again"
        ) from None


_DAYS = ("predicted_on", "matured_on")
_COLUMNS = (
    *_DAYS,
    "code",
    "horizon",
    "close_from",
    "close_to",
    "industry_return",
    "benchmark_return",
    "alpha",
)


def is_known(outcome: Outcome) -> bool:
    """Whether the outcome has a number; one with a missing close never matures."""
    return not math.isnan(outcome.alpha)
