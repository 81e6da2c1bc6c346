"""Leaderboard bundles: one file that lets anybody recompute a run's figures and look for leaks in it.

    gather  ->  content  ->  archive         packing: a home's runs, as plain tables, as one file
    archive ->  content  ->  verify          checking: nothing in a file is believed that can be recomputed
    verify  ->  leaderboard                  a page made of what was recomputed, never of what was claimed

What lives here: what stands in a bundle, and every check of it. What must not: article text, prompts, models' words,
paths and names of machines; the terminal (see `cli.bundle`).
"""
