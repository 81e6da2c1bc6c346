"""What can be seen in a bundle alone: each check recomputes one thing, and says the first that is wrong.

A check is a function that gives back what it looked at, in words, or raises `Refuted`. None needs anything but the
bundle, so all of them together show that it agrees with itself and with the calendar, and no more: whoever invents a
whole run with everything that follows from it passes. What only data of one's own can show is in `own`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import pandas as pd

from finevolve_pipeline import calendar
from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.errors import FinEvolveError
from finevolve_pipeline.evaluation.bundle.content import CHECKSUMS, LICENCE, Content, Run, checksums, links_of
from finevolve_pipeline.evaluation.bundle.figures import (
    CODE,
    LABEL_BASE,
    TOLERANCE,
    TOLERANCES,
    Figures,
    figures_code,
    first_difference,
    labels_digest,
    labels_of,
)
from finevolve_pipeline.evaluation.comparison import PIPE
from finevolve_pipeline.llm.failures import REASKED
from finevolve_pipeline.mechanisms.base import sector_of
from finevolve_pipeline.mechanisms.expel import ExpeL
from finevolve_pipeline.mechanisms.mem0 import Mem0
from finevolve_pipeline.mechanisms.memrl import MemRL
from finevolve_pipeline.mechanisms.pipe import Pipe
from finevolve_pipeline.mechanisms.reflexion import Reflexion
from finevolve_pipeline.mechanisms.registry import code_digest
from finevolve_pipeline.replay.clock import INPUTS, NEWS
from finevolve_pipeline.replay.journal import APPEND, MATURE, Manifest
from finevolve_pipeline.tables import LEFT_OUT
from finevolve_pipeline.universe import BENCHMARK, CODES

_OTHER_CODE = "; it was packed by another version of this program: pack it again with this one"

LONGEST_NAME = 200
"""Characters of a model's name."""

_FAILURE = re.compile("[a-z_]{1,40}")

Status = Literal["ok", "failed", "not run"]
Place = tuple[str, str]
"""A sector-day: ISO session and code."""


LONGEST_LINE = 500
"""Characters of a message."""

MOST_DRAWS, MOST_TERMS = 20_000, 200
"""What a bundle may ask of whoever verifies it."""


@dataclass(frozen=True)
class Check:
    """The result of one check; `detail` says what was looked at, the first thing that is wrong, or why it was not
    run."""

    name: str
    status: Status
    detail: str


class Refuted(Exception):
    """Something in a bundle is not as it must be; the message says what."""


class NotRun(Exception):
    """A check that cannot be made here; the message says why, and what would make it possible."""


def checked(name: str, check: Callable[[], str]) -> Check:
    """Run a check."""
    try:
        return Check(name, "ok", check())
    except NotRun as why:
        return Check(name, "not run", one_line(why))
    except (Refuted, FinEvolveError) as wrong:
        return Check(name, "failed", one_line(wrong))


def one_line(told: object) -> str:
    """A message that may quote a hostile text, as one line that does nothing to a terminal."""
    text = str(told)[:LONGEST_LINE]
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def check_checksums(members: Mapping[str, bytes]) -> str:
    """Every member has the digest that stands in the list, and stands there once."""
    told = members.get(CHECKSUMS)
    if told is None:
        raise Refuted(f"{CHECKSUMS}: is missing")
    right = checksums(members)
    if told != right:
        lines = set(told.decode("utf-8", "replace").splitlines())
        first = next((line for line in right.decode().splitlines() if line not in lines), "")
        raise Refuted(f"{first[66:] or CHECKSUMS}: fails its checksum")
    return f"{len(members) - 1} members"


