import math
from collections import Counter

import pytest

from outrider import Added, Closed, Done, Frontier, InvalidInput, Link, SettingsError
from outrider.core.url import Url, parse_url

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


async def test_answers_tell_the_url_that_is_visited(frontier):
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
    import asyncio  # noqa: PLC0415 - the only test here that needs it

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


async def test_a_source_that_breaks_says_so_and_loses_nothing(frontier):
    """What came before the break was handed in as whole batches; the error is the source's."""

    def source():
        yield from (f"{A}{n}" for n in range(1500))
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        await frontier.add(source())

    stats = await frontier.stats()
    assert stats.known == stats.pending <= 1500


async def test_a_closed_frontier_refuses(clock):
    """It says what to do."""
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


# ---- refused with a reason


@pytest.mark.parametrize(
    ("text", "reason", "named"),
    [
        ("", "bad-url", ""),
        ("example", "bad-url", "example"),
        ("/relative", "bad-url", "relative"),
        ("https://", "bad-url", ""),
        ("https://a b.example/", "bad-url", "a b.example"),
        ("https://xn--a.example/", "bad-url", "xn--a"),
        ("https://\ufdd0zyx.com/", "bad-url", "fdd0"),
        ("https://%zz.example/", "bad-url", "%zz"),
        ("https://[::1", "bad-url", "::1"),
        ("https://1.2.3.4.5/", "bad-url", "1.2.3.4.5"),
        ("https://a.example:99999/", "bad-url", "99999"),
        ("https://" + "a" * 300 + ".example/", "bad-url", "longer"),
        ("https://a.example/\ud800", "bad-url", "surrogate"),
        ("https://a.example/\udfff?x=\ud800", "bad-url", "surrogate"),
        ("javascript:alert(1)", "scheme", "javascript"),
        ("data:text/html,x", "scheme", "data:"),
        ("ftp://a.example/", "scheme", "ftp"),
        ("mailto:a@b.example", "scheme", "b.example"),
        ("file:///etc/passwd", "scheme", "file"),
        ("https://a.example/" + "x" * 8192, "too-long", "8192"),
        ("https://a.example/" + "x" * 1_000_000, "too-long", "8192"),
        ("https://a.example/" + "é" * 4096, "too-long", "8192"),
        ("https://user:secret@a.example/", "credentials", "a.example"),
        ("https://user@a.example/", "credentials", "a.example"),
        ("https://a.example/\x00", "control-characters", "U+0000"),
        ("https://a.exa\x00mple/", "control-characters", "U+0000"),
        ("https://a.example/\x1b[31m", "control-characters", "U+001B"),
        ("https://a.example/\x7f", "control-characters", "U+007F"),
        ("https://a.example/\x85", "control-characters", "U+0085"),
        ("\x00https://a.example/", "control-characters", "U+0000"),
        ("http://127.0.0.1/", "private-address", "127.0.0.1"),
        ("http://0x7f.1/", "private-address", "127.0.0.1"),
        ("http://2130706433/", "private-address", "127.0.0.1"),
        ("http://10.1.2.3/", "private-address", "10.1.2.3"),
        ("http://192.168.0.1:8080/", "private-address", "192.168.0.1"),
        ("http://172.16.0.1/", "private-address", "172.16.0.1"),
        ("http://169.254.169.254/", "private-address", "169.254.169.254"),
        ("http://[::1]/", "private-address", "::1"),
        ("http://[fe80::1]/", "private-address", "fe80::1"),
        ("http://[fd00::1]/", "private-address", "fd00::1"),
        ("http://[::ffff:127.0.0.1]/", "private-address", "7f00"),
    ],
)
async def test_a_hostile_url_is_refused_by_name(frontier, text, reason, named):
    """A2: with its reason and a detail that names the thing; the rest of the batch goes through."""
    report = await frontier.add([A, text, A + "2"])

    assert [answer.added for answer in report.answers] == [True, False, True]
    assert report.answers[1].reason == reason
    assert named in report.answers[1].detail


async def test_a_password_is_never_shown(frontier):
    """A2: details are printed and logged."""
    answer = await only(frontier, "https://user:secret@a.example/")

    assert "secret" not in answer.detail


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://[2606:4700::1111]/", "http://[2606:4700::1111]/"),
        ("http://93.184.216.34/", "http://93.184.216.34/"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("\t\n https://a.example/ \r\n", "https://a.example/"),
        ("https://a.exa\nmple/", "https://a.example/"),
        ("https:\\\\a.example\\x", "https://a.example/x"),
    ],
)
async def test_an_odd_but_proper_url_is_added(frontier, text, url):
    """A1: public addresses, names in any script, whitespace as WHATWG says."""
    answer = await only(frontier, text)

    assert (answer.added, answer.url) == (True, url)


