"""LENDS: clocks, faults, the naive model, invariants and the conformance suite, for any store."""

from outrider.testing.clock import FakeClock

__all__ = ["FakeClock"]
