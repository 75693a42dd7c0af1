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
    looks: int = 0  # visits that could tell whether the page had changed, the older ones fading
    changes: int = 0  # of those, how many found it changed
    watched: float = 0.0  # seconds, each wait counted up to the change it ended with
    planned: float = 0.0  # seconds the policy chose until the next visit; 0: it did not


class Last(msgspec.Struct, frozen=True, gc=False):
    """The last answer to a task that is visited again, and how old it is."""

    answer: Answer
    age: float  # seconds since that visit ended
