"""Where daily bars come from beside files: services that are asked for them, and what is done with their answers.

What belongs here: one adapter a service, their registry, and `bring`, which asks for what the landing store lacks. What
must not: a rule about bars (`finevolve_pipeline.market`), and Dagster.
"""

from resources.market.bringing import Brought, bring
from resources.market.revisions import Revisions
from resources.market.sources import MarketSource, build_source, configured, second_store

__all__ = ["Brought", "MarketSource", "Revisions", "bring", "build_source", "configured", "second_store"]