async def test_private_addresses_may_be_allowed(opened):
    """A2: unless allowed."""
    frontier = await opened({"url": {"allow_private": True}})

    assert (await frontier.add(["http://127.0.0.1/", "http://[::1]/"])).added == 2


class Mute:
    """An object that cannot even be shown."""

    def __repr__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize("thing", [None, 5, 1.5, b"https://a.example/", [A], {"url": A}, object(), Link])
async def test_what_is_no_text_is_a_bad_url(frontier, thing):
    """A2: never an exception from the batch, alone or inside a link."""
    report = await frontier.add([A, thing, Link(thing), A + "2"])

    assert [answer.reason for answer in report.answers] == [None, "bad-url", "bad-url", None]
    assert all(isinstance(answer.url, str) for answer in report.answers)
    assert type(thing).__name__ in report.answers[1].detail


async def test_even_an_object_that_cannot_be_shown_spoils_nothing(frontier):
    """A2: one bad URL never spoils the others."""
    report = await frontier.add([A, Mute(), Link(Mute()), Link(A, tag=Mute()), A + "2"])

    assert [answer.added for answer in report.answers] == [True, False, False, False, True]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"priority": math.nan}, "priority"),
        ({"priority": math.inf}, "priority"),
        ({"priority": -math.inf}, "priority"),
        ({"priority": 10**400}, "priority"),
        ({"priority": -(10**400)}, "priority"),
        ({"priority": "urgent"}, "priority"),
        ({"priority": ""}, "priority"),
        ({"priority": [1]}, "priority"),
        ({"priority": 1j}, "priority"),
        ({"base_priority": math.nan}, "base_priority"),
        ({"base_priority": 10**400}, "base_priority"),
        ({"base_priority": "high"}, "base_priority"),
        ({"bias": math.inf}, "bias"),
        ({"bias": 10**400}, "bias"),
        ({"bias": "much"}, "bias"),
        ({"delay": -1}, "delay"),
        ({"delay": -0.001}, "delay"),
        ({"delay": math.nan}, "delay"),
        ({"delay": math.inf}, "delay"),
        ({"delay": 10**400}, "delay"),
        ({"delay": "1"}, "delay"),
        ({"depth": -1}, "depth"),
        ({"depth": 10**400}, "depth"),
        ({"depth": 10**9}, "depth"),
        ({"depth": 1.0}, "depth"),
        ({"depth": "1"}, "depth"),
        ({"depth": None}, "depth"),
        ({"type": ""}, "type"),
        ({"type": "x" * 65}, "type"),
        ({"type": None}, "type"),
        ({"type": ["page"]}, "type"),
        ({"type": "\ud800"}, "type"),
        ({"key": ""}, "key"),
        ({"key": "x" * 256}, "key"),
        ({"key": "a\nb"}, "key"),
        ({"key": "\ud800"}, "key"),
        ({"key": 5}, "key"),
        ({"known": "forget"}, "known"),
        ({"known": None}, "known"),
        ({"known": ["keep"]}, "known"),
        ({"via": 5}, "via"),
        ({"via": "x" * 10_000}, "via"),
        ({"tag": "x" * 256}, "tag"),
        ({"tag": "\ud800"}, "tag"),
        ({"origin": 5}, "origin"),
        ({"origin": "x" * 256}, "origin"),
        ({"identity": b"x"}, "identity"),
        ({"meta": {"x": object()}}, "meta"),
        ({"meta": {"x": 10**9000}}, "meta"),
        ({"meta": {"x": "\ud800"}}, "meta"),
        ({"meta": {("a", "b"): 1}}, "meta"),
        ({"meta": {"x": "y" * 20_000}}, "meta"),
        ({"meta": ["x"]}, "meta"),
        ({"meta": "text"}, "meta"),
        ({"meta": 5}, "meta"),
    ],
)
async def test_a_bad_link_is_refused_by_field(frontier, fields, named):
    """B4: `bad-link`, with a detail that names the field; the rest of the batch goes through."""
    report = await frontier.add([A, Link(A + "bad", **fields), A + "2"])

    assert [answer.reason for answer in report.answers] == [None, "bad-link", None]
    assert named in report.answers[1].detail
    assert report.refused == {"bad-link": 1}


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", math.nan, math.inf])
async def test_meta_that_json_cannot_say_is_refused(frontier, value):
    """B1: meta is JSON: a set, bytes or NaN would come back as something else."""
    answer = await only(frontier, Link(A, meta={"x": value}))

    assert answer.reason == "bad-link"
    assert "meta" in answer.detail


