"""Market rules: importing bars with declared units, excess returns, the market context of a prediction.

Pure functions over the tables of `tables`. No storage, no network, no Dagster.
"""
