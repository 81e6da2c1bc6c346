"""Experience mechanisms: `base` has the interface, every other file is one mechanism.

A mechanism sees only what the gateway gives it. It changes its state only by applying its own journal events,
so that the state after a resume equals the state of an uninterrupted run.
"""
