"""Prompts: a typed request becomes messages, the same ones for the same request, whatever machine or order.

What is the same for most requests stands first, so that providers can cache it: instructions, then the industry and its
news, which all mechanisms share, then experience, market data, and dates last. A past prediction that an update is told
of begins with its news and reasoning, which all its horizons share, and ends with horizon, score, outcome and dates.
Texts live in `prompts/*.md`, split into named parts; `common` has those that several kinds of prompt share. News and
everything a model once wrote is untrusted: it stands between delimiters that cannot occur inside it, none of its lines
can look like one of the prompt's own, and it holds no control token of a chat template (`untrusted`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, get_args

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.errors import TemplateError
from finevolve_pipeline.llm.requests import (
    Cuts,
    Episode,
    FactsRequest,
    InsightRequest,
    Language,
    MemoryRequest,
    Message,
    PredictRequest,
    Prompt,
    Reask,
    ReasoningRequest,
    ReflectRequest,
    Request,
    RulesRequest,
    Shown,
    ShownFact,
    ShownInsight,
    ShownItem,
    ShownMemory,
    ShownReflection,
    ShownRule,
    Signal,
    SingleRequest,
    TagBatchRequest,
    TagRequest,
    TemplateKind,
    UpdateRequest,
)
from finevolve_pipeline.llm.schemas import TOPICS
from finevolve_pipeline.llm.tokens import TokenCount
from finevolve_pipeline.llm.untrusted import neutralised, one_line
from finevolve_pipeline.news.block import block_beginning
from finevolve_pipeline.settings import PromptSettings
from finevolve_pipeline.universe import INDUSTRIES

TEMPLATES = tuple(f"{kind}.{language}" for kind in get_args(TemplateKind) for language in get_args(Language))

_DELIMITERS = {
    "open_news": "<<<NEWS",
    "close_news": "NEWS>>>",
    "open_experience": "<<<EXPERIENCE",
    "close_experience": "EXPERIENCE>>>",
}
_KEPT = 4096
"""Shortened texts that are kept: news is shown by several mechanisms, on several days, and to several updates."""
_SHORT = 1000
"""Characters of texts that are shortened anew each time."""
_LONGEST_TOKEN = 8
"""Characters that a token has at most over any length of text; what stands later than so many cannot be shown."""
_GRAIN = 32
"""Tokens to which a shortened text's share is rounded down."""
_INDENT = "  "
_PART = re.compile(r"^<!-- (\w+) -->\n", re.M)
_FIELD = re.compile(r"\$(\w+)")


@dataclass(frozen=True)
class Part:
    """A named part of a template file, with fields written `$name`.

    `template` is its text, `where` says whose part it is. (`string.Template` does the same and takes longer, dozens of
    times a prompt.)
    """

    template: str
    form: str
    where: str

    @classmethod
    def of(cls, text: str, where: str) -> Part:
        """From the text of the file."""
        return cls(text, _FIELD.sub(r"{\1}", text.replace("{", "{{").replace("}", "}}")), where)

    def substitute(self, known: Mapping[str, object] = MappingProxyType({}), /, **fields: object) -> str:
        """The text with its fields filled in; those that it does not have are ignored.

        Raises:
            TemplateError: the text has a field that is not given.
        """
        given = {**known, **fields}
        try:
            return self.form.format_map(given)
        except KeyError as unknown:
            raise TemplateError(
                f"{self.where}: nothing is known as ${unknown.args[0]} there; correct it to one of "
                f"{', '.join(f'${name}' for name in sorted(given))}"
            ) from None


class Parts(dict[str, Part]):
    """The named parts of a kind of prompt, with the common ones. `TemplateError` for one that there is not."""

    def __init__(self, files: str, parts: Mapping[str, Part]) -> None:
        super().__init__(parts)
        self.files = files

    def __missing__(self, name: str) -> Part:
        raise TemplateError(f"{self.files}: no part {name!r}; write it back below a line <!-- {name} -->")


