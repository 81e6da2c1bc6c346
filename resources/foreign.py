"""What other machines send us, made fit for our own use: their words for a message, their wish for a pause."""

from __future__ import annotations

import email.utils
import html
import math
import re
from ipaddress import ip_address
from urllib.parse import quote

import httpx2

SHOWN = 200
"""Characters of foreign words in a message."""

_NOISE = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]+")
_BEARER = re.compile(r"(?i)\bbearer\s+[^\s\"',;}]+")
_MASKED = re.compile(r"[^\s\"'=:]*\*{3,}[^\s\"',;}]*")
_GRAM = 6


def scrubbed(text: str, key: str) -> str:
    """Foreign text for a message: one short line without markup and without any trace of the key."""
    text = text[:20_000]
    if re.search(r"(?i)<(!doctype|html|head|body)\b", text):
        title = re.search(r"(?is)<title[^>]*>(.*?)</title>", text)
        text = f"an HTML page {html.unescape(title.group(1)) if title else ''}"
    text = _without(text, key)
    text = _MASKED.sub("[key]", _BEARER.sub("Bearer [key]", text))
    text = _NOISE.sub(" ", text).strip()
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds that a response asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as a date."""
    milliseconds = _seconds(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    given = headers.get("retry-after", "")
    seconds = _seconds(given)
    if seconds is not None:
        return seconds
    then = _date(given)
    if then is None:
        return None
    # By the server's own clock where it tells, so that ours may be wrong.
    now = _date(headers.get("date", "")) or _date(email.utils.formatdate(usegmt=True))
    return max(0.0, then - now) if now is not None else None


def _seconds(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _date(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _without(text: str, key: str) -> str:
    """The text without the key, parts of it included: any run of six of its characters goes."""
    if not key:
        return text
    for form in {key, quote(key, safe="")}:
        text = text.replace(form, "[key]")
    grams = {key[i : i + _GRAM] for i in range(len(key) - _GRAM + 1)}
    if not any(gram in text for gram in grams):
        return text
    hidden = [False] * len(text)
    for i in range(len(text) - _GRAM + 1):
        if text[i : i + _GRAM] in grams:
            hidden[i : i + _GRAM] = [True] * _GRAM
    kept, before = [], False
    for character, hide in zip(text, hidden, strict=True):
        if not hide:
            kept.append(character)
        elif not before:
            kept.append("[key]")
        before = hide
    return "".join(kept)
