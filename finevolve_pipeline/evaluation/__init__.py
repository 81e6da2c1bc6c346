"""Evaluation: information coefficients, comparison with Pipe, the report and the benchmark release.

Pure functions of stored predictions and excess returns.
"""
