"""The synthetic world: seeded news and bars with a planted, regime-switching signal whose truth is known.

Writes files that go through the ordinary importers. Nothing downstream knows that a world is synthetic.
"""
