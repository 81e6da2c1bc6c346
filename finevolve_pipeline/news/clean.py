"""Cleaning: what a source sent becomes one line of plain text for the title and one for the body.

A cleaned text has no line breaks on purpose: a news block is written line by line, and an article must not be
able to look like two.
"""

from __future__ import annotations

import html
import re
from html.entities import html5
from typing import NamedTuple

TITLE_LENGTH = 60
"""Longest title made from a body, in characters; a longer title without body is a body in the wrong field."""

_PASSES = 4
_ELEMENTS = (
    "a|abbr|address|article|aside|audio|b|big|blockquote|body|br|button|caption|center|cite|code|col|colgroup|"
    "dd|del|div|dl|dt|em|embed|fieldset|figcaption|figure|font|footer|form|h[1-6]|head|header|hr|html|i|iframe|"
    "img|input|ins|label|li|link|main|mark|meta|nav|noscript|o:p|object|ol|option|p|param|picture|pre|q|s|script|"
    "section|select|small|source|span|strike|strong|style|sub|sup|svg|table|tbody|td|textarea|tfoot|th|thead|"
    "title|tr|tt|u|ul|video"
)
# Words on both sides of these are apart on the page; the other elements only style what they surround.
_BLOCKS = "article|blockquote|br|dd|div|dl|dt|h[1-6]|hr|li|ol|p|section|table|td|th|tr|ul"
_HIDDEN = re.compile(r"<(script|style)(?![\w:-])[^<>]*>.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.I | re.S)
_BREAK = re.compile(rf"</?(?:{_BLOCKS})(?![\w:-])[^<>]*>", re.I)
_TAG = re.compile(rf"</?(?:{_ELEMENTS})(?![\w:-])[^<>]*>|<[!?][^<>]*>", re.I)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
# Control characters that are no blanks, soft hyphen, zero-width and direction marks, byte-order mark, and
# halves of surrogate pairs (JSON can carry them, UTF-8 cannot). None of them is printable.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\ud800-\udfff]+"
)
_LEAD = re.compile(r"【([^【】]{1,200})】\s*")
_DATELINE = re.compile(
    r"(?:《[^《》]{2,12}》|[A-Za-z\u4e00-\u9fff]{1,10}(?:社|报|网|台|财经|新闻))[\u4e00-\u9fff]{0,6}\s?"
    r"(?:\d{4}年)?(?:\d{1,2}月)?\d{1,2}日(?:电|讯)\s?(?:[（(][^（）()]{1,30}[）)])?[，,：: ]*"
)
# An exclamation of a word or two ("突发！") is no headline yet.
_SENTENCE = re.compile(r".{8,}?(?:[！？]|(?=[。；]|$))")


class CleanText(NamedTuple):
    """Title and body of an article, each one line. `content` is empty where the source has a title only."""

    title: str
    content: str


def clean_text(text: str) -> str:
    """The text without markup, invisible characters and repeated blanks, as one line.

    HTML elements and comments go (a script or style with all it holds), block elements and line breaks become
    a blank, entities their characters, also where a source escaped them twice. A `<` that opens no known
    element stays, so that "市盈率<10" survives. Never raises; cleaning a clean text changes nothing.
    """
    for _ in range(_PASSES):
        cleaned = _pass(text)
        if cleaned == text:
            return cleaned
        text = cleaned
    if _pass(text) == text:
        return text
    # Markup that keeps uncovering more markup is no writing of a newsroom: take its signs away for good.
    return _pass(text.replace("<", "").replace("&", ""))


def _pass(text: str) -> str:
    if not text.isprintable():
        text = _INVISIBLE.sub("", text)
    if "<" in text:
        text = _TAG.sub("", _BREAK.sub(" ", _HIDDEN.sub(" ", text)))
    if "&" in text:
        text = _ENTITY.sub(_character, text)
    return " ".join(text.split())


def _character(entity: re.Match[str]) -> str:
    written = entity[0]
    return html.unescape(written) if written[1] == "#" else html5.get(written[1:], written)


def clean_article(title: str, content: str) -> CleanText:
    """Title and body as an agent reads them.

    A leading 【...】 of the body is the newsroom's headline: it becomes the title and leaves the body. So
    does that of a title which otherwise repeats the body. A label before a real title (【有奖】...) stays in
    it. Where a source sends the body as title, whole or cut, the first sentence without its dateline becomes
    the title. A title without a body stays one, unless it is a whole flash in the wrong field: one with a
    dateline, or over `TITLE_LENGTH` characters.
    """
    same = title == content
    content = clean_text(content)
    title = content if same else clean_text(title)
    if not content and (len(title) > TITLE_LENGTH or _DATELINE.match(title, _after_lead(title))):
        title, content = "", title
    if lead := _LEAD.match(content):
        return CleanText(lead[1].strip() or headline(content[lead.end() :]), content[lead.end() :])
    if (lead := _LEAD.match(title)) and content.startswith(title[lead.end() :]):
        title = lead[1].strip()
    elif content.startswith(title):
        title = headline(title or content)
    return CleanText(title, content)


def _after_lead(text: str) -> int:
    lead = _LEAD.match(text)
    return lead.end() if lead else 0


def without_dateline(text: str) -> str:
    """The text without an opening like 财联社5月14日电， or 《科创板日报》5日讯，"""
    dateline = _DATELINE.match(text)
    return text[dateline.end() :] if dateline else text


def headline(text: str) -> str:
    """A title for a body without one: its first sentence, no dateline, at most `TITLE_LENGTH` characters."""
    body = without_dateline(text) or text
    sentence = _SENTENCE.match(body)
    first = sentence[0] if sentence else body
    return first if len(first) <= TITLE_LENGTH else first[: TITLE_LENGTH - 1] + "…"