class Checker:
    """The checks of one bundle's content, and what several of them need."""

    def __init__(self, content: Content) -> None:
        self.content = content
        self.header = content.header

    def results(self) -> Iterator[Check]:
        """All checks, in order. The others need a sound window, so none is made without."""
        window = checked("window", self.window)
        yield window
        if window.status != "ok":
            return
        rows = checked("rows", self.rows)
        labels = checked("labels", self.labels)
        yield from (checked("settings", self.settings), rows, checked("chain", self.chain), labels)
        if "failed" in (rows.status, labels.status):
            return
        sound = True
        for name, check in (
            ("counts", self.counts),
            ("memories", self.memories),
            ("evidence", self.evidence),
            ("prompts", self.prompts),
            ("news", self.news),
        ):
            result = checked(name, check)
            sound = sound and result.status == "ok"
            yield result
        # Inference takes as long as all the rest; a run that breaks the rules has no figures to speak of.
        yield checked("figures", self.figures if sound else _in_vain)

    @cached_property
    def sessions(self) -> tuple[str, ...]:
        """The window as ISO sessions."""
        return tuple(session.isoformat() for session in self.header.sessions)

    @cached_property
    def found(self) -> Figures:
        """Figures that follow from the predictions and the closes."""
        return Figures(self.header, self.content.runs, self.outcomes)

    @cached_property
    def outcomes(self) -> pd.DataFrame:
        """Labels that follow from the closes."""
        return labels_of(self.header, self.content.closes)

    @cached_property
    def alpha(self) -> dict[tuple[str, str, int], float]:
        """Labels that are known, by session of the prediction, code and horizon."""
        known = self.outcomes[self.outcomes["alpha"].notna()]
        columns = (known[name].tolist() for name in ("predicted_on", "code", "horizon", "alpha"))
        return {(day, code, int(horizon)): alpha for day, code, horizon, alpha in zip(*columns, strict=True)}

    def window(self) -> str:
        """A window of the calendar, horizons, industries and runs as a benchmark has them, Pipe among them."""
        header, horizons = self.header, self.header.horizons
        for day in (header.first_session, header.last_session):
            if not calendar.is_session(day):
                raise Refuted(f"{day} is no session of the exchange, so the window cannot begin or end there")
        if not header.sessions:
            raise Refuted(f"no session between {header.first_session} and {header.last_session}")
        if list(horizons) != sorted(set(horizons)) or not 1 <= horizons[0] <= horizons[-1] <= 250:
            raise Refuted(f"horizons {list(horizons)} are not ascending numbers of sessions")
        if header.industries != tuple(code for code in CODES if code in header.industries):
            raise Refuted("the industries are not codes of the universe in its order")
        if header.evaluation.bootstrap_draws > MOST_DRAWS or header.evaluation.cosine_terms > MOST_TERMS:
            raise Refuted(f"its inference takes more than {MOST_DRAWS} draws or {MOST_TERMS} cosine terms")
        if header.evaluation.label_base != LABEL_BASE:
            raise Refuted(f"its labels are said to be over {header.evaluation.label_base}; bundles have {LABEL_BASE}")
        if not header.submitter.isprintable():
            raise Refuted("the submitter's name cannot be printed")
        if header.licence != LICENCE:
            raise Refuted("the licence note is another one than bundles have")
        keys = [run.key for run in self.content.runs]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise Refuted(f"run {twice} stands there twice")
        for run in self.content.runs:
            if not any(other.experiment.mechanism == PIPE for other in self._beside(run)):
                raise Refuted(f"run {run.key}: no Pipe of its backbone is there, so no difference can be told")
        return f"{len(header.sessions)} sessions, {header.first_session} to {header.last_session}; {', '.join(keys)}"

    def settings(self) -> str:
        """All runs are of this window, of one dataset, and asked under the same settings."""
        header, runs = self.header, self.content.runs
        for run in runs:
            told: dict[str, object] = {
                "experiment": run.key,
                "first_session": header.first_session.isoformat(),
                "horizons": list(header.horizons),
                "industries": list(header.industries),
            }
            for name, value in told.items():
                if run.identity.get(name) != value:
                    raise Refuted(f"run {run.key}: was made with {name} {str(run.identity.get(name))[:80]!r}")
        first = _shared(runs[0].identity)
        for run in runs[1:]:
            for name, value in _shared(run.identity).items():
                if first[name] != value:
                    raise Refuted(f"run {run.key}: {name} is {str(value)[:80]}, and {first[name]} in {runs[0].key}")
            for one in self._beside(run):
                if one.identity.get("backbone") != run.identity.get("backbone"):
                    raise Refuted(f"run {run.key}: its backbone was asked in another way than that of {one.key}")
            for mine, theirs in zip(run.days, runs[0].days, strict=False):
                if mine.inputs != theirs.inputs:
                    raise Refuted(f"run {run.key} {mine.session}: rests on other tables than {runs[0].key}")
        if header.dataset.news != news_digest(runs[0].days):
            raise Refuted("the dataset's digest is not that of the news windows that the days rest on")
        return f"{len(runs)} runs on one dataset under the same settings"

    def rows(self) -> str:
        """Every session, industry and horizon of the window is predicted once, and nothing else."""
        expected = [(day, code, h) for day in self.sessions for code in self.header.industries for h in self._horizons]
        for run in self.content.runs:
            frame = run.rows["predictions"]
            found = list(zip(*(frame[name].tolist() for name in ("session", "code", "horizon")), strict=True))
            if found != expected:
                raise Refuted(f"run {run.key}: {_odd_one(found, expected)}")
            self._require_whole(run, frame)
            for name in ("retrievals", "memories", "evidence"):
                stray = set(run.rows[name]["session"]) - set(self.sessions)
                if stray:
                    raise Refuted(f"run {run.key}: {name} has a row of {min(stray)}, which is no session of the window")
        return f"{len(expected)} predictions in each of {len(self.content.runs)} runs"

    def chain(self) -> str:
        """Days follow one another from the first session to the last, and rows belong to their days."""
        for run, header in zip(self.content.runs, self.header.runs, strict=True):
            days = [day.session for day in run.days]
            if days != list(self.header.sessions):
                raise Refuted(f"run {run.key}: {_odd_one(days, list(self.header.sessions))}")
            identity, parent = digest_json(run.identity), ""
            for day in run.days:
                where = f"run {run.key} {day.session}"
                if day.experiment != run.key:
                    raise Refuted(f"{where}: is a day of {day.experiment[:80]}")
                if day.identity != identity:
                    raise Refuted(f"{where}: was made with other settings or code than the manifest tells")
                if set(day.inputs) != set(INPUTS):
                    raise Refuted(f"{where}: rests on other tables than a replay reads")
                if day.digest != day.content_digest:
                    raise Refuted(f"{where}: its manifest does not have its own digest")
                if day.parent != parent:
                    raise Refuted(f"{where}: follows another day than the one before it")
                parent = day.digest
            for day, told, link in zip(run.days, run.links, links_of(run.days, run.rows), strict=True):
                if told != link:
                    raise Refuted(f"run {run.key} {day.session}: its rows are not those that it was linked with")
            if (header.head, header.link) != (run.head, run.links[-1]):
                raise Refuted(f"run {run.key}: its chain ends elsewhere than the manifest tells")
        return f"{len(self.content.runs)} chains of {len(self.sessions)} days, each bound to its rows"

    def labels(self) -> str:
        """Closes are of sessions and indices that labels need, and the labels' digest follows from them."""
        closes, sessions = self.content.closes, self.header.sessions
        table = calendar.all_sessions()
        end = min(calendar.session_index(sessions[-1]) + self._horizons[-1], len(table) - 1)
        needed = {day.isoformat() for day in calendar.sessions_between(sessions[0], table[end])}
        stray = sorted(set(closes["session"]) - needed)
        if stray:
            raise Refuted(f"closes of {stray[0]} are needed by no label")
        unknown = sorted(set(closes["code"]) - {*CODES, BENCHMARK})
        if unknown:
            raise Refuted(f"closes of {unknown[0]}, which is no index of the benchmark")
        if labels_digest(self.outcomes) != self.header.dataset.labels:
            raise Refuted("the labels that follow from the closes are not those that the manifest names")
        return f"{len(self.alpha)} labels from {len(closes)} closes"

    def counts(self) -> str:
        """What the days' manifests count is what their rows hold, and as many calls were made as that takes."""
        for run in self.content.runs:
            due = self._due(run)
            updates = _updates(run.identity)
            rows = _CountedRows(run)
            for position, day in enumerate(run.days):
                iso = day.session.isoformat()
                matured = len(self.header.industries) * sum(position >= h for h in self._horizons)
                told = rows.of(iso) | {"matured": matured, "undefined": matured - len(due.get(iso, ()))}
                if updates is not None:
                    told["updates"] = updates(due.get(iso, ()))
                for name, number in told.items():
                    if getattr(day.counts, name) != number:
                        raise Refuted(
                            f"run {run.key} {iso}: {name} is said to be {getattr(day.counts, name)}, and is {number}"
                        )
                _require_plain(run, day)
                _require_calls(run, day, rows.asked[iso])
        calls = sum(run.calls for run in self.content.runs)
        return f"{calls} calls, as many as the predictions and lessons of {len(self.sessions)} days take"

    def memories(self) -> str:
        """Every memory shown was made before, was available, is of its own sector, and rests on what was known."""
        number = 0
        for run in self.content.runs:
            made = _made(run)
            shown = run.rows["retrievals"].to_dict("records")
            for row in shown:
                self._require_past(run, row, made)
            number += len(shown)
            _require_ranks(run, shown)
        return f"{number} memories retrieved, each made before it was, of outcomes known by then"

    def evidence(self) -> str:
        """Every lesson rests on an outcome that became known that very day, and on its true value."""
        number = 0
        for run in self.content.runs:
            rows = run.rows["evidence"]
            number += len(rows)
            for session, code, predicted_on, horizon, alpha in rows.itertuples(index=False, name=None):
                where = f"run {run.key} {session} {code}: a lesson from {predicted_on} over {horizon} sessions"
                if predicted_on not in self._position or horizon not in self._horizons:
                    raise Refuted(f"{where}, which nobody predicted")
                if self._position[predicted_on] + horizon != self._position[session]:
                    raise Refuted(f"{where}, whose outcome did not become known that day")
                true = self.alpha.get((predicted_on, code, horizon))
                if true is None or abs(true - alpha) > TOLERANCE:
                    raise Refuted(f"{where}, alpha {alpha}, but it was {true}")
        return f"{number} outcomes behind lessons, each known that very day"

    def prompts(self) -> str:
        """Sectors without experience were asked Pipe's prompt, sectors with experience another; all saw one news. What
        is called Pipe asks a model about every sector-day, and keeps nothing."""
        for run in self.content.runs:
            if run.experiment.mechanism == PIPE:
                _require_pipe(run)
        number = 0
        for run in self.content.runs:
            pipe = next(one for one in self._beside(run) if one.experiment.mechanism == PIPE)
            shown = _places(run.rows["retrievals"][run.rows["retrievals"]["in_prompt"] != LEFT_OUT])
            reference = _sector_days(pipe)
            for place, mine in _sector_days(run).items():
                theirs = reference[place]
                where = f"run {run.key} {' '.join(place)}"
                if mine[1:] != theirs[1:]:
                    raise Refuted(
                        f"{where}: saw {mine[1]} articles and lacked {mine[2]}, Pipe {theirs[1]}, {theirs[2]}"
                    )
                if not mine[0]:
                    continue
                if (mine[0] == theirs[0]) == (place in shown):
                    what = "no other prompt than Pipe, though it was shown memories"
                    other = "another prompt than Pipe, though it was shown no memory"
                    raise Refuted(f"{where}: was asked {what if place in shown else other}")
                number += 1
        return f"{number} prompts beside Pipe's"

    def news(self) -> str:
        """Counts of articles by day and source; fewer are selected than there are."""
        news = self.content.news
        for day in news["day"].drop_duplicates():
            calendar.parse_day(day)
        many = news[news["selected"] > news["articles"]]
        if len(many):
            raise Refuted(f"news of {many.iloc[0]['day']} {many.iloc[0]['source']}: more selected than there are")
        return f"{int(news['articles'].sum())} articles by day and source, {int(news['selected'].sum())} selected"

    def figures(self) -> str:
        """Every figure that is claimed follows from the predictions and the closes."""
        for name, tolerance in TOLERANCES.items():
            wrong = first_difference(self.content.figures[name], self.found.table(name), tolerance)
            if wrong:
                is_other = self.header.made_by.get(CODE) != figures_code()
                raise Refuted(f"{name}: {wrong}{_OTHER_CODE if is_other else ''}")
        return ", ".join(f"{len(frame)} rows of {name}" for name, frame in self.found.all().items()) + " recomputed"

    @property
    def _horizons(self) -> tuple[int, ...]:
        return self.header.horizons

    @cached_property
    def _position(self) -> dict[str, int]:
        return {session: position for position, session in enumerate(self.sessions)}

    def _beside(self, run: Run) -> list[Run]:
        """All runs of a run's backbone."""
        return [one for one in self.content.runs if one.experiment.backbone == run.experiment.backbone]

    def _require_whole(self, run: Run, frame: pd.DataFrame) -> None:
        """A score is valid or says why not; a sector-day has one prompt, and no other sector-day has the same."""
        odd = frame[frame["score"].isna() != (frame["invalid"] != "")]
        if len(odd):
            row = odd.iloc[0]
            raise Refuted(f"run {run.key} {row['session']} {row['code']}: a score is missing without a reason, or not")
        each = ["prompt_digest", "articles", "articles_cut", "confidence"]
        several = frame.groupby(["session", "code"])[each].nunique(dropna=False)
        torn = several[(several > 1).any(axis=1)]
        if len(torn):
            raise Refuted(f"run {run.key} {' '.join(torn.index[0])}: its horizons are told of different prompts")
        asked = frame[frame["prompt_digest"] != ""].drop_duplicates(["session", "code"])
        twice = asked[asked["prompt_digest"].duplicated()]
        if len(twice):
            row = twice.iloc[0]
            raise Refuted(f"run {run.key} {row['session']} {row['code']}: has the prompt of another sector-day")

    def _due(self, run: Run) -> dict[str, list[str]]:
        """Sectors of the known outcomes of valid predictions, by the session they became known."""
        frame = run.rows["predictions"]
        valid = frame[frame["score"].notna()]
        due: dict[str, list[str]] = {}
        for session, code, horizon in zip(*(valid[n].tolist() for n in ("session", "code", "horizon")), strict=True):
            at = self._position[session] + horizon
            if at < len(self.sessions) and (session, code, horizon) in self.alpha:
                due.setdefault(self.sessions[at], []).append(code)
        return due

    def _require_past(self, run: Run, row: Mapping[Any, Any], made: Mapping[str, tuple[str, str]]) -> None:
        session, memory = row["session"], row["memory_id"]
        where = f"run {run.key} {session} {row['code']}: memory {memory}"
        if memory not in made:
            raise Refuted(f"{where} was never made")
        made_on, phase = made[memory]
        if row["available_from"] > session or made_on > session or (made_on == session and phase == APPEND):
            raise Refuted(f"{where} was not there yet")
        if memory[:10] != row["made_on"] or row["made_on"] != made_on or sector_of(memory) != row["code"]:
            raise Refuted(f"{where} is no one's of {row['made_on']} in that sector")
        at, born = self._position[session], self._position[made_on]
        after = self.sessions[born + 1] if born + 1 < len(self.sessions) else ""
        if row["available_from"] not in ((made_on, after) if phase == MATURE else (after,)):
            raise Refuted(f"{where} was available from {row['available_from']}, made on {made_on}")
        if row["age"] != at - born:
            raise Refuted(f"{where} is said to be {row['age']} sessions old, and is {at - born}")
        known = self._known_share(row, at, where)
        if row["matured_share"] > known + TOLERANCE:
            raise Refuted(
                f"{where}: {row['matured_share']:.2f} of its outcomes are said to be known, {known:.2f} could"
            )

    def _known_share(self, row: Mapping[Any, Any], at: int, where: str) -> float:
        """The share of a memory's outcomes whose day had come at a position of the window; its sources are checked."""
        learnt = row["available_from"] == row["made_on"]
        wait = (row["horizon"] or self._horizons[0]) if learnt else 1
        passed = 0
        for source in row["sources"]:
            born = self._position.get(source[:10])
            if born is None or born + wait > at:
                what = "whose outcome was not known" if learnt else "which was not made before"
                raise Refuted(f"{where} rests on {source}, {what}")
            passed += sum(born + horizon <= at for horizon in self._horizons)
        return passed / max(1, len(row["sources"]) * len(self._horizons))


