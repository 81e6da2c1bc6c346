"""The news of a simulated stretch of days: what each site holds, when, and what a correct crawl must bring of it.

A world is a pure function of its seed. Times and traits of all items are made at once, as arrays; the words of an
item are made when asked for, so a world of two hundred thousand items costs little until it is read.

All times are whole epoch seconds (UTC); days and their borders are those of Asia/Shanghai.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from finevolve_pipeline.synth.text import Dice, industry_story, market_story, other_story
from finevolve_pipeline.universe import INDUSTRIES

SHANGHAI = dt.timezone(dt.timedelta(hours=8))
"""Asia/Shanghai knows no summer time in the years a world may lie in."""
DEFAULT_NOW = dt.datetime(2026, 5, 20, 15, 0, tzinfo=SHANGHAI)
FUTURE_DAYS = 2
"""Days after "now" that exist but are not yet published."""
FORBIDDEN_SHARE = 12
EDITED_SHARE = 8
LATE_EDITED_SHARE = 40
TWICE_SHARE = 2
DELAYS = (180, 2_400, 18_000, 108_000)
"""Seconds between an item's publication and its edit."""
SECOND_CURSORS = frozenset(("cls", "wallstreetcn", "jinrongjie"))
"""Sources whose cursor is a time in whole seconds."""
HOURS = (2, 1, 1, 1, 1, 1, 3, 6, 9, 11, 11, 10, 5, 9, 10, 9, 7, 7, 6, 5, 5, 4, 3, 3)
"""How busy each hour of a day is."""
MARKS = re.compile(r"\s+")


@dataclass(frozen=True)
class FeedPlan:
    """One stream of items with ids of its own.

    Attributes:
        source: the site's id.
        first_id: the number of its first item.
        page: rows a page; a run of ties one shorter occurs every ten days (see `World.ties`).
        forbidden: kinds of item that must not be taken, each known by its own flag alone.
        untitled: per cent of items without a title.
        modified: whether the site tells when an item was changed.
        copies: the feed whose words some items repeat.
    """

    source: str
    first_id: int
    page: int
    forbidden: tuple[str, ...] = ()
    untitled: int = 0
    modified: bool = False
    copies: str = ""


FEEDS: Mapping[str, FeedPlan] = {
    "cls": FeedPlan(
        "cls", 1_611_001, 20, ("is_ad", "ad_id", "ad_url", "vip_type", "vip_lead", "vip_reading"), 30, modified=True
    ),
    "wallstreetcn": FeedPlan(
        "wallstreetcn",
        2_690_001,
        20,
        (
            "premium_uri",
            "member_uri",
            "is_paid",
            "is_priced",
            "is_in_vip_privilege",
            "is_trial",
            "is_need_pay",
            "is_vip",
            "product_id",
            "membership_uri",
        ),
        50,
    ),
    "sina": FeedPlan("sina", 3_510_002, 20, ("deleted",), 100, modified=True),
    "sina_roll": FeedPlan("sina", 1, 50, modified=True),
    "eastmoney": FeedPlan("eastmoney", 2_034_002, 50),
    "10jqka": FeedPlan("10jqka", 2_800_001, 20, modified=True),
    "jinrongjie": FeedPlan("jinrongjie", 40_000_001, 20, (), 60, copies="eastmoney"),
    "yicai": FeedPlan("yicai", 102_000_001, 30, ("vip_url",)),
    "fenghuang": FeedPlan("fenghuang", 1, 20, ("unsupported",), copies="cls"),
    "yuncaijing": FeedPlan("yuncaijing", 16_000_001, 20),
}
"""Streams by name. `unsupported` are pages without a text (video): nothing can be taken from them."""

CHANNELS: Mapping[str, Mapping[str, str]] = {
    "cls": {"telegraph": "cls"},
    "wallstreetcn": {"lives": "wallstreetcn"},
    "sina": {"live": "sina", "roll": "sina_roll"},
    "eastmoney": {"fast": "eastmoney"},
    "10jqka": {"push": "10jqka", "lists": "10jqka"},
    "jinrongjie": {"flash": "jinrongjie", "yaowen": "jinrongjie"},
    "yicai": {"brief": "yicai"},
    "fenghuang": {"stream": "fenghuang"},
    "yuncaijing": {"list": "yuncaijing"},
}
"""Channels of each source and the feed each reads. ifeng's copy of CLS (`getClsData`) is CLS's own feed."""


