"""Tools for tests of crawls and of stores: fake clock, faulty store, model, conformance suite,
invariant checker, and a local test web.
"""

from outrider.testing.clock import FakeClock

__all__ = ["FakeClock"]