async def test_cyclic_meta_is_refused(frontier):
    """B4: whatever it is, it is not JSON."""
    meta = {}
    meta["self"] = meta

    answer = await only(frontier, Link(A, meta=meta))

    assert answer.reason == "bad-link"
    assert "meta" in answer.detail


async def test_meta_may_have_16_kib_and_not_a_byte_more(rude):
    """B1: JSON ≤ 16 KiB; `{"x":""}` has 8 bytes of its own."""
    fits = {"x": "y" * (16 * 1024 - 8)}

    report = await rude.add([Link(A + "1", meta=fits), Link(A + "2", meta={"x": fits["x"] + "y"})])

    assert [answer.added for answer in report.answers] == [True, False]
    assert (await rude.claim())[0].meta == fits


@pytest.mark.parametrize(
    "fields",
    [
        {"bias": None, "base_priority": 1.0},
        {"bias": "", "base_priority": 1.0},
        {"bias": [], "base_priority": 1.0},
        {"delay": None, "known": "revisit"},
        {"delay": "", "known": "revisit"},
        {"meta": []},
        {"meta": ""},
        {"meta": 0},
    ],
)
async def test_an_empty_value_of_the_wrong_type_spoils_nothing(rude, fields):
    """A2: refused, or taken as the default; never an exception from the batch."""
    await rude.add([A])
    (lease,) = await rude.claim()
    await rude.finish(lease, Done(200))

    report = await rude.add([A + "1", Link(A, **fields), Link(A + "3", **fields), A + "4"])

    assert [answer.added for answer in report.answers[::3]] == [True, True]
    assert (await rude.stats()).known == 1 + report.added - report.answers[1].added


async def test_the_detail_of_a_huge_value_is_short(frontier):
    """It is shown to people."""
    for fields in ({"priority": 10**5000}, {"tag": "x" * 10**6}, {"key": "y" * 10**6}):
        assert len((await only(frontier, Link(A, **fields))).detail) < 400


async def test_refusals_are_counted_in_the_stats(rude):
    """B4: counted by reason; those found on pages too."""
    await rude.add([A, A, "nonsense", Link(A, priority=math.nan)])
    (lease,) = await rude.claim()
    await rude.finish(lease, Done(200), links=["ftp://a.example/", A, A + "new"])

    assert (await rude.stats()).refused == {
        "duplicate": 2,
        "bad-url": 1,
        "bad-link": 1,
        "scheme": 1,
    }


# ---- scope


async def test_by_default_everything_is_in_scope(frontier):
    """A5."""
    report = await frontier.add(["https://a.example/", Link("https://z.test/", depth=3, via=A)])

    assert report.added == 2


@pytest.mark.parametrize(
    ("mode", "inside", "outside"),
    [
        (
            "host",
            ["https://www.site.org/b", "http://www.site.org:8080/"],
            ["https://site.org/", "https://sub.www.site.org/"],
        ),
        (
            "domain",
            ["https://site.org/", "https://a.b.site.org/x"],
            ["https://site.com/", "https://othersite.org/"],
        ),
        (
            "surt",
            ["https://www.site.org/blog/x", "http://www.site.org/blog/2025/b"],
            ["https://www.site.org/", "https://www.site.org/blogger", "https://site.org/blog/x"],
        ),
    ],
)
async def test_a_scope_may_be_bound_to_the_seeds(opened, mode, inside, outside):
    """A5: same host, domain or SURT prefix; who is found later must share it."""
    frontier = await opened({"scope": {"mode": mode}})
    assert (await frontier.add(["https://www.site.org/blog/a"])).added == 1

    found = [Link(url, depth=1, via="https://www.site.org/blog/a") for url in inside + outside]
    report = await frontier.add(found)

    reasons = [answer.reason for answer in report.answers]
    assert reasons == [None] * len(inside) + ["off-scope"] * len(outside)