@dataclass(frozen=True)
class Words:
    """Title and text as a correct crawl brings them: no markup, no control characters.

    White space is not part of the truth; compare with `same`. A lead in 【】 is part of the text.
    """

    title: str
    text: str


def same(one: str, other: str) -> bool:
    """Whether two texts are equal but for white space."""
    return MARKS.sub("", one) == MARKS.sub("", other)


@dataclass(frozen=True)
class Item:
    """One item of a site.

    Attributes:
        source: the site's id.
        feed: the stream it lies in.
        number: its place in the stream, from 0, by first publication.
        key: its id on the site.
        also: other ids of the same item on the site.
        published: first publication, epoch seconds.
        edited: when its words change, epoch seconds; None for never.
        tells: whether the site shows the time of the change.
        first: its words at first publication.
        later: its words after the change; equal to `first` where nothing changes.
        titled: whether the site's title field is filled (a title may else be a lead in the text).
        forbidden: why it must not be taken; empty for a public item.
        url: its page.
        copy: the feed its words are taken from, or empty.
        twist: a number from which the shapes draw the item's oddities.
    """

    source: str
    feed: str
    number: int
    key: str
    also: tuple[str, ...]
    published: int
    edited: int | None
    tells: bool
    first: Words
    later: Words
    titled: bool
    forbidden: str
    url: str
    copy: str
    twist: int

    def words(self, clock: int) -> Words:
        """Title and text as they stand at a simulated time."""
        return self.first if self.edited is None or clock < self.edited else self.later

    def modified_at(self, clock: int) -> int | None:
        """The time of change that the site shows at a simulated time, epoch seconds."""
        return self.edited if self.tells and self.edited is not None and self.edited <= clock else None

    @property
    def moment(self) -> dt.datetime:
        """First publication in Asia/Shanghai."""
        return dt.datetime.fromtimestamp(self.published, SHANGHAI)

    def odd(self, salt: int, share: int) -> bool:
        """Whether a chance of `share` per cent came true, by a salt of its own."""
        return mixed(self.twist, salt) % 100 < share


@dataclass(frozen=True)
class Truth:
    """What a crawl of a channel must bring, and what it must not, by id."""

    public: Mapping[str, Item]
    forbidden: Mapping[str, Item]


def mixed(*numbers: int) -> int:
    """A well-spread 64-bit number from some numbers."""
    state = 0
    for number in numbers:
        state = (state ^ (number & 0xFFFFFFFFFFFFFFFF)) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 29
        state = state * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 32
    return state


def _spread(seed: int, salt: int, size: int) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        state = np.arange(size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(mixed(seed, salt))
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))


class Feed:
    """A stream: the times and traits of all its items, oldest first."""

    def __init__(self, name: str, seed: int, published: list[int], clock: int) -> None:
        self.name = name
        self.plan = FEEDS[name]
        self.published = published
        size = len(published)
        self.seed = mixed(seed, list(FEEDS).index(name) + 1)
        self.twists: list[int] = _spread(self.seed, 1, size).tolist()
        kinds = len(self.plan.forbidden)
        chosen = np.flatnonzero(_spread(self.seed, 2, size) % np.uint64(100) < (FORBIDDEN_SHARE if kinds else 0))
        forbidden = np.zeros(size, dtype=np.int64)
        forbidden[chosen] = np.arange(len(chosen)) % max(kinds, 1) + 1
        self.forbidden: list[int] = forbidden.tolist()
        edits = _spread(self.seed, 3, size)
        times = np.array(published, dtype=np.int64)
        # The last day has more of them, so that some are still to come when simulated time starts.
        share = np.where(times > clock - 86_400, LATE_EDITED_SHARE, EDITED_SHARE)
        changed = (edits % np.uint64(100)).astype(np.int64) < share
        delay = np.array(DELAYS)[((edits >> np.uint64(8)) % np.uint64(len(DELAYS))).astype(np.int64)]
        self.edited: list[int] = np.where(changed, times + delay, 0).tolist()
        self.member: list[int] = (_spread(self.seed, 4, size) % np.uint64(4)).tolist()
        # A repeated row in a long run of ties would fill a page with one second, which no time cursor can pass.
        alone = (np.diff(times, prepend=-1) > 0) & (np.diff(times, append=times[-1] + 1) > 0)
        self.twice: list[bool] = ((_spread(self.seed, 5, size) % np.uint64(100) < TWICE_SHARE) & alone).tolist()

    def version(self, number: int, clock: int) -> int:
        """0 before an item's edit, 1 after it."""
        edited = self.edited[number]
        return 1 if edited and edited <= clock else 0


