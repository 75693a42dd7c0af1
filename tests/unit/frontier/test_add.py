import asyncio
import math
from collections import Counter

import pytest

from outrider import Added, Closed, Done, Frontier, InvalidInput, Link
from outrider.core.url import parse_url

A = "https://a.example/"


async def only(frontier, link):
    """The one answer for one link."""
    report = await frontier.add([link])
    (answer,) = report.answers
    return answer


async def known(frontier, url):
    """What the store knows of a URL."""
    return (await frontier.explain(url)).task


# ---- the report


async def test_a_report_counts_what_was_added_and_refused(frontier):
    """B4: an answer per URL, counted by reason."""
    links = [A, A, "ftp://a.example/", "https://b.example/", "nonsense", "https://u:p@b.example/"]

    report = await frontier.add(links)

    assert report.added == 2
    assert report.refused == {"duplicate": 1, "scheme": 1, "bad-url": 1, "credentials": 1}
    assert report.added + sum(report.refused.values()) == len(links)


async def test_answers_come_in_the_order_of_the_links(frontier):
    """B4: one Added per URL."""
    urls = [f"{A}{n}" for n in range(50)]
    urls[20] = "ftp://a.example/"

    report = await frontier.add(urls)

    assert [answer.url for answer in report.answers] == urls
    assert [answer.added for answer in report.answers] == [n != 20 for n in range(50)]


async def test_an_added_link_is_answered_with_its_priority(frontier):
    """B4: added with its priority, and no reason."""
    answer = await only(frontier, Link(A, type="nav", depth=2))

    assert isinstance(answer, Added)
    assert (answer.added, answer.reason, answer.priority) == (True, None, 12.0)


async def test_a_refused_link_is_answered_with_a_reason(frontier):
    """A2: with a detail for people, and no priority."""
    answer = await only(frontier, "ftp://a.example/")

    assert (answer.added, answer.reason, answer.priority) == (False, "scheme", None)
    assert "ftp" in answer.detail


async def test_answers_have_the_url_that_is_visited(frontier):
    """A1: the standard's serialisation less the fragment."""
    answer = await only(frontier, " HTTPS://A.Example:443/x/../y?b=2&a=1#part ")

    assert answer.url == "https://a.example/y?b=2&a=1"


async def test_scoring_statistics_count_the_batch(frontier):
    """F9: count, total and mean time, features used."""
    report = await frontier.add([f"{A}{n}" for n in range(10)])

    assert report.scoring.count == 10
    assert report.scoring.seconds > 0
    assert math.isclose(report.scoring.mean * 10, report.scoring.seconds)
    assert "base" in report.scoring.features


async def test_scoring_statistics_are_of_this_batch_alone(rude):
    """F9: what was scored for another call is not counted here."""
    await rude.add([A])
    (lease,) = await rude.claim()
    await rude.finish(lease, Done(200), links=[f"{A}{n}" for n in range(5)])
    await rude.explain("https://unknown.example/")

    report = await rude.add(["https://b.example/"])

    assert report.scoring.count == 1


async def test_concurrent_adds_have_each_their_own_statistics(frontier):
    """F9: batch statistics, even if the store was called once for both."""
    one, other = await asyncio.gather(
        frontier.add([f"{A}{n}" for n in range(2)]),
        frontier.add([f"{A}x{n}" for n in range(3)]),
    )

    assert (one.scoring.count, other.scoring.count) == (2, 3)


async def test_nothing_to_add_is_fine(frontier):
    """An empty page has no links."""
    report = await frontier.add([])

    assert (report.added, report.refused, list(report.answers)) == (0, {}, [])
    assert report.scoring.mean == 0


# ---- what may be handed in


@pytest.mark.parametrize(
    "given", [A, Link(A), parse_url(A), [A], (A,), {A}, iter([A]), {A: 1}.keys()]
)
async def test_one_link_or_any_iterable_may_be_given(frontier, given):
    """Text, a link or a parsed URL alone is a batch of one."""
    report = await frontier.add(given)

    assert report.added == 1
    assert [answer.url for answer in report.answers] == [A]


async def test_text_urls_and_links_may_be_mixed(frontier):
    """Any of the three, in any order."""
    report = await frontier.add([f"{A}1", parse_url(f"{A}2"), Link(f"{A}3"), Link(parse_url(A))])

    assert report.added == 4


async def test_a_generator_of_five_thousand_is_added(frontier):
    """Whatever the number, in order."""
    report = await frontier.add(f"https://h{n % 7}.example/{n}" for n in range(5000))

    assert report.added == 5000
    assert [answer.url for answer in report.answers] == [
        f"https://h{n % 7}.example/{n}" for n in range(5000)
    ]
    assert report.scoring.count == 5000
    assert (await frontier.stats()).pending == 5000


async def test_a_long_list_is_added(frontier):
    """As a generator is."""
    report = await frontier.add([f"{A}{n}" for n in range(2500)] * 2)

    assert (report.added, report.refused) == (2500, {"duplicate": 2500})
    assert len(report.answers) == 5000


