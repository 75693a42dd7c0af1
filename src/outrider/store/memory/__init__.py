"""The memory store: nothing survives the process."""

from outrider.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