@dataclass(frozen=True)
class Channel:
    """A list of a site: numbers of feed items in order of publication, some of them twice.

    `reach` is the number of newest rows the list still shows; None for all. `inclusive`: a time cursor answers the
    rows of its own second again, in place of strictly older ones.
    """

    feed: Feed
    numbers: Sequence[int]
    reach: int | None = None
    inclusive: bool = False

    @cached_property
    def times(self) -> list[int]:
        """First publication of each row."""
        return [self.feed.published[number] for number in self.numbers]

    def bounds(self, clock: int) -> tuple[int, int]:
        """The rows that show at a simulated time, as a half-open range."""
        high = bisect_right(self.times, clock)
        return (0 if self.reach is None else max(0, high - self.reach)), high

    def before(self, clock: int, limit: int | None, size: int) -> Sequence[int]:
        """The newest `size` rows published before the cursor `limit` (None: all), newest first."""
        low, high = self.bounds(clock)
        if limit is not None:
            high = min(high, bisect_left(self.times, limit + 1 if self.inclusive else limit))
        return self.numbers[max(low, high - size) : max(low, high)][::-1]

    def page(self, clock: int, offset: int, size: int) -> Sequence[int]:
        """`size` rows from the offset-th newest on, newest first."""
        low, high = self.bounds(clock)
        return self.numbers[max(low, high - offset - size) : max(low, high - offset)][::-1]

    def between(self, clock: int, start: int, end: int) -> Sequence[int]:
        """The rows published from `start` on and before `end`, newest first."""
        low, high = self.bounds(clock)
        return self.numbers[
            max(low, bisect_left(self.times, start)) : max(low, min(high, bisect_left(self.times, end)))
        ][::-1]

    def next_arrival(self, clock: int, items: int) -> int:
        """When the `items`-th row after `clock` appears; `clock` itself where no more come."""
        _, high = self.bounds(clock)
        return self.times[min(high + items, len(self.times)) - 1] if high < len(self.times) else clock


def day_start(day: dt.date) -> int:
    """The first second of a day in Asia/Shanghai."""
    return int(dt.datetime.combine(day, dt.time(), SHANGHAI).timestamp())


