"""What is remembered of a host's answer to a visit, and of how a page changes (B1, G3)."""

from __future__ import annotations

import msgspec


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a done task remembers: the last answer, and what its visits taught."""

    status: int
    bytes: int
    digest: str | None
    etag: str | None
    last_modified: str | None
    looks: int = 0  # visits that could tell whether the page had changed
    changes: int = 0  # of those, how many found it changed
    watched: float = 0.0  # seconds between the first and the last of them
    planned: float = 0.0  # seconds the last visit chose until the next; 0: none


class Last(msgspec.Struct, frozen=True, gc=False):
    """The last answer to a task that is visited again, and how old it is."""

    answer: Answer
    age: float  # seconds since that visit ended
