"""Commands of `scrapy` that this project gives another end: a crawl that is not whole does not pass for one."""