async def test_links_of_a_page_must_be_in_scope_too(opened):
    """A5: through finish as through add."""
    frontier = await opened({"scope": {"mode": "host"}})
    await frontier.add([A])
    (lease,) = await frontier.claim()

    await frontier.finish(lease, Done(200), links=[A + "in", "https://b.example/"])

    assert await known(frontier, A + "in") is not None
    assert await known(frontier, "https://b.example/") is None
    assert (await frontier.stats()).refused == {"off-scope": 1}


async def test_a_seeds_redirect_target_joins_the_scope(opened):
    """A5: https://a.example/ moved to b.example, so b.example is what was meant."""
    frontier = await opened({"scope": {"mode": "host"}})
    await frontier.add([A])
    (lease,) = await frontier.claim()

    target = Link("https://b.example/", origin="redirect")
    await frontier.finish(lease, Done(301), links=[target, "https://b.example/x"])

    assert await known(frontier, "https://b.example/") is not None
    assert await known(frontier, "https://b.example/x") is not None


async def test_any_other_redirect_target_does_not(opened):
    """A5: a page found on the way may not widen the crawl."""
    frontier = await opened({"scope": {"mode": "host"}, "politeness": {"delay": 0.0}})
    await frontier.add([A])
    (seed,) = await frontier.claim()
    await frontier.finish(seed, Done(200), links=[Link(A + "page", depth=1)])
    (page,) = await frontier.claim()

    await frontier.finish(page, Done(301), links=[Link("https://b.example/", origin="redirect")])

    assert await known(frontier, "https://b.example/") is None


async def test_the_scope_is_the_crawls_not_one_workers(opened, store):
    """A5: a seed that one frontier added is a seed for all that share the crawl."""
    settings = {"scope": {"mode": "host"}}
    first = await opened(settings, store)
    second = await opened(settings, store)
    await first.add([A])

    (lease,) = await second.claim()
    await second.finish(lease, Done(200), links=[A + "found"])

    assert await known(second, A + "found") is not None


async def test_patterns_include_and_exclude(opened):
    """A5: if any includes, one must be found; an exclude wins."""
    frontier = await opened({"scope": {"include": ["/news/"], "exclude": [r"\.pdf$"]}})

    report = await frontier.add([A + "news/1", A + "about", A + "news/1.pdf"])

    assert [answer.reason for answer in report.answers] == [None, "off-scope", "off-scope"]


async def test_a_user_function_may_decide_the_scope(opened):
    """A5: it is asked with the parsed URL."""
    asked = []

    def is_wanted(url):
        asked.append(url)
        return url.host == "a.example"

    frontier = await opened({"scope": {"function": is_wanted}})
    report = await frontier.add([A, "https://b.example/"])

    assert [answer.reason for answer in report.answers] == [None, "off-scope"]
    assert all(isinstance(url, Url) for url in asked)


# ---- traps and depth


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/".join("abcdefghijklmnopqrst"), None),
        ("/".join("abcdefghijklmnopqrstu"), "path-depth"),
        ("x/a/x/b/x", None),
        ("x/a/x/b/x/c/x", "repeated-segment"),
        ("?" + "&".join(f"p{n}=1" for n in range(30)), None),
        ("?" + "&".join(f"p{n}=1" for n in range(31)), "many-parameters"),
        ("calendar/2025/01/01", None),
    ],
)
async def test_trap_guards_refuse_over_not_at_their_limits(frontier, path, reason):
    """A5: 20 segments, 3 repetitions, 30 parameters; the calendar guard is off."""
    assert (await only(frontier, A + path)).reason == reason


async def test_the_calendar_guard_may_be_turned_on(opened):
    """A5."""
    frontier = await opened({"traps": {"calendar": True}})

    assert (await only(frontier, A + "calendar/2025/01/01")).reason == "calendar"


async def test_a_link_over_not_at_the_depth_limit_is_refused(frontier):
    """B4: `max-depth`, 10 by default."""
    report = await frontier.add([Link(A + "at", depth=10), Link(A + "over", depth=11)])

    assert [answer.reason for answer in report.answers] == [None, "max-depth"]


async def test_a_bypass_may_admit_what_is_too_deep(opened):
    """B4: it is counted; what it does not want stays refused."""
    frontier = await opened(
        {"queue": {"max_depth": 1, "bypass_depth": lambda link: link.type == "article"}}
    )

    report = await frontier.add(
        [Link(A + "1", depth=5, type="article"), Link(A + "2", depth=5), Link(A + "3", depth=1)]
    )

    assert [answer.reason for answer in report.answers] == [None, "max-depth", None]
    assert (await frontier.stats()).bypassed == 1


