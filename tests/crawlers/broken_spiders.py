"""A spider with a defect, in place of the real one: `SPIDER_MODULES = ["broken_spiders"]`."""

from __future__ import annotations

from scrapy.http import Response

from crawlers.pages import ListPage
from crawlers.spiders.base import NewsSpider
from crawlers.spiders.cls import Telegraph


class Broken(Telegraph):
    """Reads the newest page and another one, and fails on the next."""

    pages = 0

    def read(self, response: Response, cursor: str) -> ListPage:
        """See the class."""
        type(self).pages += 1
        if self.pages > 2:
            raise ZeroDivisionError("division by zero")
        return super().read(response, cursor)


class BrokenSpider(NewsSpider):
    """cls.cn, badly."""

    name = "cls"
    channels = (Broken,)
    default_channels = ("telegraph",)
