"""Prompts: a typed request becomes messages, the same ones for the same request, whatever machine or order.

What is the same for most requests stands first, so that providers can cache it: instructions, then the industry and its
news, which all mechanisms share, then experience, market data, and dates last. Texts live in `prompts/*.md`, split into
named parts. News and everything a model once wrote is untrusted: it stands between delimiters that cannot occur inside
it, and holds no control token of a chat template (`untrusted`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from string import Template
from typing import Literal, NamedTuple

from finevolve_pipeline.calendar import SHANGHAI
from finevolve_pipeline.digests import digest_json
from finevolve_pipeline.llm.requests import (
    Cuts,
    Message,
    PredictRequest,
    Prompt,
    Reask,
    Request,
    ShownMemory,
    TagBatchRequest,
    TagRequest,
)
from finevolve_pipeline.llm.schemas import TOPICS
from finevolve_pipeline.llm.tokens import TokenCount
from finevolve_pipeline.llm.untrusted import neutralised, one_line
from finevolve_pipeline.settings import PromptSettings
from finevolve_pipeline.universe import INDUSTRIES

Language = Literal["zh", "en"]
TEMPLATES = ("predict.en", "predict.zh", "tag.en", "tag.zh")

_DELIMITERS = {
    "open_news": "<<<NEWS",
    "close_news": "NEWS>>>",
    "open_experience": "<<<EXPERIENCE",
    "close_experience": "EXPERIENCE>>>",
}
_KEPT = 4096
"""Shortened texts that are kept: memories are shown by several mechanisms, on several days."""
_LONGEST_TOKEN = 8
"""Characters that a token has at most over any length of text; what stands later than so many cannot be shown."""
_GRAIN = 32
"""Tokens to which a shortened text's share is rounded down."""
_PART = re.compile(r"^<!-- (\w+) -->\n", re.M)


def render(request: Request, prompts: PromptSettings, count: TokenCount) -> Prompt:
    """The prompt of a request.

    Args:
        request: what is asked. A re-ask repeats the prompt, then shows the bad answer and what is wrong with it.
        prompts: language and budgets. Experience and news have budgets of their own and never displace each other.
        count: tokens of a text, as the backbone counts them.
    """
    if isinstance(request, PredictRequest):
        return _with_reask(_predict_prompt(request, prompts, count), request.reask, f"predict.{prompts.language}")
    if isinstance(request, TagBatchRequest):
        return _batch_prompt(request, prompts, count)
    return _with_reask(_tag_prompt(request, prompts, count), request.reask, f"tag.{prompts.language}")


def prompt_digest(prompt: Sequence[Message]) -> str:
    """Digest of the exact messages, 32 hexadecimal characters; a role cannot be confused with text."""
    whole = hashlib.sha256()
    for role, content in prompt:
        data = content.encode("utf-8", "surrogatepass")
        whole.update(f"{role}:{len(data)}:".encode())
        whole.update(data)
    return whole.hexdigest()[:32]


def prompt_templates_digest() -> str:
    """Digest of all packaged templates: a changed word in an instruction is another version."""
    return digest_json({name: _source(name) for name in TEMPLATES})


def _source(name: str) -> str:
    return (files("finevolve_pipeline.llm") / "prompts" / f"{name}.md").read_text("utf-8")


@lru_cache(maxsize=len(TEMPLATES))
def _parts(name: str) -> dict[str, Template]:
    pieces = _PART.split(_source(name))
    return {part: Template(text.rstrip("\n")) for part, text in zip(pieces[1::2], pieces[2::2], strict=True)}


def _with_reask(prompt: Prompt, reask: Reask | None, template: str) -> Prompt:
    if reask is None:
        return prompt
    parts = _parts(template)
    said = neutralised(reask.answer).strip() or parts["no_answer"].template
    again = parts["reask"].substitute(problem=neutralised(reask.problem))
    return Prompt((*prompt.messages, Message("assistant", said), Message("user", again)), prompt.cuts)