async def test_the_count_of_bypasses_survives_a_change_of_settings(opened):
    """B4: counted; a change of something else forgets nothing."""
    frontier = await opened({"queue": {"max_depth": 1, "bypass_depth": lambda _: True}})
    await frontier.add([Link(A, depth=5)])

    await frontier.configure({"politeness": {"delay": 1.0}})

    assert (await frontier.stats()).bypassed == 1


async def test_reasons_are_asked_in_the_order_of_the_specification(opened):
    """B4: bad URL → scope → trap → max-depth → duplicate → queue-full."""
    frontier = await opened(
        {
            "scope": {"exclude": ["/out"]},
            "traps": {"path_depth": 2},
            "queue": {"max_depth": 1, "max_pending": 1},
        }
    )
    await frontier.add([A])

    report = await frontier.add(
        [
            Link("ftp://a.example/out/b/c", depth=9),
            Link(A + "out/b/c", depth=9),
            Link(A + "a/b/c", depth=9),
            Link(A, depth=9),
            A,
            A + "new",
        ]
    )

    assert [answer.reason for answer in report.answers] == [
        "scheme",
        "off-scope",
        "path-depth",
        "max-depth",
        "duplicate",
        "queue-full",
    ]


async def test_a_full_queue_refuses_and_others_do_not(opened):
    """B4: `queue-full` per queue."""
    frontier = await opened({"queue": {"max_pending_per_queue": 2}})

    report = await frontier.add([A + "1", A + "2", A + "3", "https://b.example/"])

    assert [answer.reason for answer in report.answers] == [None, None, "queue-full", None]


async def test_retired_queues_do_not_count_against_the_crawls_limit(opened):
    """B4: what is held is not queued."""
    frontier = await opened({"queue": {"max_pending": 1}})
    await frontier.queue("a.example").retire()

    report = await frontier.add([A + "1", A + "2", "https://b.example/1", "https://b.example/2"])

    assert [answer.reason for answer in report.answers] == [None, None, None, "queue-full"]


async def test_a_cancelled_crawl_takes_no_adds(frontier):
    """I1: refused as `cancelled`."""
    await frontier.cancel()

    assert (await only(frontier, A)).reason == "cancelled"


async def test_a_paused_crawl_takes_adds(frontier):
    """I1: one not running lends nothing, and takes adds."""
    await frontier.pause()

    assert (await only(frontier, A)).added
    assert await frontier.claim() == []


# ---- policies of the user


@pytest.mark.parametrize(
    ("name", "url", "key"),
    [
        ("host", "https://www.a.example:8080/", "www.a.example"),
        ("domain", "https://www.shop.co.uk/", "shop.co.uk"),
        ("surt", "https://www.a.example:8080/", "example,a,www:8080"),
    ],
)
async def test_a_queue_is_keyed_as_the_settings_say(opened, name, url, key):
    """A4: host without port, registrable domain, or SURT authority."""
    frontier = await opened({"queue": {"key": name}})
    await frontier.add([url])

    assert [view.key async for view in frontier.queues()] == [key]


async def test_buckets_are_as_many_as_asked_for(opened):
    """A4: n fixed buckets; one host is always in the same."""
    frontier = await opened({"queue": {"key": "buckets:3"}})
    await frontier.add([f"https://h{n}.example/{page}" for n in range(60) for page in range(2)])

    views = [view async for view in frontier.queues()]

    assert len(views) == 3
    assert all(view.pending % 2 == 0 for view in views)


async def test_a_function_may_give_the_key(opened):
    """A4: and a link may bring its own, which wins."""
    frontier = await opened({"queue": {"key": lambda url: url.host[0]}})

    await frontier.add([A, Link("https://b.example/", key="mine")])

    assert {view.key async for view in frontier.queues()} == {"a", "mine"}


@pytest.mark.parametrize("answer", [None, "", "x" * 256, 5, "a\nb"])
async def test_a_function_that_gives_no_key_refuses_the_link(opened, answer):
    """B4: a bad link, and the detail says whose fault it is."""
    frontier = await opened(
        {"queue": {"key": lambda url: answer if url.host == "a.example" else url.host}}
    )

    report = await frontier.add([A, "https://b.example/"])

    assert [one.reason for one in report.answers] == ["bad-link", None]
    assert "queue.key" in report.answers[0].detail


