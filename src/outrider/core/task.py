"""Link (a URL to add), Task (an admitted URL), Lease (a leased task), Added (the answer).

Values only. A Task has its key, cost and score: a store takes it as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from enum import IntEnum
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, Self, TypeAlias

import msgspec

from outrider.core.breakdown import Breakdown
from outrider.core.outcome import Last
from outrider.core.policy.rules import QueueRules
from outrider.core.url import Url
from outrider.errors import InvalidInput

if TYPE_CHECKING:
    from types import TracebackType


DISCOVERY: Final = 0
ACQUISITION: Final = 1
LANES: Final = ("discovery", "acquisition")

KnownRule: TypeAlias = Literal["keep", "raise", "revisit", "gather", "set"]

# B3: the queue of identities that are known without a URL; no host has such a name.
NO_URL_KEY: Final = "(no-url)"
DEFAULT_ORIGIN: Final = "opportunistic"  # B1: of links without an origin
PRIORITIES: Final[dict[str, float]] = {  # F8
    "critical": -1000.0,
    "high": -100.0,
    "normal": 0.0,
    "low": 100.0,
}
# Priorities up to "high" and from "low" on are counted; the others are normal.
CRITICAL, HIGH, LOW = PRIORITIES["critical"], PRIORITIES["high"], PRIORITIES["low"]


class _DefaultDepth(IntEnum):
    """The default depth of a link: equal to 0, but not identical to a given 0."""

    DEPTH = 0

    def __repr__(self) -> str:
        return "0"


# Defaults that differ from a given value by identity: a revisit keeps fields its link leaves out.
DEFAULT_DEPTH: Final = _DefaultDepth.DEPTH
DEFAULT_TYPE: Final = b"page".decode()  # equal to "page", and not the same object
DEFAULT_BIAS: Final = float("0")


class _Address(msgspec.Struct, frozen=True, gc=False):
    url: str | Url


class Link(_Address, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A URL to add, with what is known of it. Lower priority is sooner.

    Encoded, it leaves out fields that were not given.
    """

    key: str | None = None
    type: str = DEFAULT_TYPE
    depth: int = DEFAULT_DEPTH
    priority: float | str | None = None
    base_priority: float | None = None
    bias: float = DEFAULT_BIAS
    forced: bool = False
    origin: str | None = None
    via: str | None = None
    tag: str | None = None
    delay: float = 0.0
    known: KnownRule = "keep"
    identity: str | None = None
    meta: Mapping[str, Any] = {}
    text: str | None = None  # the URL as it was given, for clients that know the task by it
    done: bool = False  # known as done, without a visit
    fingerprint: bytes | None = None  # 16 bytes, instead of those of the identity
    found: str | None = None  # places where it was found, as words: "nav header"