class _CountedRows:
    """A run's rows, counted by session."""

    def __init__(self, run: Run) -> None:
        predictions, retrievals = run.rows["predictions"], run.rows["retrievals"]
        by_sector = predictions.drop_duplicates(["session", "code"])
        self.asked = Counter(by_sector.loc[by_sector["prompt_digest"] != "", "session"])
        self._counted = {
            "predictions": Counter(predictions["session"]),
            "invalid": Counter(predictions.loc[predictions["score"].isna(), "session"]),
            "retrievals": Counter(retrievals["session"]),
            "memories_cut": Counter(retrievals.loc[retrievals["in_prompt"] == LEFT_OUT, "session"]),
            "articles_cut": Counter(by_sector.groupby("session")["articles_cut"].sum().to_dict()),
        }

    def of(self, session: str) -> dict[str, int]:
        """Counts of a session, by their names in a manifest."""
        return {name: int(counted[session]) for name, counted in self._counted.items()}


def _in_vain() -> str:
    raise NotRun("other checks failed")


def news_digest(days: Sequence[Manifest]) -> str:
    """Digest over the digests of the news windows that days rest on."""
    return digest_json([day.inputs.get(NEWS, "") for day in days])


def _shared(identity: Mapping[str, Any]) -> dict[str, object]:
    """What runs of one dataset have in common, whatever their mechanism."""
    prompts = identity.get("prompts")
    told = prompts if isinstance(prompts, Mapping) else {}
    return {
        "scores": identity.get("scores"),
        "market_wide": identity.get("market_wide"),
        "language of prompts": told.get("language"),
        "news_tokens": told.get("news_tokens"),
        "code": identity.get("code"),
    }


