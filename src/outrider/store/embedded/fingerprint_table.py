"""The fingerprint table: two arrays, of 64 keyed bits of each fingerprint and of its task's number.

Each half of a hash names a bucket of eight slots; the hash is in the one that was emptier when it
was added. The few that found both full are spilled into a dict. So a batch is looked up at once.
The table grows in place, from its end down and some buckets at a time: halves from `_moved_from` on
have their bucket in the larger table already, the others in the smaller one.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Hashes: TypeAlias = NDArray[np.uint64]
Numbers: TypeAlias = NDArray[np.uint32]
Places: TypeAlias = NDArray[np.int64]

SLOTS: Final = 8  # of a bucket
FIRST_BUCKETS: Final = 64  # buckets of a new table
MAX_LOAD: Final = 0.75  # load at which the table begins to grow
GROWTH: Final = 1.22
MOVE_STEP: Final = 1024  # buckets moved at a time
TASKS_PER_TEN_BUCKETS: Final = 3  # added while ten buckets are moved; more would spill
PIECE_BUCKETS: Final = 1024  # buckets of a piece

_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64((1 << 32) - 1)
_WHOLE: Final = 1 << 32
_ALL: Final = (1 << 64) - 1
_HALF_MASK: Final = _WHOLE - 1
_HALVES: Final = struct.Struct("<QQ").unpack
_BUCKET: Final = struct.Struct(f"={SLOTS}Q").unpack_from


class Shape(NamedTuple):
    """The size of the table, and how far it has grown."""

    buckets: int
    target: int  # buckets of the larger table; the same when it does not grow
    moved_from: int
    spilled: dict[int, int]


class FingerprintTable:
    """The numbers of known fingerprints."""

    def __init__(self, secret: bytes) -> None:
        self._keys = np.frombuffer(secret[:32], "<u8") | np.uint64(1)
        self._plain_keys = self._keys.tolist()
        self.count = 0
        self._buckets = self._target = FIRST_BUCKETS
        self._moved_from = _WHOLE
        self._pending_moves = 0
        self._spilled: dict[int, int] = {}
        self._is_held = False  # being copied: nothing moves
        self._memories = (_GrowableMemory(8), _GrowableMemory(4))
        self._fills: NDArray[np.int8] = np.zeros(0, np.int8)
        self._hashes: Hashes = np.zeros(0, np.uint64)
        self._numbers: Numbers = np.zeros(0, np.uint32)
        self._allocate(FIRST_BUCKETS)

    def _allocate(self, buckets: int) -> None:
        slots = buckets * SLOTS
        # Memory that an array refers to cannot be extended, so the arrays are dropped meanwhile.
        self._hashes, self._numbers = self._hashes[:0].copy(), self._numbers[:0].copy()
        self._rows = self._hashes.reshape(0, SLOTS)
        for memory_ in self._memories:
            memory_.extend(slots)
        self._hashes = np.frombuffer(self._memories[0].memory, np.uint64, slots)
        self._numbers = np.frombuffer(self._memories[1].memory, np.uint32, slots)
        self._rows = self._hashes.reshape(buckets, SLOTS)
        self._fills = np.concatenate((self._fills, np.zeros(buckets - len(self._fills), np.int8)))

    def hashes(self, fingerprints: Sequence[bytes]) -> Hashes:
        """Return 64 keyed bits of each: no site can choose URLs that collide here."""
        halves = np.frombuffer(b"".join(fingerprints), "<u8").reshape(-1, 2)
        first, second, third, fourth = self._keys
        mixed = (halves[:, 0] ^ first) * second + (halves[:, 1] ^ third) * fourth
        mixed ^= mixed >> _HALF
        mixed *= second
        hashes: Hashes = np.maximum(mixed ^ mixed >> _HALF, np.uint64(1))
        return hashes

    def _buckets_of(self, hashes: Hashes) -> tuple[Places, Places]:
        """Return the two buckets of each hash, as far as the table has grown."""
        return self._bucket_of(hashes >> _HALF), self._bucket_of(hashes & _LOW)

    def _bucket_of(self, halves: Hashes) -> Places:
        if self._moved_from == _WHOLE:
            return (halves * np.uint64(self._buckets) >> _HALF).view(np.int64)
        sizes = np.where(
            halves >= self._moved_from, np.uint64(self._target), np.uint64(self._buckets)
        )
        return (halves * sizes >> _HALF).view(np.int64)

    def find(self, hashes: Hashes) -> Numbers:
        """Return the number of each; 0 for unknown ones."""
        found = np.zeros(len(hashes), np.uint32)
        wanted = hashes[:, None]
        for buckets in self._buckets_of(hashes):
            hits = np.flatnonzero(self._rows.take(buckets, axis=0) == wanted)
            which = hits // SLOTS
            found[which] = self._numbers.take(buckets.take(which) * SLOTS + hits % SLOTS)
        return self._find_spilled(hashes, found) if self._spilled else found

    def get(self, fingerprint: bytes) -> int:
        """Return the number of one; 0: unknown."""
        return self.get_few((fingerprint,)).get(fingerprint, 0)

    def get_few(self, fingerprints: Sequence[bytes]) -> dict[bytes, int]:
        """Return the numbers of the known ones, without arrays: quicker for a few."""
        first, second, third, fourth = self._plain_keys
        moved_from, small, large, memory = (
            self._moved_from,
            self._buckets,
            self._target,
            self._memories[0].memory,
        )
        found = {}
        for fingerprint in fingerprints:
            low, high = _HALVES(fingerprint)
            mixed = ((low ^ first) * second + (high ^ third) * fourth) & _ALL
            mixed = ((mixed ^ mixed >> 32) * second) & _ALL
            hash_ = (mixed ^ mixed >> 32) or 1
            for half in (hash_ >> 32, hash_ & _HALF_MASK):
                start = (half * (large if half >= moved_from else small) >> 32) * SLOTS
                bucket = _BUCKET(memory, 8 * start)
                if hash_ in bucket:
                    found[fingerprint] = int(self._numbers[start + bucket.index(hash_)])
                    break
            else:
                if hash_ in self._spilled:
                    found[fingerprint] = self._spilled[hash_]
        return found

    def _find_spilled(self, hashes: Hashes, found: Numbers) -> Numbers:
        spilled = self._spilled
        for place, hash_ in enumerate(hashes.tolist()):
            if hash_ in spilled:
                found[place] = spilled[hash_]
        return found

    def add(self, hashes: Hashes, numbers: Numbers) -> None:
        """Add fingerprints that are not in the table, in batches that find room."""
        most = max(64, self._buckets)
        for start in range(0, len(hashes), most):
            self._add(hashes[start : start + most], numbers[start : start + most])

    def _add(self, hashes: Hashes, numbers: Numbers) -> None:
        self.count += len(hashes)
        first, second = self._buckets_of(hashes)
        is_first = self._fills.take(first) <= self._fills.take(second)
        nearer, other = np.where(is_first, first, second), np.where(is_first, second, first)
        self._put(hashes, numbers, nearer, other)
        if not self._is_held:
            self._grow(len(hashes))

    def _put(self, hashes: Hashes, numbers: Numbers, nearer: Places, other: Places) -> None:
        """Put each into one bucket or the other, or spill it."""
        left = self._place(hashes, numbers, nearer)
        if len(left):
            hashes, numbers = hashes[left], numbers[left]
            for place in self._place(hashes, numbers, other[left]).tolist():
                self._spilled[int(hashes[place])] = int(numbers[place])

    def _place(self, hashes: Hashes, numbers: Numbers, buckets: Places) -> Places:
        """Put each into its bucket; return which found it full."""
        order = np.argsort(buckets, kind="stable")
        buckets = buckets.take(order)
        places = self._fills.take(buckets) + _ranks(buckets)
        left = order[:0]
        if places.max(initial=0) >= SLOTS:
            here = places < SLOTS
            left, order, buckets, places = order[~here], order[here], buckets[here], places[here]
        slots = buckets * SLOTS + places
        self._hashes[slots], self._numbers[slots] = hashes.take(order), numbers.take(order)
        self._fills[buckets] = places + 1  # of equal buckets the last one counts
        return left

    # ---- growing

    def _grow(self, by: int) -> None:
        """Move so many buckets that the growth ends before the table is full again."""
        if self._moved_from == _WHOLE:
            if self.count < MAX_LOAD * SLOTS * self._buckets:
                return
            self._target = int(self._buckets * GROWTH) + 1
            self._allocate(self._target)
        self._pending_moves += by
        while self._pending_moves > 0:
            self._move()

    def _move(self) -> None:
        end = (
            self._buckets if self._moved_from == _WHOLE else self._moved_from * self._buckets >> 32
        )
        start = max(0, end - MOVE_STEP)
        self._pending_moves -= (end - start) * TASKS_PER_TEN_BUCKETS // 10
        hashes, numbers, old_buckets = self._taken(start, end)
        self._moved_from = -(
            -(start << 32) // self._buckets
        )  # the first half whose bucket is `start`
        firsts, seconds = self._buckets_of(hashes)
        by_first = (hashes >> _HALF) * np.uint64(self._buckets) >> _HALF == old_buckets
        self._put(
            hashes,
            numbers,
            np.where(by_first, firsts, seconds),
            np.where(by_first, seconds, firsts),
        )
        if start == 0:
            self._buckets, self._moved_from, self._pending_moves = self._target, _WHOLE, 0
            self._unspill()

    def _taken(self, start: int, end: int) -> tuple[Hashes, Numbers, Hashes]:
        """Empty these buckets; return their hashes, numbers and bucket numbers."""
        part = slice(start * SLOTS, end * SLOTS)
        slots = np.flatnonzero(self._hashes[part])
        hashes, numbers = self._hashes[part].take(slots), self._numbers[part].take(slots)
        self._hashes[part], self._fills[start:end] = 0, 0
        return hashes, numbers, (slots // SLOTS + start).astype(np.uint64)

    def _unspill(self) -> None:
        spilled, self._spilled = self._spilled, {}
        hashes = np.array(list(spilled), np.uint64)
        old_buckets = self._buckets_of(hashes)
        self._put(hashes, np.array(list(spilled.values()), np.uint32), *old_buckets)

    # ---- copying

    @property
    def shape(self) -> Shape:
        """What is needed to read the pieces of a table."""
        return Shape(self._buckets, self._target, self._moved_from, dict(self._spilled))

    def pieces(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Return the table in pieces: first slot, hashes and numbers.

        Nothing moves before the last piece was taken, or the iterator closed; what is added
        meanwhile may be missing.
        """
        self._is_held = True
        try:
            for start in range(0, len(self._rows) * SLOTS, PIECE_BUCKETS * SLOTS):
                part = slice(start, start + PIECE_BUCKETS * SLOTS)
                hashes, numbers = self._hashes[part], self._numbers[part]
                yield start, hashes.astype("<u8").tobytes(), numbers.astype("<u4").tobytes()
        finally:
            self._is_held = False

    def load(self, shape: Shape) -> None:
        """Take over the shape of a stored table; its pieces follow."""
        self._buckets, self._target, self._moved_from, self._spilled = shape
        self._allocate(max(self._buckets, self._target))
        self.count = len(self._spilled)

    def load_piece(self, start: int, hashes: bytes, numbers: bytes) -> None:
        """Load a piece."""
        values, end = np.frombuffer(hashes, "<u8"), start + len(hashes) // 8
        self._hashes[start:end] = values
        self._numbers[start:end] = np.frombuffer(numbers, "<u4")
        self._fills[start // SLOTS : end // SLOTS] = (values.reshape(-1, SLOTS) != 0).sum(1)
        self.count += int(np.count_nonzero(values))


class _GrowableMemory:
    """Memory that grows without being copied, where the system supports it."""

    def __init__(self, width: int) -> None:
        self._width = width
        self.memory = _mapped(mmap.PAGESIZE)

    def extend(self, slots: int) -> None:
        """Make room for so many slots; keeps the content."""
        pages = -(-slots * self._width // mmap.PAGESIZE)
        size = max(len(self.memory), pages * mmap.PAGESIZE)
        if size == len(self.memory):
            return
        try:
            self.memory.resize(size)
        except SystemError:  # no mremap here
            larger = _mapped(size)
            larger[: len(self.memory)] = self.memory[:]
            self.memory = larger


def _mapped(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _ranks(buckets: Places) -> Places:
    """Return the rank of each within its bucket; equal buckets are adjacent."""
    places = np.arange(len(buckets))
    starts = np.zeros(len(buckets), np.int64)
    fresh = buckets[1:] != buckets[:-1]
    np.multiply(places[1:], fresh, out=starts[1:])
    return places - np.maximum.accumulate(starts)
