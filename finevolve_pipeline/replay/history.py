"""A chain's own past: what it predicted, what it saw, and which of it has matured.

Predictions are recorded when they are frozen. Their news is not kept twice: it is the gateway's, read again
from the news window after a resume, and so are the vectors by which news is compared.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import lru_cache

from finevolve_pipeline.embedding import Embedder, NoVectors, Vectors
from finevolve_pipeline.errors import LookAheadError
from finevolve_pipeline.mechanisms.base import MaturedPrediction, Trajectory, memory_id, sector_of, session_of
from finevolve_pipeline.news.block import NewsBlock
from finevolve_pipeline.replay.clock import Gateway, is_known
from finevolve_pipeline.universe import CODES

_KEPT_TEXTS = 40 * len(CODES)


class History:
    """The past of one chain.

    Args:
        gateway: where its news comes from.
        embedder: how news is compared.
        horizons: in sessions.
        codes: the industries it predicts.
        asker: who is named if it reaches beyond the clock.
    """

    def __init__(
        self, gateway: Gateway, embedder: Embedder, horizons: tuple[int, ...], codes: tuple[str, ...], asker: str
    ) -> None:
        self._gateway = gateway
        self._embedder = embedder
        self._horizons = horizons
        self._row = {code: row for row, code in enumerate(codes)}
        self._asker = asker
        self._trajectories: dict[str, Trajectory] = {}
        self._matured: dict[str, int] = {}
        self._keys: dict[dt.date, Vectors] = {}
        # The same few memories are recalled day after day; their long texts are built once, and only these are kept.
        self._recalled_news = lru_cache(maxsize=_KEPT_TEXTS)(self._news)
        self._embedded = lru_cache(maxsize=_KEPT_TEXTS)(self._embed)

    def record(self, frozen: Sequence[Trajectory]) -> None:
        """Add the frozen predictions of a session."""
        self._trajectories.update((trajectory.memory_id, trajectory) for trajectory in frozen)

    def settle(self, matured: Sequence[MaturedPrediction]) -> None:
        """Note which horizons are known now; an undefined outcome never becomes known."""
        for one in matured:
            if is_known(one.outcome):
                made = one.prediction.memory_id
                self._matured[made] = self._matured.get(made, 0) + 1

    def made(self, session: dt.date, code: str) -> Trajectory | None:
        """The sector's prediction of a session, if this chain made one."""
        return self._trajectories.get(memory_id(session, code))

    def trajectory(self, memory: str) -> Trajectory:
        """The prediction that left the memory of that id.

        Raises:
            LookAheadError: no such prediction has been frozen yet.
        """
        found = self._trajectories.get(memory)
        if found is None:
            raise LookAheadError(f"{self._asker} asked for memory {memory}, which has not been made")
        return found

    def news(self, memory: str) -> NewsBlock:
        """The news block that this prediction saw. Raises `LookAheadError` beyond the clock."""
        return self._recalled_news(memory)

    def _news(self, memory: str) -> NewsBlock:
        return self._gateway.block(session_of(memory), sector_of(memory), self._asker)

    def key(self, memory: str) -> Vectors:
        """The vector of that news block, shape (dimensions,)."""
        vector: Vectors = self.keys(session_of(memory))[self._row[sector_of(memory)]]
        return vector

    def keys(self, session: dt.date) -> Vectors:
        """The vectors of all news blocks of a session, shape (predicted industries, dimensions), in the
        universe's order.

        They are made for all sectors in one batch, so that a live day and a resumed one embed the same
        texts together; and kept until the outcomes of the session are known, when some mechanisms want them again.
        """
        if isinstance(self._embedder, NoVectors):
            return self._embedder.embed([""] * len(self._row))  # so that no news has to be read
        if session not in self._keys:
            day = self._gateway.news(session, self._asker)
            self._keys[session] = self._embedder.embed([day[code].text for code in self._row])
            if len(self._keys) > max(self._horizons) + 1:
                del self._keys[min(self._keys)]
        return self._keys[session]

    def texts_cut(self, session: dt.date) -> int:
        """Of how many news blocks of a session the embedder read only the beginning."""
        day = self._gateway.news(session, self._asker)
        return self._embedder.cut([day[code].text for code in self._row])

    def matured_share(self, memory: str) -> float:
        """Share of its horizons whose outcome is known."""
        return self._matured.get(memory, 0) / len(self._horizons)

    def embed(self, text: str) -> Vectors:
        """The vector of a text of the mechanism's own, shape (dimensions,).

        Each text is embedded by itself, so that a resumed run embeds it just as a live one.
        """
        return self._embedded(text)

    def _embed(self, text: str) -> Vectors:
        vector: Vectors = self._embedder.embed([text])[0]
        return vector
