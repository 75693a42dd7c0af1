"""Conformance of shared values: durable, with compare-and-set by version (F4, N1)."""

from __future__ import annotations

from inspect import signature
from typing import Any, Final

import msgspec
import pytest

from outrider.core.policy.rules import CrawlRules
from outrider.core.queue_action import Pause
from outrider.core.states import CrawlStatus
from outrider.core.task import LeaseId
from outrider.errors import InvalidInput
from outrider.store.export_items import SavedCrawl
from outrider.store.forwarding import VERBS
from outrider.store.protocol import (
    MAX_NAME_CHARS,
    MAX_VALUE_CHARS,
    STORE_VALUES,
    ClaimRequest,
    EventBatch,
    FullStore,
    Heartbeat,
    PublishedEvent,
    SharedValueWrite,
    TaskFilter,
)
from outrider.store.validation import VALUE_VERBS
from outrider.testing.builders import done, task
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import CRAWL, add, claim, open_crawls

OF_CRAWLS: Final = sorted(
    name
    for name, verb in VERBS.items()
    if "crawl" in signature(verb).parameters and name not in VALUE_VERBS
)
# Valid arguments of the verbs, by their names; those of others are not looked at.
ARGUMENTS: Final[dict[str, Any]] = {
    "rules": CrawlRules(),
    "target": "",
    "act": Pause(),
    "mode": "host",
    "roots": ["a.example"],
    "status": CrawlStatus.PAUSED,
    "which": TaskFilter(),
    "dry_run": False,
    "updates": [],
    "heartbeat": Heartbeat("w", "busy", "host", 1, 1, 1, 1),
    "batch": EventBatch("p", 1, "w", [PublishedEvent("e", 0.0, "{}")]),
    "saved": [SavedCrawl(CRAWL, 0)],
    "key": "a.example",
    "order": "key",
    "fingerprint": b"f" * 16,
    "number": 1,
}


async def say(store: FullStore, name: str, text: str, seen: int | None = None) -> int:
    """Write one value of the topic "weather"."""
    (number,) = await store.put_values(CRAWL, [SharedValueWrite("weather", name, text, seen)])
    return number


async def values(store: FullStore, after: int = 0) -> list[tuple[str, str]]:
    """The values since a number."""
    return [(note.name, note.text) for note in await store.values_since(CRAWL, after=after)]


class NotesConformance:
    """Shared values."""

    async def test_a_value_is_read_by_all(self, store: FullStore, clock: FakeClock) -> None:
        """N1: with its number and when it was written."""
        await store.put_values(
            CRAWL,
            [
                SharedValueWrite("weather", "north", "rain"),
                SharedValueWrite("traffic", "north", "slow"),
            ],
        )
        first, second = await store.values_since(CRAWL)

        assert (first.topic, first.name, first.text) == ("weather", "north", "rain")
        assert (second.topic, second.name, second.text) == ("traffic", "north", "slow")
        assert first.number < second.number
        assert first.at == clock.now_ms() / 1000

    async def test_a_value_replaces_the_one_of_its_name(self, store: FullStore) -> None:
        """N1: and comes after all others, so readers of the others get it."""
        await say(store, "north", "rain")
        last = await say(store, "south", "sun")
        await say(store, "north", "snow")

        assert await values(store) == [("south", "sun"), ("north", "snow")]
        assert await values(store, last) == [("north", "snow")]

    async def test_an_unchanged_value_keeps_its_number(self, store: FullStore) -> None:
        """N1: so repeating a call whose answer was lost changes nothing."""
        number = await say(store, "north", "rain")

        assert await say(store, "north", "rain") == number
        assert await say(store, "north", "rain", seen=number) == number
        assert await values(store, number) == []

    async def test_a_value_is_written_over_the_one_seen(self, store: FullStore) -> None:
        """F5: two who count the same thing cannot both be right."""
        assert await say(store, "north", "1", seen=7) == 0
        number = await say(store, "north", "1", seen=0)
        assert number
        assert await say(store, "north", "one too", seen=0) == 0
        assert await say(store, "north", "2", seen=number)
        assert await say(store, "north", "3", seen=number) == 0
        assert await values(store) == [("north", "2")]

    async def test_one_that_was_too_late_spoils_no_other(self, store: FullStore) -> None:
        """B4's manner: an answer for each, in order."""
        notes = [
            SharedValueWrite("t", "a", "x", 9),
            SharedValueWrite("t", "b", "x"),
            SharedValueWrite("t", "b", "y", 0),
        ]
        late, written, late_too = await store.put_values(CRAWL, notes)

        assert (late, late_too) == (0, 0)
        assert written
        assert await values(store) == [("b", "x")]

    async def test_what_is_gone_says_so(self, store: FullStore) -> None:
        """N1: those who read it before learn that it is gone; and it can come again."""
        number = await say(store, "north", "rain")
        gone = await say(store, "north", "")

        assert gone > number
        assert await values(store, number) == [("north", "")]
        assert await say(store, "north", "sun", seen=gone) > gone

    async def test_an_empty_value_that_does_not_exist_is_not_written(
        self, store: FullStore
    ) -> None:
        """N1: deleting a value that does not exist changes nothing."""
        assert await say(store, "north", "") == 0
        assert await values(store) == []

    async def test_values_come_in_bounded_pages(self, store: FullStore) -> None:
        """O: in order of their numbers."""
        await store.put_values(CRAWL, [SharedValueWrite("t", str(n), "x") for n in range(7)])

        first = await store.values_since(CRAWL, limit=4)
        rest = await store.values_since(CRAWL, after=first[-1].number, limit=4)
        assert [note.name for note in [*first, *rest]] == [str(n) for n in range(7)]

    async def test_each_crawl_has_its_own(self, store: FullStore) -> None:
        """I1: and to read opens none."""
        await open_crawls(store, "other")
        await store.put_values("other", [SharedValueWrite("t", "a", "x")])

        assert await store.values_since(CRAWL) == []
        assert await store.values_since("unheard-of") == []
        assert await store.crawls() == [CRAWL, "other"]

    async def test_any_text_is_kept_as_it_is(self, store: FullStore) -> None:
        """M: whatever letters it has, and as long as it may be."""
        texts = ["ünïcödé ☃ \U0001f600", "a\nb\tc'\"\\", "x" * MAX_VALUE_CHARS]
        await store.put_values(
            CRAWL, [SharedValueWrite("t", f"{n} é'", text) for n, text in enumerate(texts)]
        )

        assert [note.text for note in await store.values_since(CRAWL)] == texts
        assert (await store.values_since(CRAWL))[0].name == "0 é'"

    @pytest.mark.parametrize(
        "bad",
        [
            SharedValueWrite("", "a", "x"),
            SharedValueWrite("t", "a" * (MAX_NAME_CHARS + 1), "x"),
            SharedValueWrite("t", "a", "x" * (MAX_VALUE_CHARS + 1)),
            SharedValueWrite("t", "a\0", "x"),
            SharedValueWrite("t", "a", "x\ud800"),
        ],
    )
    async def test_a_bad_value_is_refused_with_its_batch(
        self, store: FullStore, bad: SharedValueWrite
    ) -> None:
        """N2: nothing half-done."""
        with pytest.raises(InvalidInput):
            await store.put_values(CRAWL, [SharedValueWrite("t", "good", "x"), bad])

        assert await store.values_since(CRAWL) == []


