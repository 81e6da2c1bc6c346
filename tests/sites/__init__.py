"""A local server that answers like the nine news sites, and the truth about what it serves.

`world` makes the news and says which items a correct crawl brings; one module a source gives it the source's shapes;
`faults` spoils single answers; `server` speaks HTTP; `handler` lets Scrapy meet it under the sites' own names;
`process` starts it for a test; `python -m tests.sites` starts it from a shell.

    with running("--days", "30", "--seed", "7") as server:        # tests.sites.process
        server.at                                                 # for the Scrapy setting SITES_AT
        server.order(faults=[{"kind": "429", "host": "www.cls.cn", "after": 3, "times": 2}])
        server.truth("cls", start="2026-05-04", end="2026-05-06")["public"]
        server.told()["counts"]["www.cls.cn"]
    World(seed=7, days=30).truth("sina", "live").public           # the same truth without a server

Simulated time starts at `DEFAULT_NOW` unless `--now` says otherwise; a crawler's own "now" must agree with it.

The texts are of the project's own making. Nothing here reads a clock: simulated time starts where the caller says.
"""