def render(request: Request, prompts: PromptSettings, count: TokenCount) -> Prompt:
    """The prompt of a request.

    Args:
        request: what is asked. A re-ask repeats the prompt, then shows the bad answer and what is wrong with it.
        prompts: language and budgets. Experience and news have budgets of their own and never displace each other.
        count: tokens of a text, as the backbone counts them.
    """
    if isinstance(request, TagBatchRequest):
        return _batch_prompt(request, prompts, count)
    return _with_reask(_first_prompt(request, prompts, count), request.reask, prompts.language)


def _first_prompt(request: SingleRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    match request:
        case TagRequest():
            return _tag_prompt(request, prompts, count)
        case PredictRequest():
            return _predict_prompt(request, prompts, count)
        case ReflectRequest():
            return _reflect_prompt(request, prompts, count)
        case InsightRequest():
            return _insight_prompt(request, prompts, count)
        case ReasoningRequest():
            return _reasoning_prompt(request, prompts, count)
        case RulesRequest():
            return _rules_prompt(request, prompts, count)
        case FactsRequest():
            return _facts_prompt(request, prompts, count)
        case MemoryRequest():
            return _memory_prompt(request, prompts, count)


def prompt_digest(prompt: Sequence[Message]) -> str:
    """Digest of the exact messages, 32 hexadecimal characters; a role cannot be confused with text."""
    whole = hashlib.sha256()
    for role, content in prompt:
        data = content.encode("utf-8", "surrogatepass")
        whole.update(f"{role}:{len(data)}:".encode())
        whole.update(data)
    return whole.hexdigest()[:32]


def prompt_templates_digest(language: Language, kinds: Collection[str] = get_args(TemplateKind)) -> str:
    """Digest of the packaged templates of some kinds in a language: a changed word in an instruction is another
    version."""
    named = {f"{kind}.{language}" for kind in kinds}
    return digest_json({name: _source(name) for name in TEMPLATES if name in named})


def _source(name: str) -> str:
    return (files("finevolve_pipeline.llm") / "prompts" / f"{name}.md").read_text("utf-8")


@lru_cache(maxsize=len(TEMPLATES))
def _parts(kind: TemplateKind, language: Language) -> Parts:
    file = f"{kind}.{language}.md"
    pieces = _PART.split(_source(f"{kind}.{language}"))
    own = {
        part: Part.of(text.rstrip("\n"), f"prompt template {file}, part {part!r}")
        for part, text in zip(pieces[1::2], pieces[2::2], strict=True)
    }
    if kind == "common":
        return Parts(f"prompt template {file}", own)
    return Parts(f"prompt templates {file} and common.{language}.md", {**_parts("common", language), **own})


def _with_reask(prompt: Prompt, reask: Reask | None, language: Language) -> Prompt:
    if reask is None:
        return prompt
    parts = _parts("common", language)
    said = neutralised(reask.answer).strip() or parts["no_answer"].template
    again = parts["reask"].substitute(problem=neutralised(reask.problem))
    return replace(prompt, messages=(*prompt.messages, Message("assistant", said), Message("user", again)))


def _tag_prompt(request: TagRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    language = prompts.language
    article, cut = _article(request, prompts, count)
    messages = (Message("system", _tag_system(language, False)), Message("user", article))
    return Prompt(messages, Cuts(articles=cut), language=language)


def _batch_prompt(request: TagBatchRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    language = prompts.language
    parts = _parts(request.template, language)
    shown = [_article(article, prompts, count) for article in request.articles]
    articles = _numbered([text for text, _ in shown], parts)
    user = parts["batch"].substitute(count=len(shown), articles=articles)
    cuts = Cuts(articles=sum(cut for _, cut in shown))
    messages = (Message("system", _tag_system(language, True)), Message("user", user))
    return Prompt(messages, cuts, language=language)


def _article(request: TagRequest, prompts: PromptSettings, count: TokenCount) -> tuple[str, int]:
    """An article as the tagger sees it, and 1 if it was shortened."""
    parts = _parts(request.template, prompts.language)
    mark = parts["cut"].template
    budget = prompts.article_tokens - 2 * count(mark)
    title = _prefix(one_line(request.title), budget, mark, count)
    content = _prefix(one_line(request.content), max(0, budget - title.tokens), mark, count)
    text = parts["user"].substitute(
        _DELIMITERS,
        title=title.text,
        content=content.text,
        source=neutralised(one_line(request.source)),
        published_at=request.published_at.astimezone(SHANGHAI).isoformat(sep=" ", timespec="seconds"),
    )
    return text, int(title.is_cut or content.is_cut)


@lru_cache(maxsize=4)
def _tag_system(language: Language, several: bool) -> str:
    named = "\n".join(f"{one.code} {one.name_zh} {one.name_en}" for one in INDUSTRIES)
    fields = (
        '"industries": ["801080"], "scope": "industry" | "market" | "none", "importance": 1..10, '
        '"importance_reason": str, "topics": [str]'
    )
    parts = _parts("tag", language)
    topics = (
        "、".join(topic.name_zh for topic in TOPICS)
        if language == "zh"
        else ", ".join(f"{topic.name_zh} ({topic.name_en})" for topic in TOPICS)
    )
    return parts["system"].substitute(
        _DELIMITERS,
        industries=named,
        schema=f'{{"articles": [{{"id": "1", {fields}}}]}}' if several else f"{{{fields}}}",
        topics=topics,
        several=parts["several"].template if several else "",
    )


def _listed(horizons: Sequence[int]) -> str:
    return ", ".join(str(horizon) for horizon in horizons)


@lru_cache(maxsize=16)
def _predict_system(language: Language, horizons: tuple[int, ...]) -> str:
    scores = ", ".join(f'"{horizon}": x' for horizon in horizons)
    schema = f'{{"scores": {{{scores}}}, "confidence_score": 0..1, "key_factor": str, "logic_chain": str}}'
    parts = _parts("predict", language)
    return parts["system"].substitute(data=_data(parts), horizons=_listed(horizons), schema=schema)


def _data(parts: Parts) -> str:
    return parts["data"].substitute(_DELIMITERS)


def _predict_prompt(request: PredictRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    language = prompts.language
    parts = _parts(request.template, language)
    experience, cuts, told = _experience(request.memories, parts, prompts.experience_tokens, count)
    user = parts["user"].substitute(
        _DELIMITERS,
        name_zh=request.industry.name_zh,
        name_en=request.industry.name_en,
        code=request.industry.code,
        experience=experience,
        articles=len(request.news.items),
        cut=request.news.cut,
        news=request.news.shown or parts["no_news"].template,
        close=_number(request.market.close, ".2f", parts),
        trailing=_trailing(request, parts),
        session=request.session.isoformat(),
        horizons=_listed(request.horizons),
    )
    messages = (Message("system", _predict_system(language, request.horizons)), Message("user", user))
    return _as_told(replace(request, memories=told), messages, cuts, language)


def _as_told(told: SingleRequest, messages: tuple[Message, ...], cuts: Cuts, language: Language) -> Prompt:
    """The prompt, with what it tells of the request where that is not all."""
    return Prompt(messages, cuts, None if cuts == Cuts() else told, language)


def _trailing(request: PredictRequest, parts: Parts) -> str:
    lines = [
        parts["trailing"].substitute(
            sessions=back.sessions,
            industry=_number(back.industry, "+.2%", parts),
            benchmark=_number(back.benchmark, "+.2%", parts),
            excess=_number(back.excess, "+.2%", parts),
        )
        for back in request.market.trailing
    ]
    return "\n".join(lines) or parts["no_trailing"].template


def _number(value: float, style: str, parts: Parts) -> str:
    return parts["missing"].template if math.isnan(value) else format(value, style)


def _experience(
    memories: Sequence[Shown], parts: Parts, budget: int, count: TokenCount
) -> tuple[str, Cuts, tuple[Shown, ...]]:
    """The experience section: as many memories as fit with all their numbers, then as much of their texts. And what it
    shows of them.

    Whole memories go from the end. What their numbers (and the reasons of past predictions) leave of the budget is
    shared among their texts.
    """
    mark = parts["cut"].template
    entries: list[_Entry] = []
    frame = count(parts["experience"].substitute(_DELIMITERS, count=len(memories), memories="") + mark * len(memories))
    left = budget - frame
    for rank, memory in enumerate(memories, 1):
        entry = _entry(rank, memory, parts)
        cost = count(entry.head) + 1
        if cost > left:
            break
        left -= cost
        entries.append(entry)
    omitted = len(memories) - len(entries)
    if not entries:
        return parts["no_experience"].template, Cuts(memories=omitted), ()
    texts = _shared([entry.text for entry in entries], left, mark, count)
    shown = [entry.head + piece.text for entry, piece in zip(entries, texts, strict=True)]
    section = parts["experience"].substitute(_DELIMITERS, count=len(shown), memories="\n\n".join(shown))
    told = tuple(_memory_told(memory, piece, parts) for memory, piece in zip(memories, texts, strict=False))
    return section, Cuts(memories=omitted, memory_news=_cut_count(texts)), told


def _memory_told(memory: Shown, piece: _Piece, parts: Parts) -> Shown:
    """A piece of experience with as much of its text as is shown."""
    if not piece.is_cut:
        return memory
    match memory:
        case ShownMemory():
            return replace(memory, news=piece.kept)
        case ShownReflection():
            return replace(memory, text=_unindented(piece.kept))
        case ShownItem():
            told = _fields_told(parts["item_text"], asdict(memory.item), piece)
            return replace(memory, item=replace(memory.item, **told))
        case ShownInsight() | ShownFact() | ShownRule():
            return replace(memory, text=piece.kept)
        case _:
            raise TypeError(f"{type(memory).__name__}: no such experience is shown")


def _fields_told(part: Part, values: Mapping[str, str], piece: _Piece) -> dict[str, str]:
    """As much of each field of a part as a shortened piece of it shows."""
    left, told = len(piece.kept), {}
    for at, text in enumerate(_FIELD.split(part.template)):  # literal text and names of fields in turn
        if at % 2 == 0:
            left -= len(text)
            continue
        shown = neutralised(one_line(values[text]))
        told[text] = values[text] if len(shown) <= left else shown[: max(0, left)]
        left -= len(shown)
    return told


class _Entry(NamedTuple):
    """A piece of experience: its head is shown whole or not at all, its text may be shortened."""

    head: str
    text: str


def _entry(rank: int, shown: Shown, parts: Parts) -> _Entry:
    """A piece of experience with its numbers, each in a field of its own and scores raw.

    What a model wrote stands on one line a field, or indented: it must not look like a further field, or like another
    memory. Of past predictions, numbers that a mechanism does not have are named as such.
    """
    absent = parts["none"].template if isinstance(shown, ShownMemory) else ""
    known = {"rank": rank, "made_on": shown.made_on.isoformat(), "numbers": _numbers(shown, parts, absent), "text": ""}
    match shown:
        case ShownMemory():
            head = parts["memory"].substitute(
                known,
                scores=_by_horizon(shown.scores, parts) or absent,
                key_factor=one_line(shown.key_factor),
                logic_chain=one_line(shown.logic_chain),
            )
            return _Entry(neutralised(head), shown.news)
        case ShownReflection():
            return _Entry(parts["reflection"].substitute(known), _indented(shown.text))
        case ShownInsight():
            head = parts["insight"].substitute(
                known,
                horizon=shown.horizon,
                predicted_on=shown.predicted_on.isoformat(),
                score=_raw(shown.score, parts),
                outcome=_outcome("percent_excess", shown.alpha * 100, shown.horizon, parts),
            )
            return _Entry(head, one_line(shown.text))
        case ShownItem():
            head = parts["item"].substitute(
                known,
                horizon=shown.horizon,
                predicted_on=shown.predicted_on.isoformat(),
                result=parts["success" if shown.success else "failure"].template,
            )
            item = {name: one_line(value) for name, value in asdict(shown.item).items()}
            return _Entry(head, parts["item_text"].substitute(item))
        case ShownFact():
            return _Entry(parts["fact"].substitute(known), one_line(shown.text))
        case ShownRule():
            return _Entry(parts["rule"].substitute(known, importance=shown.importance), one_line(shown.text))
        case _:
            raise TypeError(
                f"{type(shown).__name__}: no such experience is shown; use one of the kinds of llm.requests"
            )


def _numbers(shown: Shown, parts: Parts, absent: str) -> str:
    """Lines with the numbers of a piece of experience; those it does not have as `absent`, or left out if that is
    empty."""
    q = _by_horizon(shown.q, parts) if isinstance(shown.q, dict) else _known(shown.q, parts)
    values = {
        "similarity": _known(shown.similarity, parts),
        "q": q,
        "visits": "" if shown.visits is None else str(shown.visits),
        "selection_score": _known(shown.selection_score, parts),
    }
    lines = ["\n" + parts[name].substitute(value=value or absent) for name, value in values.items() if value or absent]
    return "".join(lines)


def _known(value: float | None, parts: Parts) -> str:
    return "" if value is None else _raw(value, parts)


def _by_horizon(values: Mapping[int, float], parts: Parts) -> str:
    return ", ".join(f"{horizon}: {_raw(values[horizon], parts)}" for horizon in sorted(values))


def _outcome(signal: Signal, value: float, horizon: int, parts: Parts) -> str:
    """A realised outcome with its unit and sign; `value` in index points, or in per cent."""
    # + 0.0: no minus sign before an exact zero.
    return parts[f"outcome_{signal}"].substitute(value=_number(value + 0.0, "+.2f", parts), horizon=horizon)


def _reflect_prompt(request: ReflectRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    parts = _parts(request.template, prompts.language)
    before = [_indented(text) for text in request.previous]
    told = _told(request.episodes, request.signal, before, parts, prompts, count)
    previous = _texts_told(request.previous, told.written, _unindented)
    return _update_prompt(
        request,
        replace(request, episodes=told.seen, previous=previous),
        prompts,
        parts,
        told.cuts,
        limit=request.max_characters,
        outcome=parts[request.signal].template,
        previous=_written(_numbered([piece.text for piece in told.written], parts), parts),
        count=len(request.episodes),
        episodes=_numbered(told.episodes, parts),
    )


def _insight_prompt(request: InsightRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    parts = _parts(request.template, prompts.language)
    told = _told([request.episode], "percent_excess", (), parts, prompts, count)
    return _update_prompt(
        request,
        replace(request, episode=told.seen[0]),
        prompts,
        parts,
        told.cuts,
        outcome=parts["percent_excess"].template,
        episode=told.episodes[0],
    )


def _reasoning_prompt(request: ReasoningRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    parts = _parts(request.template, prompts.language)
    told = _told([request.episode], "percent_excess", (), parts, prompts, count)
    case = "success" if request.episode.success else "failure"
    return _update_prompt(
        request,
        replace(request, episode=told.seen[0]),
        prompts,
        parts,
        told.cuts,
        limit=request.max_items,
        task=parts[case].template,
        content=parts[f"{case}_content"].template,
        outcome=parts["percent_excess"].template,
        episode=told.episodes[0],
    )


def _rules_prompt(request: RulesRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    parts = _parts(request.template, prompts.language)
    texts = [one_line(rule.text) for rule in request.rules]
    told = _told(request.episodes, "percent_excess", texts, parts, prompts, count)
    lines = [
        parts["rule"].substitute(number=rule.number, importance=rule.importance, text=piece.text)
        for rule, piece in zip(request.rules, told.written, strict=True)
    ]
    known = _texts_told([rule.text for rule in request.rules], told.written)
    rules = tuple(replace(rule, text=text) for rule, text in zip(request.rules, known, strict=True))
    return _update_prompt(
        request,
        replace(request, episodes=told.seen, rules=rules),
        prompts,
        parts,
        told.cuts,
        limit=request.max_operations,
        outcome=parts["percent_excess"].template,
        known=len(lines),
        list=_written("\n".join(lines), parts),
        full=parts["full"].template if request.is_full else "",
        count=len(request.episodes),
        episodes=_numbered(told.episodes, parts),
    )


def _facts_prompt(request: FactsRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    parts = _parts(request.template, prompts.language)
    (said,) = _fitted([_reasoning(request, parts)], prompts.experience_tokens, parts, count)
    (news,) = _fitted([request.news.text], prompts.update_news_tokens, parts, count)
    return _update_prompt(
        request,
        _past_told(request, news, said, parts),
        prompts,
        parts,
        Cuts(memory_news=_cut_count([said]), update_news=_cut_count([news])),
        limit=request.max_facts,
        news=news.text or parts["no_news"].template,
        reasoning=said.text,
        scores=_by_horizon(request.scores, parts) or parts["none"].template,
    )


def _memory_prompt(request: MemoryRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    parts = _parts(request.template, prompts.language)
    texts = [one_line(text) for text in (*request.facts, *request.memories)]
    pieces = _fitted(texts, prompts.experience_tokens, parts, count)
    facts, memories = pieces[: len(request.facts)], pieces[len(request.facts) :]
    return _update_prompt(
        request,
        replace(request, facts=_texts_told(request.facts, facts), memories=_texts_told(request.memories, memories)),
        prompts,
        parts,
        Cuts(memory_news=_cut_count(pieces)),
        known=len(memories),
        memories=_written(_entries(memories, parts), parts),
        count=len(facts),
        facts=_written(_entries(facts, parts), parts),
    )


def _update_prompt(
    request: UpdateRequest, told: UpdateRequest, prompts: PromptSettings, parts: Parts, cuts: Cuts, **fields: object
) -> Prompt:
    """The prompt of an update.

    `told` is the request as far as it is shown, `fields` are those of its own kind, of both messages.
    """
    known = {
        **_DELIMITERS,
        **fields,
        "analyst": parts["analyst"].template,
        "rules": parts["rules"].substitute(data=_data(parts)),
        "name_zh": request.industry.name_zh,
        "name_en": request.industry.name_en,
        "code": request.industry.code,
        "session": request.session.isoformat(),
    }
    messages = (Message("system", parts["system"].substitute(known)), Message("user", parts["user"].substitute(known)))
    return _as_told(told, messages, cuts, prompts.language)


class _Told(NamedTuple):
    """What an update is told, as its budgets allow: past predictions, and what was written before.

    `episodes` are written out; `seen` are the same as data.
    """

    episodes: list[str]
    seen: tuple[Episode, ...]
    written: list[_Piece]
    cuts: Cuts


def _told(
    episodes: Sequence[Episode],
    signal: Signal,
    written: Sequence[str],
    parts: Parts,
    prompts: PromptSettings,
    count: TokenCount,
) -> _Told:
    """Past predictions and earlier texts within the budgets of an update.

    News has one budget, all that a model wrote has the other; reasoning, which is short, comes before earlier texts.
    """
    reasons = [_reasoning(one, parts) for one in episodes]
    said = _fitted([*reasons, *written], prompts.experience_tokens, parts, count)
    news = _fitted([one.news.text for one in episodes], prompts.update_news_tokens, parts, count)
    given, before = said[: len(episodes)], said[len(episodes) :]
    told = [
        _episode(one, signal, shown.text, reason.text, parts)
        for one, shown, reason in zip(episodes, news, given, strict=True)
    ]
    seen = tuple(
        _past_told(one, shown, reason, parts) for one, shown, reason in zip(episodes, news, given, strict=True)
    )
    return _Told(told, seen, before, Cuts(memory_news=_cut_count(said), update_news=_cut_count(news)))


_Past = TypeVar("_Past", Episode, FactsRequest)


def _past_told(past: _Past, news: _Piece, reasoning: _Piece, parts: Parts) -> _Past:
    """A past prediction with as much of its news and reasoning as is shown."""
    changes: dict[str, Any] = {}
    if news.is_cut:
        changes["news"] = block_beginning(past.news, len(news.kept))
    if reasoning.is_cut:
        given = {"key_factor": past.key_factor, "logic_chain": past.logic_chain}
        changes |= _fields_told(parts["reasoning"], given, reasoning)
    return replace(past, **changes) if changes else past


def _texts_told(texts: Sequence[str], pieces: Sequence[_Piece], plain: Callable[[str], str] = str) -> tuple[str, ...]:
    """As much of each text as is shown; `plain` undoes to a shortened one what was done to show it."""
    return tuple(plain(piece.kept) if piece.is_cut else text for text, piece in zip(texts, pieces, strict=True))


def _episode(one: Episode, signal: Signal, news: str, reasoning: str, parts: Parts) -> str:
    realised = one.points if signal == "index_points" else one.alpha * 100
    return parts["episode"].substitute(
        _DELIMITERS,
        news=news or parts["no_news"].template,
        reasoning=reasoning,
        horizon=one.horizon,
        score=_raw(one.score, parts),
        outcome=_outcome(signal, realised, one.horizon, parts),
        predicted_on=one.predicted_on.isoformat(),
        matured_on=one.matured_on.isoformat(),
    )


def _reasoning(one: Episode | FactsRequest, parts: Parts) -> str:
    return parts["reasoning"].substitute(key_factor=one_line(one.key_factor), logic_chain=one_line(one.logic_chain))


def _numbered(texts: Iterable[str], parts: Parts) -> str:
    """Texts of several lines, each below its number."""
    return "\n\n".join(parts["numbered"].substitute(number=number, text=text) for number, text in enumerate(texts, 1))


def _entries(pieces: Iterable[_Piece], parts: Parts) -> str:
    """Texts of one line, each behind its number."""
    lines = [parts["entry"].substitute(number=number, text=piece.text) for number, piece in enumerate(pieces, 1)]
    return "\n".join(lines)


def _written(text: str, parts: Parts) -> str:
    """Between delimiters, or the word for nothing."""
    return parts["written"].substitute(_DELIMITERS, text=text) if text else parts["nothing"].template


def _indented(text: str) -> str:
    """The text with its line breaks, its lines unlike any line of a prompt."""
    return "\n".join(_INDENT + line for line in text.splitlines())


def _unindented(text: str) -> str:
    """What was indented so."""
    return "\n".join(line.removeprefix(_INDENT) for line in text.split("\n"))


def _raw(value: float, parts: Parts) -> str:
    return parts["missing"].template if math.isnan(value) else repr(round(float(value), 6))


class _Piece(NamedTuple):
    """A text as it is shown, whether it was shortened, and its tokens.

    `mark` is the number of characters at its end that only say that it was shortened.
    """

    text: str
    is_cut: bool
    tokens: int
    mark: int = 0

    @property
    def kept(self) -> str:
        """What is left of the text itself."""
        return self.text[: len(self.text) - self.mark]


def _cut_count(pieces: Iterable[_Piece]) -> int:
    return sum(piece.is_cut for piece in pieces)


def _fitted(texts: Sequence[str], budget: int, parts: Parts, count: TokenCount) -> list[_Piece]:
    """Texts within one budget, marks of what was cut included."""
    mark = parts["cut"].template
    return _shared(texts, max(0, budget - count(mark) * len(texts)), mark, count)


def _shared(texts: Sequence[str], budget: int, mark: str, count: TokenCount) -> list[_Piece]:
    """Texts within one budget: an even share of what is left for each; what one does not need is left to those after
    it. The marks of what was cut are not counted."""
    pieces, left = [], budget
    for position, text in enumerate(texts):
        share = left // (len(texts) - position)
        piece = _prefix(text, share, mark, count)
        left -= min(share, piece.tokens)
        pieces.append(piece)
    return pieces


def _prefix(text: str, budget: int, mark: str, count: TokenCount) -> _Piece:
    """The text as `_shortened` shows it. Shares are rounded down a little, so that the same memory is cut alike."""
    shorten = _shortened if len(text) > _SHORT else _shortened.__wrapped__  # the cache is for what takes time
    return shorten(text, budget - budget % _GRAIN if budget > _GRAIN else budget, mark, count)


@lru_cache(maxsize=_KEPT)
def _shortened(text: str, budget: int, mark: str, count: TokenCount) -> _Piece:
    """The neutralised text if it fits into `budget` tokens, else a prefix that does, with a mark behind."""
    whole = len(text) <= _LONGEST_TOKEN * budget
    text = neutralised(text[: _LONGEST_TOKEN * budget])
    if whole and (tokens := count(text)) <= budget:
        return _Piece(text, False, tokens)
    # The cost of a piece tells about where to cut; a few corrections find the place.
    sample = text[:400]
    size = budget * len(sample) // max(1, count(sample))
    for _ in range(4):
        used = count(text[:size])
        if used > budget:
            size = size * budget // used
        elif budget - used <= 8 or size >= len(text):
            break
        else:
            size += budget - used
    while size > 0 and (over := count(text[:size]) - budget) > 0:
        size -= max(1, over // 4)
    shown = text[: max(0, size)] + mark
    return _Piece(shown, True, count(shown), len(mark))