@pytest.mark.parametrize("answer", [-1, 65_536, 1.5, "1", None, math.nan, True])
async def test_a_function_that_gives_no_cost_refuses_the_link(opened, answer):
    """E4: integers 0–65,535."""
    frontier = await opened(
        {"budget": {"cost": lambda url, _: answer if url.host == "a.example" else 1}}
    )

    report = await frontier.add([A, "https://b.example/"])

    assert [one.reason for one in report.answers] == ["bad-link", None]
    assert "budget.cost" in report.answers[0].detail


async def test_a_function_may_give_the_cost(opened):
    """E4: it is charged, and is the precedence: dearer URLs wait behind cheaper ones."""
    frontier = await opened(
        {
            "budget": {"cost": lambda url, _: 7 if "dear" in url.text else 2},
            "politeness": {"delay": 0.0, "max_in_flight": 9},
        }
    )
    await frontier.add([A + "dear", A + "cheap"])

    leases = await frontier.claim(2)

    assert [lease.url for lease in leases] == [A + "cheap", A + "dear"]
    assert (await frontier.queue("a.example").view()).spent == 9


@pytest.mark.parametrize(
    "settings",
    [
        {"scope": {"function": lambda url: 1 / (url.host != "a.example")}},
        {"queue": {"key": lambda url: str(1 / (url.host != "a.example"))}},
        {"budget": {"cost": lambda url, _: int(1 / (url.host != "a.example"))}},
        {"queue": {"max_depth": 0, "bypass_depth": lambda link: bool(1 / ("a." not in link.url))}},
    ],
)
async def test_a_policy_that_raises_refuses_its_link_alone(opened, settings):
    """A2: one bad link never spoils the others; the detail tells what was raised."""
    frontier = await opened(settings)

    report = await frontier.add([Link(A, depth=1), Link("https://b.example/", depth=1)])

    assert [answer.added for answer in report.answers] == [False, True]
    assert report.answers[0].reason == "bad-link"
    assert "ZeroDivisionError" in report.answers[0].detail


class Scorer:
    """A scorer of the user's, of which every link is an example."""

    features = ("mine",)

    def __init__(self, answer):
        self._answer = answer

    def score(self, batch):
        """Whatever the test wants for each."""
        return [self._answer(link, url) for link, url in batch]


async def test_a_scorer_may_be_the_users(opened):
    """F10: its features are reported."""
    from outrider.core.policy.score import Breakdown, Score  # noqa: PLC0415 - only a scorer's

    def answer(_, url):
        size = float(len(url.text))
        return Score(size, Breakdown("mine", (("length", size),)))

    frontier = await opened({"scoring": {"scorer": Scorer(answer)}})
    report = await frontier.add([A, A + "long"])

    assert [one.priority for one in report.answers] == [18.0, 22.0]
    assert list(report.scoring.features) == ["mine"]


async def test_a_scorer_that_answers_nonsense_refuses_its_link_alone(opened):
    """B4: `bad-link` for a NaN priority, whoever gave it."""
    from outrider.core.policy.score import Breakdown, Score  # noqa: PLC0415 - only a scorer's

    def answer(_, url):
        size = math.nan if "bad" in url.text else 1.0
        return Score(size, Breakdown("mine", (("x", size),)))

    frontier = await opened({"scoring": {"scorer": Scorer(answer)}})
    report = await frontier.add([A, A + "bad", A + "good"])

    assert [one.reason for one in report.answers] == [None, "bad-link", None]


async def test_a_scorer_that_raises_spoils_no_batch(opened):
    """A2, F10: scorers are pluggable, and one bad link never spoils the others."""

    def answer(link, url):
        raise ZeroDivisionError("mine")

    frontier = await opened({"scoring": {"scorer": Scorer(answer)}})
    report = await frontier.add([A, Link(A + "2", priority=1.0)])

    assert report.answers[0].reason == "bad-link"
    assert report.answers[1].added


async def test_an_unknown_policy_is_refused_at_opening():
    """N2: with its path, before anything is opened."""
    with pytest.raises(SettingsError, match=r"queue\.key"):
        Frontier.open(settings={"queue": {"key": "hosts"}})


# ---- priorities


