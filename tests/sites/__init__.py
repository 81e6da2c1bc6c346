"""A local server that answers like the nine news sites, and the truth about what it serves.

`world` makes the news and says which items a correct crawl brings; one module a source gives it the source's shapes;
`faults` spoils single answers; `server` speaks HTTP; `handler` lets Scrapy meet it under the sites' own names;
`process` starts it for a test; `python -m tests.sites` starts it from a shell.

The texts are of the project's own making. Nothing here reads a clock: simulated time starts where the caller says.
"""