def _odd_one(found: Sequence[Any], expected: Sequence[Any]) -> str:
    """The first place where a sequence is not what it must be."""
    for mine, theirs in zip(found, expected, strict=False):
        if mine != theirs:
            return f"{_told(mine)} stands where {_told(theirs)} must"
    if len(found) < len(expected):
        return f"{_told(expected[len(found)])} is missing"
    return f"{_told(found[len(expected)])} is beyond the window"


def _told(place: Any) -> str:
    return " ".join(map(str, place)) if isinstance(place, tuple) else str(place)


def _places(frame: pd.DataFrame) -> set[Place]:
    return set(zip(frame["session"].tolist(), frame["code"].tolist(), strict=True))


def _sector_days(run: Run) -> dict[Place, tuple[str, int, int]]:
    """Prompt digest, articles shown and cut, by sector-day."""
    frame = run.rows["predictions"].drop_duplicates(["session", "code"])
    columns = ("session", "code", "prompt_digest", "articles", "articles_cut")
    rows = zip(*(frame[name].tolist() for name in columns), strict=True)
    return {(day, code): (prompt, articles, cut) for day, code, prompt, articles, cut in rows}


def _made(run: Run) -> dict[str, tuple[str, str]]:
    """The session that each memory was made on, and in which phase."""
    made: dict[str, tuple[str, str]] = {}
    for session, phase, memory in run.rows["memories"].itertuples(index=False, name=None):
        if memory in made:
            raise Refuted(f"run {run.key} {session}: memory {memory} is made twice")
        if memory[:10] != session:
            raise Refuted(f"run {run.key} {session}: memory {memory} was made on another day than its name says")
        made[memory] = session, phase
    return made