def clock_text(seconds: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """An instant as Asia/Shanghai wall time."""
    return dt.datetime.fromtimestamp(seconds, SHANGHAI).strftime(form)


@dataclass(frozen=True)
class World:
    """All nine sites' news.

    Attributes:
        seed: two worlds of one seed (and the other settings) are equal.
        days: calendar days, the day of `now` being the last.
        now: where simulated time starts.
        items: mean items a weekday and feed.
        reach: newest rows that a source's lists still show; sources not named show all.
        ties: length of the longest runs of ties, for sources whose pages are not read at their usual size.
        inclusive: sources (of cls, wallstreetcn, jinrongjie) whose cursor answers rows of its own second again; it
            is not known which of the two the real sites do.
    """

    seed: int = 7
    days: int = 30
    now: dt.datetime = DEFAULT_NOW
    items: int = 30
    reach: Mapping[str, int] = field(default_factory=dict)
    ties: Mapping[str, int] = field(default_factory=dict)
    inclusive: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.now.utcoffset() is None:
            raise ValueError(f"now {self.now}: has no time zone (give one, best Asia/Shanghai)")
        for name, given in (("reach", self.reach), ("ties", self.ties)):
            if unknown := set(given) - set(CHANNELS):
                raise ValueError(f"{name} {sorted(unknown)}: no such source (choose of {', '.join(CHANNELS)})")
        if unfit := self.inclusive - SECOND_CURSORS:
            raise ValueError(f"inclusive {sorted(unfit)}: has no time cursor (choose of {sorted(SECOND_CURSORS)})")
        if self.days < 1 or self.items < 1:
            raise ValueError(f"days {self.days}, items {self.items}: both must be 1 or more")

    @property
    def clock(self) -> int:
        """`now` in epoch seconds."""
        return int(self.now.timestamp())

    @property
    def first_day(self) -> dt.date:
        """The oldest day that has news."""
        return self.now.astimezone(SHANGHAI).date() - dt.timedelta(days=self.days - 1)

    @property
    def silent(self) -> tuple[str, dt.date] | None:
        """The source that has no news at all on one day, and that day; None in worlds of under four days."""
        if self.days < 4:
            return None
        return list(CHANNELS)[self.seed % len(CHANNELS)], self.first_day + dt.timedelta(days=self.days // 2)

    @cached_property
    def feeds(self) -> Mapping[str, Feed]:
        """All streams."""
        return {name: Feed(name, self.seed, self._times(name), self.clock) for name in FEEDS}

    @cached_property
    def channels(self) -> Mapping[tuple[str, str], Channel]:
        """All lists, by source and channel."""
        made = {}
        for source, channels in CHANNELS.items():
            for name, feed_name in channels.items():
                feed = self.feeds[feed_name]
                numbers: list[int] = []
                for number in range(len(feed.published)):
                    if _shows(source, name, feed.member[number]):
                        numbers.extend((number,) * (2 if feed.twice[number] else 1))
                made[source, name] = Channel(feed, numbers, self.reach.get(source), source in self.inclusive)
        return made

    def _times(self, name: str) -> list[int]:
        plan = FEEDS[name]
        place = list(FEEDS).index(name)
        weights = np.array(HOURS) / sum(HOURS)
        times: list[int] = []
        for offset in range(self.days + FUTURE_DAYS):
            day = self.first_day + dt.timedelta(days=offset)
            if self.silent == (plan.source, day):
                continue
            random = np.random.default_rng((self.seed, place, day.toordinal()))
            scale = random.uniform(0.7, 1.3)
            if day.weekday() >= 5:
                scale *= 0.15 if day.isocalendar().week % 2 else 0.5
            count = max(3, round(self.items * scale))
            start = day_start(day)
            seconds = random.choice(24, size=count, p=weights) * 3600 + random.integers(0, 3600, size=count)
            moments = (start + seconds).tolist()
            # Both borders of the day, and now and then several items in one second.
            moments[:2] = (start, start + 86_399) if offset % 3 == 0 else (start + 1, start + 86_398)
            ties = moments[2 + offset % max(1, count - 2)] if count > 2 else start
            moments += [ties] * (offset % 4)
            if offset % 10 == 1:
                alone = start + 36_000
                moments = [one for one in moments if abs(one - alone) > 5] + [alone] * self.ties.get(
                    plan.source, plan.page - 1
                )
            times += sorted(moments)
        return times

    def item(self, feed_name: str, number: int) -> Item:
        """One item of a stream."""
        feed = self.feeds[feed_name]
        plan = feed.plan
        published = feed.published[number]
        kind = plan.forbidden[feed.forbidden[number] - 1] if feed.forbidden[number] else ""
        twist = feed.twists[number]
        titled = mixed(twist, 11) % 100 >= plan.untitled
        key, also, url = _names(feed_name, plan.first_id + number, published, kind)
        copy = ""
        lead = titled or bool(mixed(twist, 12) % 3)
        title, body = self._story(feed, number)
        if plan.copies and not kind and mixed(twist, 13) % 100 < 15:
            origin = self.feeds[plan.copies]
            place = bisect_right(origin.published, published - 30) - 1 - mixed(twist, 14) % 4
            if place >= 0 and not origin.forbidden[place]:
                copy = plan.copies
                title, body = self._story(origin, place)
        first = later = _worded(feed_name, title, body, titled, lead, kind, published)
        edited = feed.edited[number] or None
        if edited is not None:
            title, body = f"{title}（更正）", f"{body}更正：以正式公告为准。"
            later = _worded(feed_name, title, body, titled, lead, kind, published)
        return Item(
            source=plan.source,
            feed=feed_name,
            number=number,
            key=key,
            also=also,
            published=published,
            edited=edited,
            tells=plan.modified,
            first=first,
            later=later,
            titled=titled,
            forbidden=kind,
            url=url,
            copy=copy,
            twist=twist,
        )

    def _story(self, feed: Feed, number: int) -> tuple[str, str]:
        """Title and sentences of an item, unlike those of any other item."""
        digest = hashlib.blake2b(f"{feed.seed}/{number}".encode(), digest_size=64).digest()
        dice = Dice(struct.unpack("<32H", digest))
        match dice.number(1, 10):
            case 1 | 2:
                story = market_story(dice)
            case 3:
                story = other_story(dice)
            case _:
                story = industry_story(dice.pick(INDUSTRIES), dice.pick((1, -1, 0)), dice)
        mark = f"{list(FEEDS).index(feed.name)}{number:06d}"
        return f"{story.title}（{mark}）", f"{story.body}本条稿件编号{mark}。"

    def truth(
        self,
        source: str,
        channel: str | None = None,
        *,
        start: dt.date | None = None,
        end: dt.date | None = None,
        clock: int | None = None,
    ) -> Truth:
        """What a crawl of some days (both ends included) must bring at a simulated time.

        Args:
            source: the site's id.
            channel: one of its channels; None for all of them together.
            start: first day in Asia/Shanghai; None for the oldest.
            end: last day; None for the newest.
            clock: simulated time in epoch seconds; None for the world's `now`.

        Raises:
            KeyError: no such source or channel.
        """
        at = self.clock if clock is None else clock
        since = day_start(start or self.first_day)
        until = day_start(end + dt.timedelta(days=1)) if end else at + 1
        found: dict[str, Item] = {}
        for name in [channel] if channel else CHANNELS[source]:
            lane = self.channels[source, name]
            for number in lane.between(at, since, until)[::-1]:
                item = self.item(lane.feed.name, number)
                found[item.key] = item
        return Truth(
            {key: item for key, item in found.items() if not item.forbidden},
            {key: item for key, item in found.items() if item.forbidden},
        )


def _shows(source: str, channel: str, member: int) -> bool:
    """JRJ's two lists overlap: a quarter of its items are flash only, a quarter news only, half are both."""
    if source != "jinrongjie":
        return True
    return member != 1 if channel == "flash" else member != 0


def _names(feed: str, number: int, published: int, kind: str) -> tuple[str, tuple[str, ...], str]:
    """Id, other ids and page address of an item."""
    day = clock_text(published, "%Y%m%d")
    match feed:
        case "cls":
            return str(number), (), f"https://www.cls.cn/detail/{number}"
        case "wallstreetcn":
            part = {"premium_uri": "premium/articles", "member_uri": "member/articles"}.get(kind, "livenews")
            return str(number), (), f"https://wallstreetcn.com/{part}/{number}"
        case "sina":
            document = f"detail-in{number}.d.html"
            return str(number), (), f"https://finance.sina.cn/7x24/{clock_text(published, '%Y-%m-%d')}/{document}"
        case "sina_roll":
            name = f"inabc{number:07d}"
            path = f"https://finance.sina.com.cn/stock/{clock_text(published, '%Y-%m-%d')}/doc-{name}.shtml"
            return f"comos:{name}", (), path
        case "eastmoney":
            code = f"{day}3{number:09d}"
            return code, (), f"https://finance.eastmoney.com/a/{code}.html"
        case "10jqka":
            seq = str(number + 652_200_000)
            return str(number), (seq,), f"https://news.10jqka.com.cn/{day}/c{seq}.shtml"
        case "jinrongjie":
            path = clock_text(published, "%Y/%m/%d%H%M")
            return str(number), (), f"https://24h.jrj.com.cn/{path}{number}.shtml"
        case "yicai":
            return str(number), (), f"https://www.yicai.com/{'vip' if kind else 'brief'}/{number}.html"
        case "fenghuang":
            page = f"8X{number:07d}aMp"
            return f"7{number:019d}", (page,), f"https://finance.ifeng.com/c/{page}"
        case _:
            return str(number), (), f"https://www.yuncaijing.com/news/id_{number}.html"


def _worded(feed: str, title: str, body: str, titled: bool, lead: bool, kind: str, published: int) -> Words:
    """The words of an item, with the lead and dateline its site writes."""
    match feed:
        case "cls":
            if kind in ("vip_lead", "vip_reading"):
                name = "盘中宝" if kind == "vip_lead" else "电报解读"
                return Words(title, f"【{name}】{body}")
            line = clock_text(published, "财联社%-m月%-d日电，")
            return Words(title, f"【{title}】{line}{body}") if lead else Words("", f"{line}{body}")
        case "sina" | "jinrongjie":
            if titled:
                return Words(title, body)
            return Words(title, f"【{title}】{body}") if lead else Words("", body)
        case "wallstreetcn":
            return Words(title, body) if titled else Words("", body)
        case "eastmoney":
            return Words(title, f"【{title}】{body}" if lead else body)
        case _:
            return Words(title, body)
