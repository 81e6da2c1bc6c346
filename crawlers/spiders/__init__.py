"""One spider a source: which channels the site has, and how a page of each is asked for and read."""