async def test_an_async_iterable_is_added(frontier):
    """From a database, say."""

    async def source():
        for n in range(2100):
            yield f"{A}{n}"

    report = await frontier.add(source())

    assert report.added == 2100
    assert [answer.url for answer in report.answers] == [f"{A}{n}" for n in range(2100)]


async def test_an_empty_async_iterable_is_fine(frontier):
    """Nothing comes of nothing."""

    async def source():
        for url in ():
            yield url

    assert (await frontier.add(source())).added == 0


async def test_answers_may_be_left_out(frontier):
    """For millions: the counts are the same, the answers are not kept."""
    links = [*(f"{A}{n}" for n in range(1500)), A + "1", "nonsense"]

    report = await frontier.add(iter(links), answers=False)

    assert (report.added, report.refused) == (1500, {"duplicate": 1, "bad-url": 1})
    assert list(report.answers) == []


async def test_error_of_a_source_is_raised_and_earlier_links_are_kept(frontier):
    """What came before the break was handed in as whole batches; the error is the source's."""

    def source():
        yield from (f"{A}{n}" for n in range(1500))
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        await frontier.add(source())

    stats = await frontier.stats()
    assert stats.known == stats.pending <= 1500


async def test_a_closed_frontier_refuses(clock):
    """The error has the fix."""
    frontier = Frontier.open(clock=clock)

    with pytest.raises(Closed, match="async with"):
        await frontier.add([A])


# ---- known once


async def test_a_known_url_is_a_duplicate_whatever_its_state(rude):
    """B3: pending, leased, done, and dropped."""
    assert (await only(rude, A)).added
    assert (await only(rude, A)).reason == "duplicate"
    (lease,) = await rude.claim()
    assert (await only(rude, A)).reason == "duplicate"
    await rude.finish(lease, Done(200))
    assert (await only(rude, A)).reason == "duplicate"


async def test_a_duplicate_within_a_batch_is_one_too(frontier):
    """B3: link by link, in batch order."""
    report = await frontier.add([A, A, A + "#x", "HTTPS://A.EXAMPLE/?utm_source=x"])

    assert [answer.reason for answer in report.answers] == [None, *["duplicate"] * 3]


async def test_a_refused_url_is_not_known_and_may_come_again(opened):
    """B4: refused today, admitted once the limit is gone."""
    frontier = await opened({"queue": {"max_pending": 1}})
    await frontier.add([A])
    assert (await only(frontier, A + "2")).reason == "queue-full"

    await frontier.configure({"queue": {"max_pending": 0}})

    assert (await only(frontier, A + "2")).added


async def test_a_link_may_bring_its_own_identity(frontier):
    """A1: method and body, say; the same URL twice, and two URLs as one."""
    report = await frontier.add(
        [
            Link(A, identity="GET"),
            Link(A, identity="POST x=1"),
            Link(A + "other", identity="GET"),
        ]
    )

    assert [answer.reason for answer in report.answers] == [None, None, "duplicate"]


async def test_raise_moves_a_pending_task_forward_never_back(rude):
    """B3: a better priority moves it, a worse one does not."""
    await rude.add([Link(A + "1", priority=5), Link(A + "2", priority=4)])

    await rude.add([Link(A + "1", priority=3, known="raise")])
    await rude.add([Link(A + "1", priority=9, known="raise")])

    assert [lease.url for lease in await rude.claim(2)] == [A + "1", A + "2"]


async def test_raise_is_still_a_duplicate(rude):
    """B3: adding a known URL is `duplicate`, whatever its state."""
    await rude.add([Link(A, priority=5)])

    assert (await only(rude, Link(A, priority=1, known="raise"))).reason == "duplicate"


async def test_revisit_brings_a_done_task_back(rude):
    """B3: done becomes pending again, attempts at 0."""
    await rude.add([A])
    (lease,) = await rude.claim()
    await rude.finish(lease, Done(200))

    answer = await only(rude, Link(A, known="revisit"))
    (again,) = await rude.claim()

    assert answer.added
    assert (again.url, again.attempt) == (A, 1)
    assert (await rude.stats()).known == 1


# ---- what is remembered


@pytest.mark.parametrize(
    ("kind", "lane"),
    [
        ("article", "acquisition"),
        ("refresh", "acquisition"),
        ("history", "acquisition"),
        ("page", "discovery"),
        ("nav", "discovery"),
        ("anything", "discovery"),
    ],
)
async def test_the_type_decides_the_lane(frontier, kind, lane):
    """C4: exactly two."""
    await frontier.add([Link(A, type=kind)])

    assert (await known(frontier, A)).lane == lane


async def test_the_types_of_a_lane_are_configurable(opened):
    """C4."""
    frontier = await opened({"lanes": {"acquisition": ["product"]}})
    await frontier.add([Link(A + "1", type="product"), Link(A + "2", type="article")])

    lanes = [task.lane async for task in frontier.tasks()]

    assert lanes == ["acquisition", "discovery"]


