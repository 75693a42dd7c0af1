import math

import pytest

from outrider import Done, Link
from outrider.core.url import Url

A = "https://a.example/"


async def only(frontier, link):
    """The one answer for one link."""
    report = await frontier.add([link])
    (answer,) = report.answers
    return answer


async def known(frontier, url):
    """What the store knows of a URL."""
    return (await frontier.explain(url)).task


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
    ids=lambda value: ascii(value)[:40],
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
    """A1: public addresses, names in any script, whitespace by the rules of WHATWG."""
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


@pytest.mark.parametrize(
    "thing", [None, 5, 1.5, b"https://a.example/", [A], {"url": A}, object(), Link]
)
async def test_what_is_no_text_is_a_bad_url(frontier, thing):
    """A2: never an exception from the batch, alone or inside a link."""
    report = await frontier.add([A, thing, Link(thing), A + "2"])

    assert [answer.reason for answer in report.answers] == [None, "bad-url", "bad-url", None]
    assert all(isinstance(answer.url, str) for answer in report.answers)
    assert type(thing).__name__ in report.answers[1].detail


async def test_object_without_repr_does_not_affect_others(frontier):
    """A2: an invalid URL does not affect the others."""
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
        ({"text": 5}, "text"),
        ({"text": "a\0b"}, "text"),
        ({"text": "\ud800"}, "text"),
        ({"text": "x" * 8193}, "text"),
        ({"text": "é" * 4097}, "text"),
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


async def test_redirect_target_of_a_found_page_does_not_join_the_scope(opened):
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


async def test_a_redirect_that_one_worker_met_widens_the_scope_for_all(opened, store):
    """A5: as with seeds; also for a worker that comes later."""
    settings = {"scope": {"mode": "host"}, "politeness": {"delay": 0.0}}
    first, second = await opened(settings, store), await opened(settings, store)
    await first.add([A])
    (lease,) = await first.claim()
    target = Link("https://b.example/", origin="redirect")
    await first.finish(lease, Done(301), links=[target])

    late = await opened(settings, store)
    (lease,) = await second.claim()
    await second.finish(lease, Done(200), links=["https://b.example/1", "https://c.example/"])
    await late.add([Link("https://b.example/2", depth=1), Link("https://c.example/", depth=1)])

    urls = {task.url async for task in late.tasks()}
    assert urls == {A, "https://b.example/", "https://b.example/1", "https://b.example/2"}


async def test_a_scope_narrowed_live_knows_seeds_from_found_pages(opened):
    """A5: a page found elsewhere before is no seed."""
    frontier = await opened()
    await frontier.add([A, Link("https://b.example/", depth=1, via=A)])

    await frontier.configure({"scope": {"mode": "host"}})

    report = await frontier.add([Link(A + "1", depth=1), Link("https://b.example/1", depth=1)])
    assert [answer.reason for answer in report.answers] == [None, "off-scope"]


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


async def test_a_user_function_may_give_the_reason_of_a_refusal(opened):
    """A5: counted by its name, told by events and by explain, also for links of a page."""

    def scope(url):
        return "paywall" if "/premium/" in url.text else url.host == "a.example"

    frontier = await opened({"scope": {"function": scope}})
    seen = []
    frontier.subscribe(seen.append)
    report = await frontier.add([A, A + "premium/1", "https://b.example/"])
    (lease,) = await frontier.claim()
    await frontier.finish(lease, Done(200), links=[A + "premium/2", A + "free"])
    explanation = await frontier.explain(A + "premium/3")
    totals = (await frontier.stats()).refused

    assert [answer.reason for answer in report.answers] == [None, "paywall", "off-scope"]
    assert report.refused == {"paywall": 1, "off-scope": 1}
    assert totals == {"paywall": 2, "off-scope": 1}
    refused = [event.data["reason"] for event in seen if event.name == "refused"]
    assert refused == ["paywall", "off-scope", "paywall"]
    assert explanation.admission == "paywall"
    assert await frontier.refusal_of(A + "premium/4", lease) == "paywall"


async def test_a_scope_function_that_answers_nothing_is_named(opened):
    """A5: a forgotten return is no refusal by scope: the detail has the function and the fix."""

    def forgetful(url):
        url.text.startswith(A)

    frontier = await opened({"scope": {"function": forgetful}})
    answer = await only(frontier, A)

    assert answer.reason == "bad-link"
    assert "forgetful" in answer.detail
    assert "return True, False, or a reason" in answer.detail


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


async def test_refusal_reasons_have_the_order_of_the_specification(opened):
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
    """I1: a crawl that does not run leases no tasks, and takes adds."""
    await frontier.pause()

    assert (await only(frontier, A)).added
    assert await frontier.claim() == []
