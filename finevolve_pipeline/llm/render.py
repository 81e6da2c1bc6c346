"""Prompts: a typed request becomes messages, the same ones for the same request, whatever machine or order.

Static instructions come first, then sector, experience, news and market context, dates last. Texts live in
`prompts/*.md`, split into named parts. News and everything a model once wrote is untrusted: it stands between
delimiters that cannot occur inside it (`neutralised`).
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
from finevolve_pipeline.llm.requests import PredictRequest, Request, ShownMemory, TagRequest
from finevolve_pipeline.news.block import estimate_tokens
from finevolve_pipeline.universe import INDUSTRIES

Language = Literal["zh", "en"]
TEMPLATES = ("predict.en", "predict.zh", "tag.en", "tag.zh")

_DELIMITERS = {
    "open_news": "<<<NEWS",
    "close_news": "NEWS>>>",
    "open_experience": "<<<EXPERIENCE",
    "close_experience": "EXPERIENCE>>>",
}
_PART = re.compile(r"^<!-- (\w+) -->\n", re.M)


class Message(NamedTuple):
    """One message of a prompt. `role` is system or user."""

    role: str
    content: str


def messages(request: Request, language: Language, experience_tokens: int) -> tuple[Message, ...]:
    """The prompt of a request: one system and one user message.

    Args:
        request: what is asked.
        language: language of the instructions; news stays as it is.
        experience_tokens: budget of the experience section, in estimated tokens; it never takes from news.
    """
    if isinstance(request, TagRequest):
        return _tag_messages(request, language)
    return _predict_messages(request, language, experience_tokens)


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


def neutralised(text: str) -> str:
    """The text without any run that could open or close a delimited section; other characters stay."""
    return text.replace("<<<", "‹‹‹").replace(">>>", "›››")


def _source(name: str) -> str:
    return (files("finevolve_pipeline.llm") / "prompts" / f"{name}.md").read_text("utf-8")


@lru_cache(maxsize=len(TEMPLATES))
def _parts(name: str) -> dict[str, Template]:
    pieces = _PART.split(_source(name))
    return {part: Template(text.rstrip("\n")) for part, text in zip(pieces[1::2], pieces[2::2], strict=True)}


def _tag_messages(request: TagRequest, language: Language) -> tuple[Message, ...]:
    user = _parts(f"tag.{language}")["user"].substitute(
        _DELIMITERS,
        title=neutralised(request.title),
        content=neutralised(request.content),
        source=neutralised(request.source),
        published_at=request.published_at.astimezone(SHANGHAI).isoformat(sep=" ", timespec="seconds"),
    )
    return Message("system", _tag_system(language)), Message("user", user)


@lru_cache(maxsize=2)
def _tag_system(language: Language) -> str:
    named = "\n".join(f"{one.code} {one.name_zh} {one.name_en}" for one in INDUSTRIES)
    schema = (
        '{"industries": ["801080"], "scope": "industry" | "market" | "none", "importance": 1..10, '
        '"importance_reason": str, "topics": [str]}'
    )
    return _parts(f"tag.{language}")["system"].substitute(_DELIMITERS, industries=named, schema=schema)


def _listed(horizons: Sequence[int]) -> str:
    return ", ".join(str(horizon) for horizon in horizons)


@lru_cache(maxsize=16)
def _predict_system(language: Language, horizons: tuple[int, ...]) -> str:
    scores = ", ".join(f'"{horizon}": x' for horizon in horizons)
    schema = f'{{"scores": {{{scores}}}, "confidence_score": 0..1, "key_factor": str, "logic_chain": str}}'
    system = _parts(f"predict.{language}")["system"]
    return system.substitute(_DELIMITERS, horizons=_listed(horizons), schema=schema)


def _predict_messages(request: PredictRequest, language: Language, experience_tokens: int) -> tuple[Message, ...]:
    parts = _parts(f"predict.{language}")
    user = parts["user"].substitute(
        _DELIMITERS,
        name_zh=request.industry.name_zh,
        name_en=request.industry.name_en,
        code=request.industry.code,
        experience=_experience(request.memories, parts, experience_tokens),
        articles=len(request.news.items),
        cut=request.news.cut,
        news=neutralised(request.news.text) or parts["no_news"].template,
        close=_number(request.market.close, ".2f", parts),
        trailing=_trailing(request, parts),
        session=request.session.isoformat(),
        horizons=_listed(request.horizons),
    )
    return Message("system", _predict_system(language, request.horizons)), Message("user", user)


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


def _experience(memories: Sequence[ShownMemory], parts: dict[str, Template], budget: int) -> str:
    """The experience section: as many memories as fit with all their numbers, then as much of their news.

    Whole memories go from the end. What their numbers and reasons leave of the budget is shared among their
    news texts, first memories first served when a later one needs less than its share.
    """
    heads: list[str] = []
    frame = estimate_tokens(
        parts["experience"].substitute(_DELIMITERS, count=len(memories), memories="")
        + parts["cut"].template * len(memories)
    )
    left = budget - frame
    for rank, memory in enumerate(memories, 1):
        head = neutralised(_memory(rank, memory, parts))
        cost = estimate_tokens(head) + 1
        if cost > left:
            break
        left -= cost
        heads.append(head)
    if not heads:
        return parts["no_experience"].template
    shown = []
    for position, head in enumerate(heads):
        share = left // (len(heads) - position)
        news = _prefix(memories[position].news, share, parts["cut"].template)
        left -= min(share, estimate_tokens(news))
        shown.append(head + news)
    return parts["experience"].substitute(_DELIMITERS, count=len(shown), memories="\n\n".join(shown))


def _memory(rank: int, memory: ShownMemory, parts: dict[str, Template]) -> str:
    """A memory without its news; scores raw, each number in a field of its own."""
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
        key_factor=memory.key_factor,
        logic_chain=memory.logic_chain,
        news="",
    )


def _raw(value: float, parts: dict[str, Template]) -> str:
    return parts["missing"].template if math.isnan(value) else repr(round(float(value), 6))


def _prefix(text: str, budget: int, mark: str) -> str:
    """The neutralised text if it fits into `budget` tokens, else a prefix that does, with a mark behind."""
    whole = len(text) <= 3 * budget
    # No character costs less than a third of a token, so what stands later cannot be shown.
    text = neutralised(text[: 3 * budget])
    if whole and estimate_tokens(text) <= budget:
        return text
    # The cost of a piece tells about where to cut; a few corrections find the place.
    sample = text[:400]
    size = budget * len(sample) // max(1, estimate_tokens(sample))
    for _ in range(4):
        used = estimate_tokens(text[:size])
        if used > budget:
            size = size * budget // used
        elif budget - used <= 8 or size >= len(text):
            break
        else:
            size += budget - used
    while size > 0 and estimate_tokens(text[:size]) > budget:
        size -= 1
    return text[:size] + mark
