"""Prompts: a typed request becomes messages, the same ones for the same request, whatever machine or order.

What is the same for most requests stands first, so that providers can cache it: instructions, then the industry and its
news, which all mechanisms share, then experience, market data, and dates last. Texts live in `prompts/*.md`, split into
named parts. News and everything a model once wrote is untrusted: it stands between delimiters that cannot occur inside
it, and holds no control token of a chat template (`neutralised`).
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from string import Template
from typing import Literal

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
_KEPT = 1024
"""Texts of which the shown form is kept: memories and news are shown by several mechanisms, on several days."""
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


_INVISIBLE = re.compile(
    "[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufff9-\ufffb\x00-\x08\x0b-\x1f\x7f]"
)
_ANGLES = "<＜﹤>＞﹥"
_BARRED = re.compile(r"[<＜﹤][|｜]|[|｜][>＞﹥]")
_REPEATED = re.compile(r"[<＜﹤]{2,}|[>＞﹥]{2,}")
_TAG = re.compile(r"[<＜﹤]\s*([/／]?[^<>＜＞﹤﹥\n]{1,40}?)\s*[>＞﹥]")
# One pattern a kind of bracket: a search for a literal first character is many times faster than for one of several.
_BRACKETED = {
    opening: re.compile(rf"{re.escape(opening)}\s*([/／]?[A-Za-zＡ-Ｚａ-ｚ_]{{3,24}})\s*[\]］]") for opening in "[［"
}
_CONTROL_TAG = re.compile(
    r"(s|pad|unk|bos|eos|sep|cls|mask|sop|eop|think|thinking|reasoning|tool_?calls?|tool_?response|tools?|function_?calls?"
    r"|system|user|assistant|human|observation|im_start|im_end|im_sep|endoftext|eot|eot_id|bot|eom_id|start_of_turn"
    r"|end_of_turn|begin_of_text|end_of_text|start_header_id|end_header_id|start_of_image|unused\d*|extra_id_\d+"
    r"|reserved_\w+|fim_\w+|sys|inst|turn|channel|message|start|end|return|constrain|call)\b.*"
)
_CONTROL_BRACKET = re.compile(
    r"(inst|sys|system_prompt|available_tools|tool_calls?|tool_results?|tool_content|gmask|smask|mask|bos|eos|pad|unk|sep"
    r"|cls|think|end|human|assistant|user|system|prefix|suffix|middle|img|args|call_id|control_\w+)"
)
_OTHER = str.maketrans(
    {"<": "‹", "＜": "‹", "﹤": "‹", ">": "›", "＞": "›", "﹥": "›", "[": "〔", "［": "〔", "]": "〕", "］": "〕"}
)


@lru_cache(maxsize=_KEPT)
def neutralised(text: str) -> str:
    """The text without anything that could open or close a section, or that a chat template takes for control.

    Invisible characters are dropped. Brackets of delimiters (two or more in a row) and of control tokens of any known
    model family are replaced by others that look alike, however they are written (case, width, blanks); all other
    characters stay, so that the text reads as before.
    """
    if not text.isprintable():  # blanks and line ends are no printable characters either, so this is a quick look only
        text = _INVISIBLE.sub("", text)
    if any(angle in text for angle in _ANGLES):
        text = _BARRED.sub(_replaced, text)
        text = _REPEATED.sub(_replaced, text)
        text = _TAG.sub(lambda found: _replaced_if(found, _CONTROL_TAG), text)
    for opening, pattern in _BRACKETED.items():
        if opening in text:
            text = pattern.sub(lambda found: _replaced_if(found, _CONTROL_BRACKET), text)
    return text


def _replaced(found: re.Match[str]) -> str:
    return found.group().translate(_OTHER)


def _replaced_if(found: re.Match[str], control: re.Pattern[str]) -> str:
    inner = unicodedata.normalize("NFKC", found.group(1)).strip("/ |").lower()
    return _replaced(found) if control.fullmatch(inner) else found.group()


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
    title = _prefix(request.title, budget, mark, count)
    content = _prefix(request.content, max(0, budget - count(title)), mark, count)
    text = parts["user"].substitute(
        _DELIMITERS,
        title=title,
        content=content,
        source=neutralised(request.source),
        published_at=request.published_at.astimezone(SHANGHAI).isoformat(sep=" ", timespec="seconds"),
    )
    was_cut = any(
        shown.endswith(mark) and not neutralised(whole).endswith(mark)
        for shown, whole in ((title, request.title), (content, request.content))
    )
    return text, int(was_cut)


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
        news=neutralised(request.news.text) or parts["no_news"].template,
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
        whole = memories[position].news
        news = _prefix(whole, share, mark, count)
        shortened += news.endswith(mark) and not whole.endswith(mark)
        left -= min(share, count(news))
        shown.append(head + news)
    section = parts["experience"].substitute(_DELIMITERS, count=len(shown), memories="\n\n".join(shown))
    return section, Cuts(memories=omitted, memory_news=shortened)


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


def _prefix(text: str, budget: int, mark: str, count: TokenCount) -> str:
    """The text as `_shortened` shows it. Shares are rounded down a little, so that the same memory is cut alike."""
    return _shortened(text, budget - budget % _GRAIN if budget > _GRAIN else budget, mark, count)


@lru_cache(maxsize=4 * _KEPT)
def _shortened(text: str, budget: int, mark: str, count: TokenCount) -> str:
    """The neutralised text if it fits into `budget` tokens, else a prefix that does, with a mark behind."""
    # Hardly any tokenizer makes less than a quarter token of a character, so what stands later cannot be shown.
    whole = len(text) <= 4 * budget
    text = neutralised(text[: 4 * budget])
    if whole and count(text) <= budget:
        return text
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
    return text[: max(0, size)] + mark
