"""The memory store: the claim algorithm in its clearest fast form; nothing survives the process."""

from outrider.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
