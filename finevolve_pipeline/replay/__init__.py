"""The replay: clocked gateway, maturity queue, one day's order, the per-day commit and its journal, the
audit.

Everything a mechanism or a prompt sees comes through `clock.Gateway`. Nothing here reads a wall clock.
"""
