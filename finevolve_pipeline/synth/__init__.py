"""The synthetic world: seeded news and bars with a planted, regime-switching signal, so that the truth is known."""
