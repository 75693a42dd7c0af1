"""Fleets: several worker processes on one store, each with its own logs.

What a store says of itself proves nothing here: lost, doubled and early visits are counted from
what the workers logged, and their calls are replayed into the invariant checker.
"""
