"""The benchmark itself: calendar, universe, tables, news and market rules, replay, mechanisms, evaluation.

What lives here is pure domain code. What must not: Dagster and Scrapy (only `definitions`, `partitions` and
`cli` may know them), network access, and anything that reads a wall clock where simulated time belongs.
"""
