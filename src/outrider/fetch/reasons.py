"""Why a request gave no response: one table of reasons, each with the outcome it is told as (G0).

A reason is short and stable: a word, or a word, a colon and a detail, and nothing a host wrote.
Faults of this machine are not in the table: they are no outcome (fetch/local_faults.py).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from outrider.core.outcome import Dropped, Failed, Unreachable

Trouble: TypeAlias = Failed | Unreachable | Dropped

BAD_URL: Final = "bad-url"
HEADERS: Final = "headers"
PRIVATE_ADDRESS: Final = "private-address"
SIZE: Final = "size"
SWITCHED: Final = "protocol: switched"
UNPACKING: Final = "unpacking"

# Word → (outcome, meaning, details).
REASONS: Final[dict[str, tuple[type[Trouble], str, tuple[str, ...]]]] = {
    "dns": (
        Unreachable,
        "the name has no address",
        ("no such host", "no answer", "failed", "time limit"),
    ),
    "connect": (
        Unreachable,
        "no connection was made",
        ("refused", "reset", "no route", "time limit", "failed"),
    ),
    "tls": (
        Unreachable,
        "no secure connection was made; the detail is OpenSSL's word for it",
        ("certificate has expired", "self-signed certificate", "hostname mismatch"),
    ),
    "time limit": (
        Failed,
        "connected, but no byte came for `read_timeout`, or the answer took `total_timeout`",
        ("read", "total"),
    ),
    "cut": (
        Failed,
        "the connection ended before the answer did, or a packed body ends too early",
        ("no answer", "reset", "head", "body", "packed body"),
    ),
    "protocol": (
        Failed,
        "what came is not HTTP",
        ("status line", "header", "message", "switched"),
    ),
    SIZE: (Dropped, "the body is, or unpacks to, more than `max_body`", ()),
    HEADERS: (Dropped, "a header field, or all of them, are more than `max_headers` allows", ()),
    UNPACKING: (Dropped, "the body is not packed as it says", ()),
    PRIVATE_ADDRESS: (Dropped, "the host is inside somebody's network; nothing was sent", ()),
    BAD_URL: (Dropped, "no request can be made of the URL; nothing was sent", ()),
}

_UNSENT: Final = frozenset((PRIVATE_ADDRESS, BAD_URL))


class Hindered(OSError):
    """Something of ours stopped a connection: `reason` is one of the table."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def tell(reason: str, seconds: float) -> Trouble:
    """A reason as the outcome it is."""
    kind = REASONS[reason.partition(":")[0]][0]
    if kind is Unreachable:
        return Unreachable(reason)
    if kind is Failed:
        return Failed(reason, seconds)
    return Dropped(reason, seconds, visited=reason not in _UNSENT)
