"""The Scrapy project that reads the nine news sites.

What belongs here: where a site's lists begin, how its pages are read, and how politely it is asked. What must not:
where rows are stored, which days are due, anything of Dagster; `resources.news_sites` decides that and runs the crawl
in a child process. It can also be used alone: `scrapy crawl cls -a from=2026-05-01 -a to=2026-05-03 -O cls.jsonl`.
"""
