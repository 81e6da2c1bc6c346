"""News rules: importing, cleaning, de-duplication, tagging, selection, windows and the text shown to agents.

Pure functions over the tables of `tables`. No storage, no network, no Dagster.
"""
