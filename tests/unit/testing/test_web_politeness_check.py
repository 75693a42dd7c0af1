from itertools import pairwise

import pytest

from outrider.testing.web import Hit, Kind, Shape, Site, Web, violations, world_of

HOST = "one.web.test"


def hit(start, end, target="/a", host=HOST, *, status=200, until=0.0, cut=False):
    """A hit, at instants given in seconds."""
    return Hit(start, end, host, target, status, wait_until=until, is_cut=cut)


def kinds(hits, **manners):
    """What was wrong."""
    return [wrong.kind for wrong in violations(hits, **manners)]


def polite(count, *, delay=1.0, each=0.25, host=HOST):
    """Robots.txt, then pages, each exactly the delay after the last."""
    targets = ["/robots.txt", *(f"/{n}" for n in range(count))]
    return [
        hit(n * (delay + each), n * (delay + each) + each, target, host)
        for n, target in enumerate(targets)
    ]


def test_a_polite_sequence_is_without_fault():
    """Exactly at the delay, on many hosts at one time, in any order of the record."""
    hits = [one for host in ("a.test", "b.test") for one in polite(20, host=host)]
    web = Web([Site("a.test", crawl_delay=1.0), Site("b.test")])

    assert violations(hits, delay=1.0, web=web) == []
    assert violations(reversed(hits), delay=1.0, web=web) == []


def test_spacing_is_counted_from_the_end_of_one_to_the_start_of_the_next():
    """Not from start to start; by any amount; and the wrong says what happened."""
    hits = [hit(0.0, 2.0, "/first"), hit(2.875, 3.0, "/second")]
    (wrong,) = violations(hits, delay=1.0)

    assert (wrong.kind, wrong.wanted, wrong.got) == (Kind.SPACING, 1.0, 0.875)
    assert wrong.hit.target == "/second"
    assert str(wrong) == (
        "spacing: one.web.test/second at 2.875000, after /first: 0.875000, wanted 1.000000"
    )
    assert violations(hits, delay=1.0, tolerance=0.125) == []


def test_a_tiny_haste_is_haste():
    """A microsecond too soon, at instants as large as today's."""
    at = 1_800_000_000.0

    assert kinds([hit(at, at + 0.5), hit(at + 1.499999, at + 2)], delay=1.0) == [Kind.SPACING]
    assert kinds([hit(at, at + 0.5), hit(at + 1.5, at + 2)], delay=1.0) == []


def test_robots_is_a_visit_like_any_other():
    """Before it and after it the delay applies."""
    assert kinds([hit(0, 0.1, "/robots.txt"), hit(0.2, 0.3)], delay=1.0) == [Kind.SPACING]
    assert kinds([hit(0, 0.1), hit(0.2, 0.3, "/robots.txt")], delay=1.0) == [Kind.SPACING]


def test_hosts_do_not_disturb_each_other():
    """Only hits of one host are compared."""
    assert kinds([hit(0, 1, host="a.test"), hit(0.5, 1, host="b.test")], delay=5.0) == []


def test_the_delay_may_depend_on_the_earlier_hit():
    """Five times its duration, say; and a longer wait is not forgotten over a shorter one."""
    hits = [hit(0.0, 2.0), hit(3.0, 3.1), hit(5.0, 5.1)]
    wrongs = violations(hits, delay=lambda earlier: 5 * earlier.seconds)

    assert [wrong.kind for wrong in wrongs] == [Kind.SPACING, Kind.SPACING]
    assert {wrong.before.ended_at for wrong in wrongs} == {2.0}


def test_overlap_is_too_many_in_flight():
    """And is judged as that alone."""
    hits = [hit(0.0, 2.0), hit(1.0, 3.0), hit(1.5, 2.5)]

    assert kinds(hits, delay=0.0) == [Kind.IN_FLIGHT, Kind.IN_FLIGHT]
    assert kinds(hits, max_in_flight=2) == [Kind.IN_FLIGHT]
    assert kinds(hits, max_in_flight=3) == []


def test_one_ends_as_the_next_starts():
    """At one instant: not in flight together, but without any delay."""
    hits = [hit(0.0, 1.0), hit(1.0, 1.0), hit(1.0, 2.0)]

    assert kinds(hits) == []
    assert kinds(hits, delay=0.5) == [Kind.SPACING, Kind.SPACING]