class Task(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An admitted URL, in the plain numbers a store needs (B1)."""

    crawl: str
    fingerprint: bytes
    url: str
    key: str
    type: str
    lane: int
    depth: int
    precedence: int  # u16: 0 is forced, otherwise max(1, cost)
    priority: float  # finite, lower is sooner
    cost: int
    delay: float = 0.0  # seconds until due
    known: KnownRule = "keep"
    roll: int = 0  # u48, the tie of a shuffled queue
    origin: str = DEFAULT_ORIGIN
    via: str | None = None
    tag: str | None = None
    meta: bytes = b""  # JSON, at most 1 MiB
    breakdown: Breakdown | None = None
    text: str = ""  # the URL as it was given, if it is kept; "": it is the URL, or not kept
    done: bool = False  # becomes known as done, without a visit (B3); stored as False
    typed_by: str = ""  # what gave it its type, if its link did not; "": the link, or the default


class Added(msgspec.Struct, frozen=True, gc=False):
    """The answer for one URL: added with its priority, or the reason why not."""

    url: str
    added: bool
    reason: str | None = None
    priority: float | None = None
    detail: str | None = None


class LeaseId(NamedTuple):
    """The identity of a lease; the token changes at claim, release and expiry (H1)."""

    crawl: str
    task: int
    token: int


class Holder(Protocol):
    """The frontier that a lease can be released to."""

    def release(self, leases: list[Lease]) -> Awaitable[set[Lease]] | set[Lease]:
        """Release the leases without a penalty."""
        ...


class PolitenessState(msgspec.Struct, frozen=True, gc=False):
    """A queue's throttle level, failures in a row and last delay, for `decide` (D1, D3, D4)."""

    level: int = 0  # throttle level
    calm: int = 0  # Done in a row
    throttles_in_row: int = 0
    unreachable_in_row: int = 0
    blocks_in_row: int = 0
    last_delay: float = -1.0  # -1: none yet
    crawl_delay: float = 0.0


class Lease(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A task leased to a worker, with the queue state that `decide` needs."""

    store: str  # id of the store
    task: int  # its number there
    token: int
    about: Task
    attempt: int  # starts at 1
    worker: str
    lease_for: float
    failures: int  # of the task
    throttles: int  # of the task
    rules: QueueRules
    manners: PolitenessState
    holder: Holder | None = None
    last: Last | None = None  # what an earlier visit was answered, if this is a revisit
    # Drawn as it began, in seconds, where delays are uniform and count from the start: its verdict
    # does not draw again (D1). Below 0: none was drawn.
    delay: float = -1.0
    # O1: seconds from when its task was due until it was leased; and, then, since a visit of its
    # queue last ended. Below 0: none has ended, or no visit begins (D5), or it was looked up.
    waited: float = -1.0
    gap: float = -1.0

    @property
    def id(self) -> LeaseId:
        """The identity of this lease in the store."""
        return LeaseId(self.about.crawl, self.task, self.token)

    @property
    def crawl(self) -> str:
        """The crawl it belongs to."""
        return self.about.crawl

    @property
    def url(self) -> str:
        """What to visit."""
        return self.about.url

    @property
    def text(self) -> str:
        """The URL as the link gave it, if it is kept; otherwise what to visit."""
        return self.about.text or self.about.url

    @property
    def key(self) -> str:
        """Its queue's key."""
        return self.about.key

    @property
    def type(self) -> str:
        """The type of the task."""
        return self.about.type

    @property
    def depth(self) -> int:
        """Links from a seed."""
        return self.about.depth

    @property
    def priority(self) -> float:
        """Lower is sooner."""
        return self.about.priority

    @property
    def fingerprint(self) -> bytes:
        """Its identity within the crawl."""
        return self.about.fingerprint

    @property
    def lane(self) -> int:
        """Discovery or acquisition."""
        return self.about.lane

    @property
    def cost(self) -> int:
        """The cost charged for this visit."""
        return self.about.cost

    @property
    def tag(self) -> str | None:
        """The source label its found links inherit."""
        return self.about.tag

    @property
    def via(self) -> str | None:
        """The page it was found on."""
        return self.about.via

    @property
    def origin(self) -> str:
        """How it was discovered."""
        return self.about.origin

    @property
    def meta(self) -> dict[str, Any]:
        """The link's own data; a new copy at every access."""
        return msgspec.json.decode(self.about.meta) if self.about.meta else {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lease) and (self.store, self.id) == (other.store, other.id)

    def __ne__(self, other: object) -> bool:
        # The base class has a `__ne__` of its own, which compares identities.
        return not self == other

    def __hash__(self) -> int:
        return hash((self.store, self.about.crawl, self.task, self.token))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: object,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release on exception or cancellation; a finished lease stays finished."""
        if error is not None and self.holder is not None:
            freed = self.holder.release([self])
            if isinstance(freed, Awaitable):
                await freed

    def __enter__(self) -> Self:
        """As `async with`, for a lease of a blocking frontier."""
        if self.holder is None or iscoroutinefunction(self.holder.release):
            raise InvalidInput("a lease of an async frontier needs `async with lease:`")
        return self

    def __exit__(
        self,
        kind: object,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release on exception; a finished lease stays finished."""
        if error is not None and self.holder is not None:
            self.holder.release([self])
