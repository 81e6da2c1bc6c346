"""Untrusted text: what articles say and what a model once wrote, made harmless for a prompt.

A reader sees the same text. A prompt's delimiters cannot occur in it, nor anything that a chat template takes for
control: turns, roles, thinking, tool calls, image and filler tokens of any model family. What is not known is refused:
whatever is written like a tag counts as control unless it is an element of HTML.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_KEPT = 1024
"""Texts of which the harmless form is kept: memories and news are shown by several mechanisms, on several days."""
_LONGEST_TAG = 100
"""Characters between the brackets of a tag, attributes included."""

# What a reader does not see: controls, soft hyphen, zero-width and direction marks, fillers, variation selectors, tag
# characters (which can carry a whole hidden text), and halves of surrogate pairs (which UTF-8 cannot hold).
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_BREAKS = re.compile("\r(?!\n)|[\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")
_OPENING = "<＜﹤◁"
_CLOSING = ">＞﹥▷"
_BAR = "|｜￨∣│┃ǀ¦"
_SIGN = re.compile(f"[{_OPENING}{_CLOSING}{_BAR}]")
# A search that begins with one set is many times faster than one with alternatives, so each kind is by itself.
_DELIMITERS = (
    re.compile(rf"[{_OPENING}\[［]\s?[{_BAR}]"),
    re.compile(rf"[{_CLOSING}\]］](?:(?<=[{_BAR}].)|(?<=[{_BAR}]\s.))"),
    re.compile(rf"[{_OPENING}][{_OPENING}]+"),
    re.compile(rf"[{_CLOSING}][{_CLOSING}]+"),
)
_TAG = re.compile(rf"[{_OPENING}]([^{_OPENING}{_CLOSING}\n]{{1,{_LONGEST_TAG}}}+)[{_CLOSING}]")
_TAG_LIKE = re.compile(r"[/!?]?\s*(0x[0-9a-f]{2}|[a-z_][\w:.▁-]*)(?:\s*=.*|\s+[\w:.-]+\s*=.*)?\s*/?")
_HTML = re.compile(
    "a|abbr|article|aside|b|big|blockquote|body|br|caption|center|cite|code|col|dd|del|details|div|dl|dt|em|figcaption"
    "|figure|font|footer|form|h[1-6]|head|header|hr|html|i|img|input|ins|label|li|link|main|mark|meta|nav|ol|option|p"
    "|pre|q|section|select|small|span|strike|strong|style|sub|summary|sup|table|tbody|td|tfoot|th|thead|title|tr|tt|u"
    "|ul|video"
)
_BRACKETED = {opening: re.compile(rf"{re.escape(opening)}([^\[\]［］\n]{{3,32}}+)[\]］]") for opening in "[［"}
_BRACKET_NAME = re.compile(
    r"/?\s*(?:inst|sys|system|system_prompt|user|human|assistant|available_tools|begin_tool_request|end_tool_request"
    r"|tool_calls?|tool_results?|tool_content|args|call_id|model_settings|think|prefix|middle|suffix|img|img_break"
    r"|img_end|audio|begin_audio|transcribe|g?mask|smask|bos|eos|pad|unk|sep|cls|end|end_of_text|unused_?\w*"
    r"|control_\w+)"
)
_WAVED = re.compile(r"\]~!?b[\[\]]|\[e~\[")
_OTHER = str.maketrans(
    dict.fromkeys(_OPENING, "‹") | dict.fromkeys(_CLOSING, "›") | {"[": "〔", "［": "〔", "]": "〕", "］": "〕"}
)


@lru_cache(maxsize=_KEPT)
def neutralised(text: str) -> str:
    """The text without anything that could open or close a section, or that a chat template takes for control.

    Invisible characters are dropped, line ends other than a line feed become blanks. Brackets of delimiters (two or
    more in a row) and of control tokens are replaced by others that look alike, however they are written (case, width,
    invisible characters inside). All other characters stay. Neutralising twice changes nothing more.
    """
    if _INVISIBLE.search(text):
        text = _INVISIBLE.sub("", _BREAKS.sub(" ", text))
    if _SIGN.search(text):
        for pattern in _DELIMITERS:
            text = pattern.sub(_replaced, text)
        text = _TAG.sub(_replaced_if_tag, text)
    for opening, pattern in _BRACKETED.items():
        if opening in text:
            text = pattern.sub(_replaced_if_control, text)
    return _WAVED.sub(_replaced, text) if "~" in text else text


def one_line(text: str) -> str:
    """The text with line ends as blanks: what is one field of a prompt must not look like several."""
    lines = text.splitlines()
    return text if lines == [text] else " ".join(lines)


def _replaced(found: re.Match[str]) -> str:
    return found.group().translate(_OTHER)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip().lower()


def _replaced_if_tag(found: re.Match[str]) -> str:
    named = _TAG_LIKE.fullmatch(_folded(found.group(1)))
    return _replaced(found) if named and not _HTML.fullmatch(named.group(1)) else found.group()


def _replaced_if_control(found: re.Match[str]) -> str:
    return _replaced(found) if _BRACKET_NAME.fullmatch(_folded(found.group(1))) else found.group()