def test_retry_after_is_an_instant_nobody_may_come_before():
    """Even if others came and went well since."""
    hits = [hit(0, 1, status=429, until=31.0), hit(20, 21), hit(30.5, 30.6), hit(31.7, 32)]
    wrongs = violations(hits, delay=1.0)

    assert [wrong.kind for wrong in wrongs] == [Kind.RETRY_AFTER, Kind.RETRY_AFTER]
    assert [wrong.hit.started_at for wrong in wrongs] == [20, 30.5]
    assert (wrongs[0].wanted, wrongs[0].got) == (30.0, 19.0)


def test_crawl_delay_holds_once_robots_was_answered():
    """From the answer on, robots.txt itself included; not after one that failed."""
    web = Web([Site(HOST, crawl_delay=5.0)])
    read, failed = hit(0, 0.5, "/robots.txt"), hit(0, 0.5, "/robots.txt", status=503)

    assert kinds([read, hit(2, 3)], delay=1.0, web=web) == [Kind.CRAWL_DELAY]
    assert kinds([read, hit(5.5, 6), hit(8, 9)], delay=1.0, web=web) == [Kind.CRAWL_DELAY]
    assert kinds([read, hit(5.5, 6), hit(11, 12)], delay=1.0, web=web) == []
    assert kinds([failed, hit(2, 3)], delay=1.0, web=web) == []
    assert kinds([read, hit(2, 3)], delay=1.0) == []


def test_forbidden_pages_are_forbidden():
    """Also with a query; exceptions are not; robots.txt never is."""
    web = Web([Site(HOST, forbidden=("/",), excepted=("/open",))])
    hits = [hit(0, 1, "/robots.txt"), hit(2, 3, "/open/a"), hit(4, 5, "/a?b"), hit(6, 7, "/")]

    assert [(wrong.kind, wrong.hit.target) for wrong in violations(hits, web=web)] == [
        (Kind.DISALLOWED, "/a?b"),
        (Kind.DISALLOWED, "/"),
    ]
    assert str(violations(hits, web=web)[0]).startswith("disallowed: one.web.test/a?b at 4")
    assert violations(hits) == []


def test_robots_is_read_first():
    """Every page before it is a wrong; a second reading is none."""
    web = Web([Site(HOST)])
    hits = [hit(0, 1), hit(2, 3, "/robots.txt"), hit(4, 5), hit(6, 7, "/robots.txt"), hit(8, 9)]

    assert kinds(hits, web=web) == [Kind.ROBOTS_UNREAD]


def test_a_hit_that_was_cut_ended_a_little_before_it_was_noticed():
    """Only the visitor knows when; no more than `notice` is granted, and to cut hits alone."""
    cut, whole = hit(0, 2.0, cut=True), hit(0, 2.0)

    assert kinds([cut, hit(2.97, 3)], delay=1.0) == []
    assert kinds([whole, hit(2.97, 3)], delay=1.0) == [Kind.SPACING]
    assert kinds([cut, hit(2.94, 3)], delay=1.0) == [Kind.SPACING]
    assert kinds([cut, hit(2.97, 3)], delay=1.0, notice=0.0) == [Kind.SPACING]
    assert kinds([cut, hit(1.97, 3)]) == []
    assert kinds([cut, hit(1.9, 3)]) == [Kind.IN_FLIGHT]


def test_a_cut_hit_never_ends_before_it_starts():
    """However short it was."""
    assert kinds([hit(0, 0.01, cut=True), hit(1.0, 1.1)], delay=1.0) == []
    assert kinds([hit(0, 0.01, cut=True), hit(0.999, 1.1)], delay=1.0) == [Kind.SPACING]


def test_who_visits_makes_no_difference():
    """Another port, another name: a restarted crawler is the same visitor."""
    hits = [
        Hit(0, 1, HOST, "/a", 200, peer=1, agent="a"),
        Hit(1.5, 2, HOST, "/b", 200, peer=2, agent="b"),
    ]

    assert kinds(hits, delay=1.0) == [Kind.SPACING]


@pytest.mark.parametrize("moved", range(1, 6))
def test_one_planted_haste_is_found_among_many(moved):
    """Exactly that one, and the one after it if it was pulled along."""
    hits = polite(10)
    early = [
        hit(one.started_at - 0.01, one.ended_at - 0.01, one.target) if n >= moved else one
        for n, one in enumerate(hits)
    ]

    (wrong,) = violations(early, delay=1.0, web=world_of(Shape(hosts=1)), tolerance=1e-9)
    assert wrong.hit == early[moved]
    assert wrong.before == early[moved - 1]
    assert all(a.ended_at < b.started_at for a, b in pairwise(early))