def _require_ranks(run: Run, shown: Sequence[Mapping[Any, Any]]) -> None:
    """Ranks count from 1 within a sector-day, and no memory has two."""
    by_place: dict[Place, list[tuple[int, str]]] = {}
    for row in shown:
        by_place.setdefault((row["session"], row["code"]), []).append((row["rank"], row["memory_id"]))
    for place, ranked in by_place.items():
        if [rank for rank, _ in ranked] != list(range(1, len(ranked) + 1)):
            raise Refuted(f"run {run.key} {' '.join(place)}: ranks of its memories do not count from 1")
        if len({memory for _, memory in ranked}) < len(ranked):
            raise Refuted(f"run {run.key} {' '.join(place)}: a memory is retrieved twice")


def _require_pipe(run: Run) -> None:
    """A forecast without a model, or one with experience, would be no measure for the others."""
    predictions = run.rows["predictions"]
    unasked = predictions[predictions["prompt_digest"] == ""]
    if len(unasked):
        row = unasked.iloc[0]
        raise Refuted(f"run {run.key} {row['session']} {row['code']}: no model was asked, so it is not Pipe")
    for name in ("retrievals", "memories", "evidence"):
        if len(run.rows[name]):
            raise Refuted(f"run {run.key}: has {len(run.rows[name])} rows of {name}, so it is not Pipe")


