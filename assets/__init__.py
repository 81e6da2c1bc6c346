"""Dagster assets, checks, schedules: read inputs, call the domain, write, report metadata. No business rule."""