def _tag_prompt(request: TagRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    language = prompts.language
    article, cut = _article(request, prompts, count)
    return Prompt((Message("system", _tag_system(language, False)), Message("user", article)), Cuts(articles=cut))


def _batch_prompt(request: TagBatchRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    language = prompts.language
    parts = _parts(f"tag.{language}")
    shown = [_article(article, prompts, count) for article in request.articles]
    numbered = "\n\n".join(
        parts["article"].substitute(number=number, article=text) for number, (text, _) in enumerate(shown, 1)
    )
    user = parts["batch"].substitute(count=len(shown), articles=numbered)
    cuts = Cuts(articles=sum(cut for _, cut in shown))
    return Prompt((Message("system", _tag_system(language, True)), Message("user", user)), cuts)


def _article(request: TagRequest, prompts: PromptSettings, count: TokenCount) -> tuple[str, int]:
    """An article as the tagger sees it, and 1 if it was shortened."""
    parts = _parts(f"tag.{prompts.language}")
    mark = parts["cut"].template
    budget = prompts.article_tokens - 2 * count(mark)
    title = _prefix(one_line(request.title), budget, mark, count)
    content = _prefix(one_line(request.content), max(0, budget - count(title.text)), mark, count)
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
    parts = _parts(f"tag.{language}")
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
    system = _parts(f"predict.{language}")["system"]
    return system.substitute(_DELIMITERS, horizons=_listed(horizons), schema=schema)


def _predict_prompt(request: PredictRequest, prompts: PromptSettings, count: TokenCount) -> Prompt:
    language = prompts.language
    parts = _parts(f"predict.{language}")
    experience, cuts = _experience(request.memories, parts, prompts.experience_tokens, count)
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
    return Prompt((Message("system", _predict_system(language, request.horizons)), Message("user", user)), cuts)


def _trailing(request: PredictRequest, parts: dict[str, Template]) -> str:
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


def _number(value: float, style: str, parts: dict[str, Template]) -> str:
    return parts["missing"].template if math.isnan(value) else format(value, style)


def _experience(
    memories: Sequence[ShownMemory], parts: dict[str, Template], budget: int, count: TokenCount
) -> tuple[str, Cuts]:
    """The experience section: as many memories as fit with all their numbers, then as much of their news.

    Whole memories go from the end. What their numbers and reasons leave of the budget is shared among their
    news texts, first memories first served when a later one needs less than its share.
    """
    mark = parts["cut"].template
    heads: list[str] = []
    frame = count(parts["experience"].substitute(_DELIMITERS, count=len(memories), memories="") + mark * len(memories))
    left = budget - frame
    for rank, memory in enumerate(memories, 1):
        head = neutralised(_memory(rank, memory, parts))
        cost = count(head) + 1
        if cost > left:
            break
        left -= cost
        heads.append(head)
    omitted = len(memories) - len(heads)
    if not heads:
        return parts["no_experience"].template, Cuts(memories=omitted)
    shown, shortened = [], 0
    for position, head in enumerate(heads):
        share = left // (len(heads) - position)
        news = _prefix(memories[position].news, share, mark, count)
        shortened += news.is_cut
        left -= min(share, count(news.text))
        shown.append(head + news.text)
    section = parts["experience"].substitute(_DELIMITERS, count=len(shown), memories="\n\n".join(shown))
    return section, Cuts(memories=omitted, memory_news=shortened)


def _memory(rank: int, memory: ShownMemory, parts: dict[str, Template]) -> str:
    """A memory without its news; scores raw, each number in a field of its own.

    What a model wrote stands on one line each: it must not look like a further field, or like another memory.
    """
    none = parts["none"].template
    scores = ", ".join(f"{horizon}: {_raw(memory.scores[horizon], parts)}" for horizon in sorted(memory.scores))
    if isinstance(memory.q, dict):
        q = ", ".join(f"{horizon}: {_raw(memory.q[horizon], parts)}" for horizon in sorted(memory.q))
    else:
        q = none if memory.q is None else _raw(memory.q, parts)
    return parts["memory"].substitute(
        rank=rank,
        made_on=memory.made_on.isoformat(),
        similarity=none if memory.similarity is None else _raw(memory.similarity, parts),
        q=q or none,
        visits=none if memory.visits is None else memory.visits,
        selection=none if memory.selection_score is None else _raw(memory.selection_score, parts),
        scores=scores or none,
        key_factor=one_line(memory.key_factor),
        logic_chain=one_line(memory.logic_chain),
        news="",
    )


def _raw(value: float, parts: dict[str, Template]) -> str:
    return parts["missing"].template if math.isnan(value) else repr(round(float(value), 6))


class _Piece(NamedTuple):
    """A text as it is shown, and whether it was shortened."""

    text: str
    is_cut: bool


def _prefix(text: str, budget: int, mark: str, count: TokenCount) -> _Piece:
    """The text as `_shortened` shows it. Shares are rounded down a little, so that the same memory is cut alike."""
    return _shortened(text, budget - budget % _GRAIN if budget > _GRAIN else budget, mark, count)


@lru_cache(maxsize=_KEPT)
def _shortened(text: str, budget: int, mark: str, count: TokenCount) -> _Piece:
    """The neutralised text if it fits into `budget` tokens, else a prefix that does, with a mark behind."""
    whole = len(text) <= _LONGEST_TOKEN * budget
    text = neutralised(text[: _LONGEST_TOKEN * budget])
    if whole and count(text) <= budget:
        return _Piece(text, False)
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
    return _Piece(text[: max(0, size)] + mark, True)