class StoreValuesConformance:
    """Shared values of the store itself, which are those of no crawl."""

    async def test_the_store_has_values_of_its_own(self, store: FullStore) -> None:
        """N1: as a crawl's, with numbers of their own."""
        await say(store, "north", "rain")
        token = SharedValueWrite("tokens", "ci", "t1", 0)

        (first,) = await store.put_values(STORE_VALUES, [token])
        late, second = await store.put_values(
            STORE_VALUES, [token, SharedValueWrite("tokens", "ci", "t2", first)]
        )
        (value,) = await store.values_since(STORE_VALUES)

        assert (late, second > first) == (0, True)
        assert (value.topic, value.name, value.text) == ("tokens", "ci", "t2")
        assert await store.values_since(STORE_VALUES, after=second) == []
        assert await values(store) == [("north", "rain")]

    async def test_a_new_store_has_none(self, store: FullStore) -> None:
        """N1: reading them creates nothing."""
        assert await store.values_since(STORE_VALUES) == []
        assert await store.crawls() == [CRAWL]

    async def test_it_is_no_crawl(self, store: FullStore) -> None:
        """I1: not in the list of crawls; tasks are claimed, and leases expire, beside it."""
        await store.put_values(STORE_VALUES, [SharedValueWrite("t", "a", "x")])
        await add(store, "a/1")

        assert await store.crawls() == [CRAWL]
        assert len(await claim(store)) == 1
        assert await store.expire(limit=10) == 0

    @pytest.mark.parametrize("verb", OF_CRAWLS)
    async def test_other_verbs_refuse_it(self, store: FullStore, verb: str) -> None:
        """N1: the store itself has only shared values."""
        await store.put_values(STORE_VALUES, [SharedValueWrite("t", "a", "x")])
        _, _, *parameters = signature(VERBS[verb]).parameters.values()
        asked = [one for one in parameters if one.default is one.empty]
        plain = [ARGUMENTS.get(one.name) for one in asked if one.kind is not one.KEYWORD_ONLY]
        named = {one.name: ARGUMENTS.get(one.name) for one in asked if one.kind is one.KEYWORD_ONLY}

        with pytest.raises(InvalidInput, match="only shared values"):
            await getattr(store, verb)(STORE_VALUES, *plain, **named)

        assert await store.crawls() == [CRAWL]

    async def test_the_hot_path_refuses_it(self, store: FullStore) -> None:
        """N1: with all that was sent beside it."""
        await add(store, "a/1")
        (lease,) = await claim(store)
        mine, own = lease.id, LeaseId(STORE_VALUES, 1, 1)

        with pytest.raises(InvalidInput, match="only shared values"):
            await store.add([task(), task(crawl=STORE_VALUES)])
        with pytest.raises(InvalidInput, match="only shared values"):
            await store.claim(ClaimRequest(STORE_VALUES, "w", 1))
        with pytest.raises(InvalidInput, match="only shared values"):
            await store.extend([mine, own], lease_for=1.0)
        with pytest.raises(InvalidInput, match="only shared values"):
            await store.release([mine, own])
        ended = done(lease)
        with pytest.raises(InvalidInput, match="only shared values"):
            await store.finish([ended, msgspec.structs.replace(ended, crawl=STORE_VALUES)])

        assert (await store.crawl(CRAWL)).known == 1
        assert (await store.finish([ended]))[0].applied