async def test_a_task_remembers_its_link(frontier, clock):
    """B1."""
    link = Link(
        A,
        type="nav",
        depth=2,
        origin="sitemap",
        via="https://b.example/",
        tag="word",
        delay=5.0,
        meta={"a": [1, {"b": None}]},
    )
    await frontier.add([link])

    task = await known(frontier, A)

    assert (task.url, task.key, task.type, task.depth) == (A, "a.example", "nav", 2)
    assert (task.origin, task.via, task.tag) == ("sitemap", "https://b.example/", "word")
    assert (task.meta, task.attempts, task.state) == ({"a": [1, {"b": None}]}, 0, "pending")
    assert (task.discovered_at, task.due_at) == (clock.now(), clock.now() + 5)


async def test_a_link_is_opportunistic_by_default(frontier):
    """B1: origin's default."""
    await frontier.add([A])

    task = await known(frontier, A)

    assert (task.origin, task.type, task.depth) == ("opportunistic", "page", 0)


async def test_found_links_inherit_the_tag_and_come_via_their_page(rude):
    """B1: unless they bring their own."""
    await rude.add([Link(A, tag="word")])
    (lease,) = await rude.claim()

    await rude.finish(lease, Done(200), links=[A + "1", Link(A + "2", tag="mine", via="x:y")])

    one, other = await known(rude, A + "1"), await known(rude, A + "2")
    assert (one.tag, one.via) == ("word", A)
    assert (other.tag, other.via) == ("mine", "x:y")


async def test_meta_is_the_callers_own_copy(rude):
    """B1: changing the dict after the call changes nothing."""
    meta = {"x": 1}
    await rude.add([Link(A, meta=meta)])
    meta["x"] = 2

    (lease,) = await rude.claim()
    lease.meta["x"] = 3

    assert lease.meta == {"x": 1}


async def test_a_delayed_link_is_invisible_until_due(frontier, clock):
    """C6: and blocks nothing."""
    await frontier.add([Link(A + "later", delay=10.0, priority="critical"), A + "now"])

    (lease,) = await frontier.claim(5)
    await frontier.finish(lease, Done(200))
    assert lease.url == A + "now"

    clock.advance(9.999)
    assert await frontier.claim() == []
    clock.advance(0.001)
    assert [lease.url for lease in await frontier.claim()] == [A + "later"]


async def test_crawls_of_one_store_are_independent(opened, store):
    """I1, A3: unique within a crawl."""
    one = await opened(store=store, crawl="one")
    two = await opened(store=store, crawl="two")

    assert (await one.add([A])).added == 1
    assert (await two.add([A])).added == 1
    assert (await one.stats()).known == 1


@pytest.mark.parametrize("crawl", ["", "x" * 256, "a\nb", None, 5])
def test_a_crawl_has_a_printable_name(crawl):
    """An invalid argument raises at once."""
    with pytest.raises(InvalidInput, match="crawl"):
        Frontier.open(crawl=crawl)


async def test_unknown_store_scheme_is_refused():
    """With the name that was given."""
    with pytest.raises(InvalidInput, match="nonsense"):
        await Frontier.open("nonsense://")


async def test_shuffled_links_are_in_the_order_of_the_dice(opened):
    """C2: the caller's roll is the tie."""
    rolls = iter([0.9, 0.1, 0.5])
    settings = {"queue": {"tie": "shuffle"}, "politeness": {"delay": 0.0, "max_in_flight": 9}}
    frontier = await opened(settings, dice=lambda: next(rolls))

    await frontier.add([A + "1", A + "2", A + "3"])

    assert [lease.url for lease in await frontier.claim(3)] == [A + "2", A + "3", A + "1"]


@pytest.mark.parametrize(("tie", "order"), [("fifo", "123"), ("lifo", "321")])
async def test_equal_links_are_in_the_order_of_the_tie(opened, tie, order):
    """C2: in batch order."""
    settings = {"queue": {"tie": tie}, "politeness": {"delay": 0.0, "max_in_flight": 9}}
    frontier = await opened(settings)

    await frontier.add([A + "1", A + "2", A + "3"])

    assert "".join(lease.url[-1] for lease in await frontier.claim(3)) == order


async def test_hostile_links_do_not_affect_valid_ones(frontier):
    """A2: counted by reason, every one answered."""
    kinds = [
        "nonsense",
        "ftp://a.example/",
        "https://u@a.example/",
        "http://127.0.0.1/",
        None,
        Link(A, priority=math.nan),
        "https://a.example/\x01",
    ]
    links = [kinds[n % 7] if n % 8 else f"{A}{n}" for n in range(1600)]

    report = await frontier.add(links)

    good = [n for n in range(1600) if not n % 8]
    assert report.added == len(good)
    assert [n for n, answer in enumerate(report.answers) if answer.added] == good
    counted = Counter(answer.reason for answer in report.answers if not answer.added)
    assert report.refused == counted