def _require_plain(run: Run, day: Manifest) -> None:
    """Nothing is counted below zero, and names of failures and models are names."""
    numbers = (*day.usage.model_dump().values(), *day.counts.model_dump().values(), *day.failures.values())
    if min(numbers) < 0:
        raise Refuted(f"run {run.key} {day.session}: counts something below zero")
    odd = [name for name in day.failures if not _FAILURE.fullmatch(name)]
    odd += [name for name in day.models if not name.isprintable() or len(name) > LONGEST_NAME]
    if odd:
        raise Refuted(f"run {run.key} {day.session}: {odd[0][:80]!r} is no name of a failure or a model")


def _require_calls(run: Run, day: Manifest, asked: int) -> None:
    """One call a prompt, a lesson and a second question; more only where an attempt is counted as failed."""
    least = asked + day.counts.updates + day.failures.get(REASKED, 0)
    most = least + sum(day.failures.values())
    if not least <= day.usage.calls <= most:
        raise Refuted(f"run {run.key} {day.session}: {day.usage.calls} calls are told, its rows take {least}")


Updates = Callable[[Sequence[str]], int]
"""How many lessons a day has, from the sectors of its known outcomes."""

_CLOSED_FORMS: Mapping[type, Updates] = {
    Pipe: lambda due: 0,
    Mem0: lambda due: 0,
    MemRL: lambda due: 0,
    Reflexion: lambda due: len(set(due)),
    ExpeL: len,
}


def _updates(identity: Mapping[str, Any]) -> Updates | None:
    """The closed form of a mechanism's lessons; None where it is another mechanism, or of other code than here."""
    mechanism = identity.get("mechanism")
    code = mechanism.get("code") if isinstance(mechanism, Mapping) else None
    return next((form for kind, form in _CLOSED_FORMS.items() if code_digest(kind) == code), None)
