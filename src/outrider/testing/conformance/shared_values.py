"""Conformance of shared values: durable, with compare-and-set by version (F4, N1)."""

from __future__ import annotations

import pytest

from outrider.errors import InvalidInput
from outrider.store.protocol import MAX_NAME_CHARS, MAX_VALUE_CHARS, FullStore, SharedValueWrite
from outrider.testing.clock import FakeClock
from outrider.testing.conformance.steps import CRAWL, add


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
        await store.put_values("other", [SharedValueWrite("t", "a", "x")])
        await add(store, "a/1")

        assert await store.values_since(CRAWL) == []
        assert await store.values_since("unheard-of") == []
        assert await store.crawls() == ["other", CRAWL]

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
