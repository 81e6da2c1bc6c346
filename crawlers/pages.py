"""Pages of a site: what was read from one, and what state a page is in that could not be read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class PageState(StrEnum):
    """What a page is. HTTP status 200 says little: shields and captchas come with it too."""

    OK = "ok"
    EMPTY = "empty"
    """No rows where some were expected."""
    UNSUPPORTED = "unsupported"
    """Another shape than the one known: the site has changed, or the page holds no text (video, slides)."""
    JAVASCRIPT_REQUIRED = "javascript_required"
    BLOCKED = "blocked"
    """A captcha, a login or a refusal. The source is asked nothing more; it is never got round."""
    FETCH_ERROR = "fetch_error"
    DISALLOWED = "disallowed"
    """robots.txt does not allow the path (nothing was asked)."""
    DEFECT = "defect"
    """Our own code failed on it."""


class PageFailure(Exception):
    """A page that could not be read.

    Attributes:
        state: what it is.
        reason: why, in words for people; never a secret.
        again: the site may answer rightly if asked once more.
    """

    def __init__(self, state: PageState, reason: str, *, again: bool = False) -> None:
        super().__init__(reason)
        self.state, self.reason, self.again = state, reason, again


class Unreadable(ValueError):
    """One row of a list lacks what it needs; the others go on. The text says what and which row."""


@dataclass(frozen=True)
class Row:
    """One row of a list, completed by its detail page where the list lacks the body.

    Attributes:
        source_id: the site's own id.
        published_at: first publication, aware (Asia/Shanghai).
        title, content: plain text, may be empty.
        url: absolute address.
        modified_at: last modification, None if the site gives none.
        dropped: why the row is not for the public (ad, vip, paid, login, deleted); empty: it is.
        pinned: stands above the order of time, so its time says nothing about the page's.
    """

    source_id: str
    published_at: dt.datetime
    title: str = ""
    content: str = ""
    url: str = ""
    modified_at: dt.datetime | None = None
    dropped: str = ""
    pinned: bool = False


@dataclass(frozen=True)
class ListPage:
    """What a page of a list holds.

    Attributes:
        rows: newest first.
        following: cursor of the page behind it; None: the list ends here.
        reached: all rows of this instant and later were on this page or before it; None: it follows from the rows.
        unreadable: rows that were set aside, one line each.
    """

    rows: tuple[Row, ...]
    following: str | None
    reached: dt.datetime | None = None
    unreadable: tuple[str, ...] = ()


_A_GAP = dt.timedelta(days=30)
"""No list is silent for so long within a page: a last row that lies further back stands there by mistake."""


def last_in_order(rows: Sequence[Row]) -> Row | None:
    """The row that says how far back a page reaches: the last one, but for pinned ones and one of another age."""
    ordered = [row for row in rows if not row.pinned]
    if len(ordered) > 1 and ordered[-2].published_at - ordered[-1].published_at > _A_GAP:
        return ordered[-2]
    return ordered[-1] if ordered else None


_BLOCKED = (
    "请输入验证码",
    "访问频繁",
    "请求过于频繁",
    "人机验证",
    "安全验证",
    "登录后查看",
    "access denied",
    "captcha",
    "challenge",
    "check_code",
)
_JAVASCRIPT = ("enable javascript", "please enable javascript and cookie", "需要启用javascript")


def what_it_is(failure: PageFailure, text: str) -> PageFailure:
    """A failure to read a page, named by what the page says: a captcha, a shield, an empty app shell.

    Only pages that could not be read are looked at, so that an article about captchas is none.
    """
    if failure.state is not PageState.UNSUPPORTED:
        return failure
    said = text[:200_000].lower()
    for marker in _BLOCKED:
        if marker in said:
            return PageFailure(PageState.BLOCKED, f"the site answers a page of refusal ({marker!r})")
    if any(marker in said for marker in _JAVASCRIPT):
        return PageFailure(PageState.JAVASCRIPT_REQUIRED, "the site answers a page that needs JavaScript")
    return failure
