"""The embedded store: one file, one process; the default (M3)."""

from outrider.store.embedded.store import EmbeddedStore

__all__ = ["EmbeddedStore"]