@pytest.mark.parametrize(
    ("kind", "depth", "priority"),
    [
        ("article", 0, 0.0),
        ("hub-seed", 1, 5.0),
        ("history", 0, 6.0),
        ("nav", 2, 12.0),
        ("refresh", 0, 25.0),
        ("page", 3, 15.0),
        ("anything", 0, 12.0),
    ],
)
async def test_the_base_is_type_weight_and_depth(frontier, kind, depth, priority):
    """F1."""
    assert (await only(frontier, Link(A, type=kind, depth=depth))).priority == priority


@pytest.mark.parametrize(
    ("fields", "priority", "source"),
    [
        ({"bias": -2.5}, 9.5, "base"),
        ({"bias": 3, "depth": 4}, 19.0, "base"),
        ({"base_priority": 100}, 100.0, "base"),
        ({"base_priority": 100, "bias": 1, "depth": 5, "type": "nav"}, 101.0, "base"),
        ({"priority": 7}, 7.0, "explicit"),
        ({"priority": -3.5, "depth": 5, "type": "nav"}, -3.5, "explicit"),
        ({"priority": "critical"}, -1000.0, "explicit"),
        ({"priority": "high"}, -100.0, "explicit"),
        ({"priority": "normal"}, 0.0, "explicit"),
        ({"priority": "low"}, 100.0, "explicit"),
        ({"priority": -0.0}, 0.0, "explicit"),
        ({"priority": 1e308}, 1e308, "explicit"),
        ({"forced": True}, 12.0, "forced"),
        ({"forced": True, "priority": 5}, 5.0, "forced"),
    ],
)
async def test_a_link_may_say_how_soon_it_is_wanted(frontier, fields, priority, source):
    """F8: and the breakdown sums to the priority, whatever its source."""
    answer = await only(frontier, Link(A, **fields))
    breakdown = (await frontier.explain(A)).breakdown

    assert answer.priority == priority
    assert math.copysign(1.0, answer.priority) == math.copysign(1.0, priority or 1.0)
    assert breakdown.source == source
    assert math.isclose(sum(value for _, value in breakdown.terms), priority, abs_tol=1e-12)
    assert breakdown.total == priority


async def test_terms_that_sum_beyond_all_floats_are_refused(frontier):
    """C2: infinities are refused, also those that arise."""
    answer = await only(frontier, Link(A, base_priority=1.7e308, bias=1.7e308))

    assert answer.reason == "bad-link"


async def test_forced_goes_before_everything_in_its_queue(rude):
    """F8: before a critical one; elsewhere it only competes as its queue's top."""
    await rude.add([Link(A + "critical", priority="critical"), Link(A + "forced", forced=True)])

    assert [lease.url for lease in await rude.claim(2)] == [A + "forced", A + "critical"]


async def test_configured_weights_are_used(opened):
    """F1: by type, and for all other types."""
    frontier = await opened({"scoring": {"weights": {"nav": 1.5, "default": 40}}})

    report = await frontier.add([Link(A + "1", type="nav"), A + "2", Link(A + "3", type="article")])

    assert [answer.priority for answer in report.answers] == [1.5, 40.0, 0.0]


async def test_the_fifo_scorer_holds_all_equal(opened):
    """F10: but for what the link itself asks."""
    frontier = await opened({"scoring": {"scorer": "fifo"}})

    report = await frontier.add(
        [
            Link(A + "1", depth=4),
            Link(A + "2", bias=2),
            Link(A + "3", base_priority=5),
            Link(A + "4", priority=9),
        ]
    )

    assert [answer.priority for answer in report.answers] == [0.0, 2.0, 5.0, 9.0]


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


async def test_crawls_of_one_store_know_nothing_of_each_other(opened, store):
    """I1, A3: unique within a crawl."""
    one = await opened(store=store, crawl="one")
    two = await opened(store=store, crawl="two")

    assert (await one.add([A])).added == 1
    assert (await two.add([A])).added == 1
    assert (await one.stats()).known == 1


@pytest.mark.parametrize("crawl", ["", "x" * 256, "a\nb", None, 5])
def test_a_crawl_has_a_printable_name(crawl):
    """The caller's fault, said at once."""
    with pytest.raises(InvalidInput, match="crawl"):
        Frontier.open(crawl=crawl)


async def test_a_store_nobody_knows_is_refused():
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


async def test_a_thousand_hostile_links_leave_the_good_ones_alone(frontier):
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
