import contextlib
import math
from collections import Counter

import pytest

from outrider import Closed, Done, Failed, Frontier, InvalidInput, Link, SettingsError
from outrider.frontier import queue_sampler, reader, reports

A = "https://a.example/"
B = "https://b.example/"


async def visit(frontier, outcome=None):
    """Claim one page and finish it."""
    (lease,) = await frontier.claim()
    assert await frontier.finish(lease, outcome or Done(200))
    return lease


async def deaths(frontier, *urls, reason="x"):
    """Let these pages die of their first failure; the frontier forgives none."""
    await frontier.add([Link(url, priority=-5) for url in urls])
    for _ in urls:
        await visit(frontier, Failed(reason))


@pytest.fixture
async def strict(opened):
    """A frontier without delays that forgives no failure."""
    return await opened({"politeness": {"delay": 0.0}, "retry": {"max_retries": 0}})


async def balanced(frontier):
    """O5: known = pending + leased + done + dead + dropped; and the stats."""
    stats = await frontier.stats()
    assert stats.known == sum((stats.pending, stats.leased, stats.done, stats.dead, stats.dropped))
    return stats


# ---- one queue


async def test_set_returns_the_new_view(frontier):
    """E7: live, returning the new view."""
    await frontier.add([A])

    view = await frontier.queue("a.example").set(
        balance=100, total_budget=500, delay=2.0, max_in_flight=3, precedence=-4
    )

    assert (view.key, view.state, view.pending) == ("a.example", "ready", 1)
    assert (view.grant, view.total_budget, view.precedence) == (100, 500, -4)
    assert (view.max_in_flight, view.delay) == (3, 2.0)


async def test_set_acts_at_once(frontier, clock):
    """E5, A4: runtime by key goes before the crawl's."""
    await frontier.add([A + "1", A + "2"])
    await frontier.queue("a.example").set(delay=20.0)

    await visit(frontier)

    assert (await frontier.claim()).wake_in == 20.0


async def test_set_of_none_removes_an_override(frontier):
    """None lets a field follow the crawl again."""
    queue = frontier.queue("a.example")
    await queue.set(balance=7, max_in_flight=2)

    view = await queue.set(balance=None)

    assert (view.grant, view.max_in_flight) == (3000, 2)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"balnce": 5}, "balance"),
        ({"balance": -1}, "balance"),
        ({"balance": "5"}, "balance"),
        ({"delay": -2.0}, "delay"),
        ({"delay": math.nan}, "delay"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"precedence": 2**40}, "precedence"),
        ({"balance": 5, "total_budget": math.inf}, "total_budget"),
    ],
)
async def test_an_invalid_set_changes_nothing(frontier, changes, named):
    """N2: refused by name, whole."""
    await frontier.add([A])
    before = await frontier.queue("a.example").view()

    with pytest.raises(SettingsError, match=named):
        await frontier.queue("a.example").set(**changes)

    assert await frontier.queue("a.example").view() == before


async def test_paused_queue_leases_no_tasks(frontier):
    """C1: a person's; its tasks stay and count."""
    await frontier.add([A, B])
    queue = frontier.queue("a.example")

    assert (await queue.pause()).state == "paused"
    assert [lease.url for lease in await frontier.claim(9)] == [B]
    assert (await queue.resume()).state == "ready"
    assert [lease.url for lease in await frontier.claim(9)] == [A]


async def test_retired_queue_leases_no_tasks_until_revived(frontier):
    """E5: by an operator; not by any budget."""
    await frontier.add([A])
    queue = frontier.queue("a.example")

    view = await queue.retire()
    assert (view.state, view.reason) == ("retired", "operator")
    assert (await frontier.stats()).held == 1
    assert (await queue.set(balance=10)).state == "retired"
    assert (await queue.revive()).state == "ready"
    assert (await frontier.stats()).held == 0


async def test_retired_and_paused_queue_is_reported_as_retired(frontier):
    """C1: the first that holds."""
    await frontier.add([A])
    queue = frontier.queue("a.example")
    await queue.pause()

    assert (await queue.retire()).state == "retired"
    assert (await queue.revive()).state == "paused"


async def test_a_snoozed_queue_sleeps_until_woken(frontier, clock):
    """E7: for so long; `wake` ends it, for nothing was visited yet."""
    await frontier.add([A])
    queue = frontier.queue("a.example")

    view = await queue.snooze(60)
    assert (view.state, view.reason, view.wakes_in) == ("snoozed", "operator", 60.0)
    claim = await frontier.claim()
    assert (list(claim), claim.wake_in) == ([], 60.0)

    assert (await queue.wake()).state == "ready"
    assert len(await frontier.claim()) == 1


async def test_a_wake_keeps_the_delay_after_the_last_visit(opened, clock):
    """D1: it moves next-ready back to the last visit's end + delay, never further."""
    frontier = await opened({"politeness": {"delay": 10.0}})
    await frontier.add([A + "1", A + "2"])
    await visit(frontier)
    clock.advance(4)
    await frontier.queue("a.example").snooze(500)

    view = await frontier.queue("a.example").wake()

    assert (view.state, view.reason, view.wakes_in) == ("snoozed", "delay", 6.0)


async def test_a_shorter_snooze_shortens_nothing(frontier):
    """D1: next-ready never moves back except by `wake`."""
    await frontier.add([A])
    queue = frontier.queue("a.example")
    await queue.snooze(60)

    assert (await queue.snooze(5)).wakes_in == 60.0


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, 1e12, "60", None])
async def test_a_snooze_is_seconds(frontier, seconds):
    """The caller's fault, by name."""
    with pytest.raises(InvalidInput, match="snooze"):
        await frontier.queue("a.example").snooze(seconds)


@pytest.mark.parametrize("key", ["", ".", "..", None, 5])
async def test_a_queue_has_a_name(frontier, key):
    """The caller's fault."""
    with pytest.raises(InvalidInput):
        frontier.queue(key)


async def test_view_has_every_field_of_the_report(opened, clock):
    """E8."""
    frontier = await opened({"politeness": {"delay": 0.0}, "budget": {"total_budget": 50}})
    await frontier.add([A + "1", A + "2", A + "3", A + "4", Link(A + "5", delay=100.0)])
    await visit(frontier, Done(200, bytes=1000))
    await visit(frontier, Failed("x"))
    visited_at = clock.now()
    clock.advance(5)
    await frontier.claim()

    view = await frontier.queue("a.example").view()

    assert (view.key, view.state, view.pending, view.delayed) == ("a.example", "busy", 3, 1)
    assert (view.in_flight, view.precedence, view.grant) == (1, 0, 3000)
    assert (view.balance, view.spent, view.total_budget) == (2997, 3, 50)
    assert (view.last_cost, view.average_cost) == (1, 1.0)
    assert (view.done, view.dead, view.dropped, view.bytes) == (1, 0, 0, 1000)
    assert (view.errors_in_row, view.last_visit_at) == (1, visited_at)
    assert view.next_url == A + "3"


async def test_action_on_a_missing_queue_applies_once_it_exists(frontier):
    """E7: durable: what was set for a key applies once it has a task."""
    await frontier.queue("a.example").set(total_budget=1, max_in_flight=5)
    await frontier.queue("b.example").pause()
    await frontier.queue("c.example").retire()

    await frontier.add([A, B, "https://c.example/"])

    assert (await frontier.queue("a.example").view()).total_budget == 1
    assert (await frontier.queue("b.example").view()).state == "paused"
    assert (await frontier.queue("c.example").view()).state == "retired"


async def test_view_of_a_missing_queue_is_empty_with_its_rules(opened):
    """E8: nothing there, and what would hold."""
    frontier = await opened({"keys": {".org": {"balance": 5}}})

    view = await frontier.queue("new.org").view()

    assert (view.key, view.state, view.pending, view.grant) == ("new.org", "empty", 0, 5)
    assert [view async for view in frontier.queues()] == []


async def test_snooze_and_wake_of_a_missing_queue_change_nothing(frontier):
    """Nothing to put to sleep."""
    assert (await frontier.queue("a.example").snooze(60)).state == "empty"
    assert (await frontier.queue("a.example").wake()).state == "empty"


# ---- many queues


async def test_a_suffix_addresses_all_below_it(frontier):
    """E7: `.org` and its like; the answer is their sums."""
    await frontier.add(["https://a.org/", "https://b.org/", "https://c.org/1", "https://d.com/"])

    view = await frontier.queue(".org").pause()

    assert (view.key, view.queues, view.pending) == (".org", {"paused": 3}, 3)
    assert (view.in_flight, view.spent) == (0, 0)
    assert [lease.key for lease in await frontier.claim(9)] == ["d.com"]
    assert (await frontier.queue(".org").resume()).queues == {"ready": 3}
    assert len(await frontier.claim(9)) == 3
    assert (await frontier.queue(".org").view()).spent == 3


@pytest.mark.parametrize("name", ["A.Example", ".EXAMPLE"])
async def test_an_operator_may_spell_a_host_as_they_like(frontier, name):
    """A1, E7: hosts are lower-case, so A.Example is a.example."""
    await frontier.add([A])

    await frontier.queue(name).pause()

    assert (await frontier.queue("a.example").view()).state == "paused"
    assert await frontier.claim() == []


async def test_every_field_that_set_takes_has_an_effect(frontier):
    """E7: a cost by key acts, or is refused; silence would be a lie."""
    with contextlib.suppress(SettingsError):
        await frontier.queue("a.example").set(cost="zero")
        await frontier.add([A])
        await frontier.claim()

        assert (await frontier.queue("a.example").view()).spent == 0


async def test_suffix_includes_the_domain_itself(frontier):
    """A4: `.example.org` is example.org and all below it, and nothing that only ends alike."""
    await frontier.add(["https://site.org/", "https://www.site.org/", "https://mysite.org/"])

    view = await frontier.queue(".site.org").retire()

    assert view.queues == {"retired": 2}


@pytest.mark.parametrize(
    ("act", "state"),
    [("pause", "paused"), ("retire", "retired"), ("snooze", "snoozed"), ("set", "retired")],
)
async def test_every_act_may_be_on_a_suffix_and_undone(frontier, act, state):
    """E7."""
    await frontier.add(["https://a.org/", "https://b.org/"])
    handle = frontier.queue(".org")
    acts = {
        "pause": (handle.pause, handle.resume),
        "retire": (handle.retire, handle.revive),
        "snooze": (lambda: handle.snooze(60), handle.wake),
        "set": (lambda: handle.set(balance=0), lambda: handle.set(balance=9)),
    }[act]

    assert (await acts[0]()).queues == {state: 2}
    assert (await acts[1]()).queues == {"ready": 2}


async def test_rule_of_a_suffix_applies_to_later_queues(frontier):
    """E7: durable."""
    await frontier.queue(".org").set(max_in_flight=7)

    await frontier.add(["https://a.org/"])

    assert (await frontier.queue("a.org").view()).max_in_flight == 7


async def test_settings_layers_have_their_order(opened):
    """A4: runtime key > runtime longest suffix > exact key > longest suffix > crawl."""
    frontier = await opened(
        {
            "budget": {"balance": 1},
            "keys": {
                ".org": {"balance": 2},
                ".site.org": {"balance": 3},
                "www.site.org": {"balance": 4},
            },
        }
    )

    async def grants():
        hosts = ("a.com", "a.org", "a.site.org", "www.site.org")
        return [(await frontier.queue(host).view()).grant for host in hosts]

    assert await grants() == [1, 2, 3, 4]
    await frontier.queue(".org").set(balance=5)
    assert await grants() == [1, 5, 5, 5]
    await frontier.queue(".site.org").set(balance=6)
    assert await grants() == [1, 5, 6, 6]
    await frontier.queue("www.site.org").set(balance=7)
    assert await grants() == [1, 5, 6, 7]


async def test_a_runtime_change_crawl_wide_beats_the_crawl_and_no_key(opened):
    """A4: runtime by key > runtime by suffix > exact key > suffix > runtime crawl-wide > crawl."""
    frontier = await opened({"budget": {"balance": 1}, "keys": {".org": {"balance": 2}}})
    await frontier.queue("b.com").set(balance=3)

    await frontier.configure({"budget": {"balance": 9}})

    grants = [(await frontier.queue(key).view()).grant for key in ("a.com", "a.org", "b.com")]
    assert grants == [9, 2, 3]


async def test_many_queues_are_steered_in_steps(frontier):
    """E7: bounded steps; none is forgotten."""
    await frontier.add([f"https://h{n}.org/" for n in range(2500)])

    assert (await frontier.queue(".org").pause()).queues == {"paused": 2500}


# ---- tasks: drop


async def pages(frontier):
    """Some pages to choose from."""
    await frontier.add(
        [
            Link(A + "1", type="nav", tag="x"),
            Link(A + "2", tag="x"),
            Link(B + "1", type="nav"),
            Link(B + "pdf/1"),
        ]
    )


@pytest.mark.parametrize(
    ("which", "count"),
    [
        ({"key": "a.example"}, 2),
        ({"key": ".example"}, 4),
        ({"pattern": "/pdf/"}, 1),
        ({"pattern": r"/\d$"}, 4),
        ({"pattern": ""}, 4),
        ({"type": "nav"}, 2),
        ({"tag": "x"}, 2),
        ({"tag": "x", "type": "nav"}, 1),
        ({"key": "nobody.example"}, 0),
    ],
)
async def test_pending_tasks_are_dropped_by_filter(frontier, which, count):
    """C10: a dry run counts and changes nothing; then they become dropped (`operator`)."""
    await pages(frontier)

    assert await frontier.drop(**which, dry_run=True) == count
    assert (await balanced(frontier)).dropped == 0
    assert await frontier.drop(**which) == count
    stats = await balanced(frontier)
    assert (stats.dropped, stats.pending) == (count, 4 - count)
    reasons = {task.reason async for task in frontier.tasks(state="dropped")}
    assert reasons == ({"operator"} if count else set())


async def test_tasks_are_dropped_by_age(frontier, clock):
    """C10: seconds since they were discovered."""
    await frontier.add([A])
    clock.advance(100)
    await frontier.add([B])

    assert await frontier.drop(older_than=50) == 1
    assert [lease.url for lease in await frontier.claim(9)] == [B]


async def test_only_pending_tasks_are_dropped(frontier):
    """C10: a leased task belongs to a worker."""
    await frontier.add([A + "1", A + "2"])
    (lease,) = await frontier.claim()

    assert await frontier.drop(pattern="") == 1
    assert await frontier.finish(lease, Done(200))
    assert (await frontier.claim()).status == "finished"


async def test_a_dropped_task_is_still_known(frontier):
    """B3: whatever its state; it may be revisited."""
    await frontier.add([A])
    await frontier.drop(key="a.example")

    assert (await frontier.add([A])).refused == {"duplicate": 1}
    assert (await frontier.add([Link(A, known="revisit")])).added == 1


async def test_drop_of_everything_must_be_explicit(frontier):
    """C10: no filter is no wish."""
    with pytest.raises(InvalidInput, match="filter"):
        await frontier.drop()


@pytest.mark.parametrize("pattern", ["(", "[", "*", 5])
async def test_a_pattern_is_a_regular_expression(frontier, pattern):
    """The caller's fault, by name; nothing changes."""
    await frontier.add([A])

    with pytest.raises(InvalidInput, match="pattern"):
        await frontier.drop(pattern=pattern)
    with pytest.raises(InvalidInput, match="pattern"):
        [task async for task in frontier.tasks(pattern=pattern)]

    assert (await frontier.stats()).pending == 1


async def test_thousands_are_dropped_in_steps(frontier):
    """None is forgotten."""
    await frontier.add(f"https://h{n % 50}.example/{n}" for n in range(3000))

    assert await frontier.drop(pattern=r"[02468]$") == 1500
    assert (await balanced(frontier)).pending == 1500


# ---- tasks: dead letters


async def test_dead_letters_have_every_attempt(strict, clock):
    """G2: URL, meta, reason, time, and every attempt's time, worker and error."""
    await strict.add([Link(A, type="nav", tag="t", meta={"x": 1})])
    await visit(strict, Failed("HTTP 500"))

    (letter,) = [letter async for letter in strict.dead()]

    assert (letter.url, letter.key, letter.type, letter.tag) == (A, "a.example", "nav", "t")
    assert (letter.meta, letter.reason, letter.died_at) == ({"x": 1}, "HTTP 500", clock.now())
    (attempt,) = letter.attempts
    assert (attempt.at, attempt.worker, attempt.error) == (clock.now(), strict.worker, "HTTP 500")


async def test_dead_letters_are_filtered_and_grouped(strict):
    """G2: list, filter, group by reason."""
    await deaths(strict, A + "1", A + "2", reason="HTTP 500")
    await deaths(strict, B + "1", reason="timeout")

    async def listed(**which):
        return [letter.url async for letter in strict.dead(**which)]

    assert await listed() == [A + "1", A + "2", B + "1"]
    assert await listed(reason="timeout") == [B + "1"]
    assert await listed(key="a.example") == [A + "1", A + "2"]
    assert await listed(type="nav") == []
    assert await strict.dead_by_reason() == {"HTTP 500": 2, "timeout": 1}


@pytest.mark.parametrize(
    ("which", "count"),
    [
        ({"url": A + "1"}, 1),
        ({"url": "HTTPS://A.EXAMPLE/1#x"}, 1),
        ({"url": A + "unknown"}, 0),
        ({"url": "nonsense"}, 0),
        ({"reason": "x"}, 2),
        ({"reason": "y"}, 1),
        ({"key": "a.example"}, 2),
        ({"type": "nav"}, 0),
        ({"all": True}, 3),
    ],
)
@pytest.mark.parametrize("verb", ["replay", "purge"])
async def test_dead_letters_are_replayed_or_purged(strict, verb, which, count):
    """G2: one, filter, all, with preview; B2: replayed they are pending, purged dropped."""
    await deaths(strict, A + "1", A + "2")
    await deaths(strict, B + "1", reason="y")
    act = getattr(strict, verb)

    assert await act(**which, dry_run=True) == count
    assert (await balanced(strict)).dead == 3
    assert await act(**which) == count
    stats = await balanced(strict)
    assert (stats.dead, stats.pending + stats.dropped) == (3 - count, count)
    assert (stats.pending if verb == "replay" else stats.dropped) == count


async def test_replayed_task_has_no_attempts(strict):
    """B2: attempts restart at 0."""
    await deaths(strict, A)

    await strict.replay(A)

    (lease,) = await strict.claim()
    assert (lease.url, lease.attempt) == (A, 1)


@pytest.mark.parametrize("verb", ["replay", "purge"])
async def test_replay_and_purge_of_all_must_be_explicit(strict, verb):
    """No filter is no wish, and all is all."""
    with pytest.raises(InvalidInput, match=verb):
        await getattr(strict, verb)()
    with pytest.raises(InvalidInput, match=verb):
        await getattr(strict, verb)(reason="x", all=True)


# ---- the crawl


async def test_paused_crawl_leases_no_tasks_until_resumed(frontier):
    """I1."""
    await frontier.add([A])

    assert await frontier.pause() == "paused"
    assert (await frontier.claim()).status == "paused"
    assert await frontier.resume() == "running"
    assert len(await frontier.claim()) == 1


async def test_a_paused_crawl_still_takes_finishes(frontier):
    """I1: it leases no tasks; leases may end."""
    await frontier.add([A])
    (lease,) = await frontier.claim()
    await frontier.pause()

    assert await frontier.finish(lease, Done(200), links=[A + "1"])
    assert (await frontier.stats()).pending == 1


async def test_tasks_of_a_cancelled_crawl_are_reported_as_dropped(frontier):
    """I3: one write; its leases are refused."""
    await frontier.add([A + "1", A + "2", B])
    lease, _ = await frontier.claim(2)
    await frontier.finish(lease, Done(200))
    (held,) = [task async for task in frontier.tasks(state="leased")]

    assert await frontier.cancel() == "cancelled"

    stats = await balanced(frontier)
    assert (stats.status, stats.done, stats.dropped) == ("cancelled", 1, 2)
    assert (stats.pending, stats.leased, stats.held) == (0, 0, 0)
    assert (await frontier.explain(held.url)).task.reason == "cancelled"
    assert (await frontier.claim()).status == "cancelled"


async def test_a_cancelled_crawls_leases_are_refused(frontier):
    """I3."""
    await frontier.add([A])
    (lease,) = await frontier.claim()
    await frontier.cancel()

    assert not await frontier.finish(lease, Done(200), links=[A + "1"])
    assert await frontier.extend([lease]) == set()
    assert await frontier.release([lease]) == set()


async def test_a_cancelled_crawl_stays_cancelled(frontier):
    """I1: an illegal move changes nothing and raises."""
    await frontier.cancel()

    assert await frontier.resume() == "cancelled"
    assert await frontier.pause() == "cancelled"


async def test_resuming_a_running_crawl_changes_nothing(frontier):
    """B2: an illegal move."""
    assert await frontier.resume() == "running"


# ---- configure


async def test_a_change_of_settings_acts_at_once(frontier):
    """E5, N1: on queues that are there and on those to come."""
    await frontier.add([A + "1", A + "2"])

    settings = await frontier.configure({"politeness": {"delay": 30.0}, "queue": {"max_depth": 2}})

    assert (settings.politeness.delay, frontier.settings.queue.max_depth) == (30.0, 2)
    await visit(frontier)
    assert (await frontier.claim()).wake_in == 30.0
    assert (await frontier.add([Link(B, depth=3)])).refused == {"max-depth": 1}


async def test_settings_that_are_not_named_stay(frontier):
    """N1: a change, not a replacement."""
    await frontier.configure({"politeness": {"min_delay": 2.0}})
    await frontier.configure({"politeness": {"max_delay": 9.0}})

    manners = frontier.settings.politeness
    assert (manners.min_delay, manners.max_delay, manners.factor) == (2.0, 9.0, 5.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"politness": {}}, "politeness"),
        ({"politeness": {"dlay": 1.0}}, r"politeness\.dlay"),
        ({"politeness": {"delay": "1"}}, r"politeness\.delay"),
        ({"politeness": {"delay": math.nan}}, r"politeness\.delay"),
        ({"politeness": {"max_delay": 5.0, "max_in_flight": 0}}, r"politeness\.max_in_flight"),
        ({"budget": {"cost": "free"}}, r"budget\.cost"),
        ({"budget": {"balance": 5}, "queue": {"key": "nothing"}}, r"queue\.key"),
        ({"scope": {"include": ["("]}}, r"scope\.include"),
        ({"scoring": {"scorer": "no_such_module:thing"}}, r"scoring\.scorer"),
        ({"queue": {"key": "no_such_module:thing"}}, r"queue\.key"),
        ({"keys": {"a.example": {"blance": 1}}}, "balance"),
        ("text", "table"),
    ],
)
async def test_an_invalid_change_changes_nothing(frontier, changes, named):
    """N2: validated whole, refused with its path."""
    await frontier.add([A])
    before = (frontier.settings, await frontier.queue("a.example").view())

    with pytest.raises(SettingsError, match=named):
        await frontier.configure(changes)

    assert (frontier.settings, await frontier.queue("a.example").view()) == before
    assert (await frontier.add([B])).added == 1


async def test_a_scope_may_be_narrowed_live(opened):
    """A5: to the seeds' hosts, which were added before."""
    frontier = await opened()
    await frontier.add([A])

    await frontier.configure({"scope": {"mode": "host"}})

    report = await frontier.add([Link(A + "1", depth=1), Link(B, depth=1)])
    assert [answer.reason for answer in report.answers] == [None, "off-scope"]


async def test_an_order_may_be_changed_live(opened):
    """C3: round-robin from now on."""
    frontier = await opened({"politeness": {"delay": 0.0}})
    await frontier.add([Link(A + str(n), priority=-5) for n in range(3)])
    await frontier.add([Link(B, priority=5)])

    await frontier.configure({"queue": {"order": "round-robin"}})

    assert [(await visit(frontier)).key[0] for _ in range(4)] == list("abaa")


async def test_a_closed_frontier_is_not_configured(clock):
    """The error has the fix."""
    frontier = Frontier.open(clock=clock)

    with pytest.raises(Closed):
        await frontier.configure({"politeness": {"delay": 1.0}})


# ---- seeing


async def test_stats_count_tasks_by_state_type_and_tag(opened):
    """I1, O5."""
    frontier = await opened(
        {"politeness": {"delay": 0.0, "max_in_flight": 9}, "retry": {"max_retries": 0}}
    )
    await frontier.add([Link(f"{A}{n}", tag="x" if n else None) for n in range(5)])
    leases = await frontier.claim(3)
    await frontier.finish(leases[0], Done(200, bytes=10))
    await frontier.finish(leases[1], Failed("x"))
    await frontier.drop(pattern="4$")

    stats = await balanced(frontier)

    assert (stats.known, stats.pending, stats.leased) == (5, 1, 1)
    assert (stats.done, stats.dead, stats.dropped) == (1, 1, 1)
    assert (stats.visits, stats.bytes, stats.held) == (2, 10, 0)
    assert stats.types == {"page": {"pending": 1, "leased": 1, "done": 1, "dead": 1, "dropped": 1}}
    assert stats.tags == {"x": {"pending": 1, "leased": 1, "dead": 1, "dropped": 1}}
    assert (stats.status, stats.crawl) == ("running", "default")


async def test_progress_is_the_share_that_is_settled(strict):
    """I1: done, dead or dropped."""
    assert (await strict.stats()).progress == 0.0
    await strict.add([A + "1", A + "2", A + "3", A + "4"])
    await visit(strict)
    await visit(strict, Failed("x"))
    await strict.drop(pattern="4$")

    assert (await strict.stats()).progress == 0.75


async def test_stats_count_queues_by_state(frontier):
    """C1: every state has a count."""
    hosts = ("ready", "paused", "retired", "snoozed", "busy", "empty")
    await frontier.add([f"https://{host}.example/" for host in hosts])
    await frontier.queue("paused.example").pause()
    await frontier.queue("retired.example").retire()
    await frontier.queue("snoozed.example").snooze(60)
    await frontier.drop(key="empty.example")
    await frontier.queue("busy.example").set(precedence=-1)
    await frontier.claim()

    queues = (await frontier.stats()).queues

    assert queues == {**dict.fromkeys(hosts, 1), "inactive": 0}


async def test_an_empty_crawl_has_stats(frontier):
    """All zero, running."""
    stats = await balanced(frontier)

    assert (stats.known, stats.status, sum(stats.queues.values())) == (0, "running", 0)
    assert (stats.refused, stats.runs, stats.finished_at) == ({}, 0, None)


async def test_why_lists_what_keeps_a_crawl_open(frontier):
    """I2: visits in flight, and queues with pending tasks, each with its state."""
    await frontier.add([A + "1", A + "2", B, "https://c.example/", "https://d.example/"])
    await frontier.queue("a.example").set(precedence=-1)
    await frontier.claim()
    await frontier.queue("b.example").snooze(60)
    await frontier.queue("c.example").retire()
    await frontier.queue("d.example").pause()

    reasons = {(reason.what, reason.key) for reason in await frontier.why()}

    assert reasons == {
        ("leased", ""),
        ("busy", "a.example"),
        ("snoozed", "b.example"),
        ("paused", "d.example"),
    }


async def test_why_is_short_if_asked(frontier):
    """At most so many."""
    await frontier.add([f"https://h{n}.example/" for n in range(50)])

    assert len(await frontier.why()) == 20
    assert len(await frontier.why(limit=3)) == 3


async def test_why_names_the_setting_that_keeps_a_crawl_open(opened):
    """I2: first; no longer once it is cancelled."""
    frontier = await opened({"crawl": {"stay_open": True}})

    (reason,) = await frontier.why()

    assert (reason.what, reason.key, reason.detail) == ("open", "", "kept open by crawl.stay_open")
    await frontier.cancel()
    assert await frontier.why() == []


async def test_nothing_keeps_an_empty_crawl_open(frontier):
    """I2."""
    assert await frontier.why() == []


async def test_a_heatmap_counts_what_is_pending(opened, clock):
    """O2: {total, cells: {origin: {article, hub, other}}, depth, updated_at}."""
    frontier = await opened({"politeness": {"delay": 0.0, "max_in_flight": 9}})
    await frontier.add(
        [
            Link(A + "1", type="article", origin="sitemap"),
            Link(A + "2", type="hub", origin="sitemap", depth=1),
            Link(A + "3", type="hub-seed", origin="sitemap", depth=2),
            Link(A + "4", type="nav", depth=3),
            Link(A + "5", depth=7),
            Link(A + "6", priority=-100),
        ]
    )
    await frontier.claim()

    heat = await frontier.heatmap()

    assert heat.total == 5
    assert heat.cells == {
        "sitemap": {"article": 1, "hub": 2, "other": 0},
        "opportunistic": {"article": 0, "hub": 1, "other": 1},
    }
    assert heat.depth == {"0": 1, "1": 1, "2": 1, "3+": 2, "unknown": 0}
    assert heat.updated_at == clock.now()
    assert heat.total == sum(sum(row.values()) for row in heat.cells.values())
    assert heat.total == sum(heat.depth.values())


async def test_heatmap_can_be_read_like_a_mapping(frontier):
    """O2: as it is on the wire."""
    await frontier.add([A])
    heat = await frontier.heatmap()

    assert heat["total"] == 1
    assert heat["cells"] == heat.cells
    assert heat["depth"]["0"] == 1
    assert heat["updated_at"] == heat.updated_at
    with pytest.raises(KeyError):
        heat["temperature"]


async def test_heatmap_becomes_a_dict_of_its_fields(frontier):
    """O2: as in JSON; its names are listed in that order."""
    heat = await frontier.heatmap()

    assert list(heat) == [*heat.keys()] == ["total", "cells", "depth", "updated_at"]
    assert dict(heat) == {**heat} == {name: heat[name] for name in heat}
    assert len(heat) == 4
    assert "total" in heat
    assert "nonsense" not in heat


# ---- explain


async def test_a_pending_url_is_explained(frontier, clock):
    """O4: identity, breakdown, queue state, place in line, expected time."""
    await frontier.add([Link(f"{A}{n}?b=2&a=1", depth=n) for n in range(4)])
    await visit(frontier)

    why = await frontier.explain(f"{A}2?a=1&b=2&utm_source=x#y")

    assert (why.admission, why.identity) == ("known", f"{A}2?a=1&b=2")
    assert (why.task.state, why.task.url) == ("pending", f"{A}2?b=2&a=1")
    assert why.breakdown.total == why.task.priority == 14.0
    assert (why.queue.key, why.queue.state, why.place) == ("a.example", "snoozed", 1)
    assert why.expected_in == 2.0
    assert why.fingerprint == why.task.fingerprint.hex()


@pytest.mark.parametrize("act", ["pause", "retire"])
async def test_no_visit_time_is_expected_in_a_paused_or_retired_queue(frontier, act):
    """O4: no time can be expected."""
    await frontier.add([A])
    await getattr(frontier.queue("a.example"), act)()

    assert (await frontier.explain(A)).expected_in is None


async def test_a_delayed_url_is_expected_when_due(frontier):
    """O4."""
    await frontier.add([Link(A, delay=25.0)])

    assert (await frontier.explain(A)).expected_in == 25.0


async def test_a_done_url_is_explained(rude):
    """B3: `explain` answers for every URL ever seen."""
    await rude.add([A])
    await visit(rude, Done(200, bytes=5, etag="e"))

    why = await rude.explain(A)

    assert (why.admission, why.task.state) == ("known", "done")
    assert (why.task.answer.status, why.task.answer.etag) == (200, "e")
    assert (why.place, why.expected_in) == (None, None)


@pytest.mark.parametrize(
    ("url", "reason", "named"),
    [
        ("nonsense", "bad-url", "nonsense"),
        ("ftp://a.example/", "scheme", "ftp"),
        ("http://127.0.0.1/", "private-address", "127.0.0.1"),
        (None, "bad-url", "NoneType"),
        ("https://a.example/\ud800", "bad-url", "surrogate"),
    ],
)
async def test_a_refused_url_is_explained_afresh(frontier, url, reason, named):
    """O4: admission runs again and gives the reason."""
    why = await frontier.explain(url)

    assert why.admission == reason
    assert named in why.detail
    assert (why.task, why.queue) == (None, None)


async def test_a_url_out_of_scope_is_explained(opened):
    """O4."""
    frontier = await opened({"scope": {"mode": "host"}})
    await frontier.add([A])

    assert (await frontier.explain(B)).admission == "off-scope"
    assert (await frontier.explain(A + "1")).admission == "admissible"


async def test_an_unknown_url_is_explained(frontier):
    """O4: it would be admitted, with this breakdown, into this queue."""
    why = await frontier.explain(A)

    assert (why.admission, why.task) == ("admissible", None)
    assert (why.breakdown.total, why.queue.key, why.queue.state) == (12.0, "a.example", "empty")
    assert (await frontier.stats()).known == 0


async def test_explaining_changes_nothing(opened):
    """It neither makes a seed, nor counts a refusal."""
    frontier = await opened({"scope": {"mode": "host"}})
    await frontier.explain(B)

    assert (await frontier.add([Link(B + "1", depth=1)])).refused == {"off-scope": 1}
    assert (await frontier.stats()).refused == {"off-scope": 1}


# ---- lists


async def listed(views):
    """The keys of queue views, by their first letter."""
    return "".join([view.key[0] async for view in views])


async def test_queues_are_listed_and_filtered(frontier):
    """E8: filterable by state."""
    await frontier.add([f"https://{host}.example/" for host in "cab"])
    await frontier.queue("a.example").retire()

    assert await listed(frontier.queues()) == "cab"
    assert await listed(frontier.queues(state="retired")) == "a"
    assert await listed(frontier.queues(state="ready")) == "cb"
    assert await listed(frontier.queues(state="busy")) == ""


async def test_queues_are_filtered_by_everything_given(rude):
    """E8: key, suffix, pattern, reason, spending, errors in a row; in any order."""
    hosts = ("a.example", "b.example", "c.other", "d.other")
    await rude.add([f"https://{host}/{n}" for host in hosts for n in range(3)])
    for lease in await rude.claim(8, per_queue=2):
        fails = lease.key[0] in "ac"
        await rude.finish(lease, Failed("x") if fails else Done(200))
    await rude.queue("b.example").set(total_budget=1)
    await rude.queue("c.other").retire()
    await rude.queue("d.other").snooze(60)

    assert await listed(rude.queues(key="b.example")) == "b"
    assert await listed(rude.queues(key="b.example", state="ready")) == ""
    assert await listed(rude.queues(key="unknown.example")) == ""
    assert await listed(rude.queues(key=".other", sort="key", reverse=True)) == "dc"
    assert await listed(rude.queues(key=".example", sort="key", prefix="b")) == "b"
    assert await listed(rude.queues(pattern=r"^[ad]\.")) == "ad"
    assert await listed(rude.queues(reason="budget")) == "b"
    assert await listed(rude.queues(reason="operator")) == "cd"
    assert await listed(rude.queues(reason="operator", state="retired")) == "c"
    assert await listed(rude.queues(min_spent=2, sort="spent")) == "abcd"
    assert await listed(rude.queues(min_spent=3)) == ""
    assert await listed(rude.queues(min_errors=2)) == "ac"
    assert await listed(rude.queues(min_errors=1, pattern="other")) == "c"
    assert await listed(rude.queues(key="d.other", sort="wakes_in")) == "d"


@pytest.mark.parametrize(
    ("filters", "error"),
    [
        ({"pattern": "("}, "pattern"),
        ({"pattern": "(?=x)"}, "looks ahead"),
        ({"reason": "because"}, "one of budget, quota"),
        ({"min_spent": -1}, "min_spent=-1"),
        ({"min_errors": 1.5}, "min_errors=1.5"),
        ({"state": "retied"}, "one of retired"),
    ],
)
async def test_invalid_filter_of_queues_is_refused(frontier, filters, error):
    """E8, N2: with what would be valid; nothing is read."""
    with pytest.raises(InvalidInput, match=error):
        await listed(frontier.queues(**filters))


async def test_filtered_queues_of_a_large_crawl_are_sorted(frontier, monkeypatch):
    """E8: only those that match count towards the maximum."""
    monkeypatch.setattr(reader, "MAX_SORTED", 10)
    await frontier.add([f"https://h{n}.example/{m}" for n in range(100) for m in range(1 + n % 3)])

    found = [view.key async for view in frontier.queues(sort="pending", pattern=r"^h\d\.")]

    assert len(found) == 10
    with pytest.raises(InvalidInput, match="sorts at most 10 queues"):
        await listed(frontier.queues(sort="pending", pattern="h1"))


async def test_queues_are_sorted(rude):
    """E8: by key, pending, spent, errors; either way."""
    for host, count in (("c", 1), ("a", 3), ("b", 5)):
        await rude.add([f"https://{host}.example/{n}" for n in range(count)])
    assert await listed(rude.queues(sort="key")) == "abc"
    assert await listed(rude.queues(sort="key", reverse=True)) == "cba"
    assert await listed(rude.queues(sort="pending")) == "cab"

    for host, count in (("a", 2), ("c", 1)):
        await rude.queue(f"{host}.example").set(precedence=-count)
        for lease in await rude.claim(count):
            await rude.finish(lease, Failed("x"))
        await rude.queue(f"{host}.example").pause()

    assert await listed(rude.queues(sort="spent")) == "bca"
    assert await listed(rude.queues(sort="errors", reverse=True)) == "acb"


async def test_queues_are_sorted_by_when_they_wake(frontier):
    """E8: those that wait for nothing but time."""
    await frontier.add([f"https://{host}.example/" for host in "abcde"])
    await frontier.queue("a.example").snooze(60)
    await frontier.queue("b.example").snooze(30)
    await frontier.queue("c.example").pause()
    await frontier.queue("e.example").snooze(90)

    assert await listed(frontier.queues(sort="wakes_in")) == "bae"
    assert await listed(frontier.queues(sort="wakes_in", reverse=True)) == "eab"


async def test_queues_in_order_are_read_as_far_as_they_are_asked_for(frontier):
    """E8: a page of a few, whatever the number of queues."""
    await frontier.add(f"https://h{n}.example/" for n in range(3000))
    frontier._context.store.queues = None

    first = [view.key async for view in first_of(frontier.queues(sort="key", prefix="h2"), 3)]
    every = [view.key async for view in frontier.queues(sort="key")]

    assert first == ["h2.example", "h20.example", "h200.example"]
    assert every == sorted(f"h{n}.example" for n in range(3000))


async def first_of(views, count):
    """Yield so many."""
    async for view in views:
        yield view
        count -= 1
        if not count:
            return


async def test_too_many_queues_are_not_sorted_but_sampled(frontier, monkeypatch):
    """E8: the message names what reads a part; each call continues where the last one stopped."""
    for name, value in (("MAX_EXAMINED", 2000), ("MAX_WORST", 50)):
        monkeypatch.setattr(queue_sampler, name, value)
    monkeypatch.setattr(reader, "MAX_SORTED", 4000)
    await frontier.add(f"https://h{n}.example/{m}" for n in range(4500) for m in range(1 + n % 3))
    await frontier.add(f"https://h4499.example/more/{n}" for n in range(9))
    for sort, reverse in (("pending", False), ("key", True)):
        with pytest.raises(InvalidInput, match="sorts at most 4,000 queues"):
            await listed(frontier.queues(sort=sort, reverse=reverse))

    samples = []
    for _ in range(4):
        samples.append(await frontier.worst_queues("pending", 2))
        frontier._context.clock.advance(10.0)

    assert [(s.examined, s.known) for s in samples] == [
        *((2000, 4500), (4000, 4500)),
        *((4500, 4500), (4500, 4500)),
    ]
    assert [[view.key for view in s.items] for s in samples[1:3]] == [
        ["h1001.example", "h1004.example"],
        ["h4499.example", "h1001.example"],
    ]
    assert [s.age for s in samples] == [0.0, 10.0, 20.0, 10.0]


async def test_sample_forgets_what_has_become_better(frontier):
    """E8: a queue is as it was when it was read last."""
    await frontier.add(f"https://{host}.example/{n}" for host in "ab" for n in range(3))
    before = await frontier.worst_queues("pending")
    await frontier.drop(key="a.example")
    after = await frontier.worst_queues("pending")

    assert [view.key[0] for view in before.items] == ["a", "b"]
    assert [view.key[0] for view in after.items] == ["b"]
    assert (after.examined, after.known, after.age) == (2, 2, 0.0)


@pytest.mark.parametrize(
    ("by", "limit", "wrong"),
    [("key", 20, "one of"), ("spent", 0, "limit"), ("spent", 1001, "limit")],
)
async def test_unknown_sample_is_refused(frontier, by, limit, wrong):
    """The caller's fault: the answer names what there is."""
    with pytest.raises(InvalidInput, match=wrong):
        await frontier.worst_queues(by, limit)


async def test_sorting_and_filtering_go_together(frontier):
    """E8."""
    await frontier.add([f"https://{host}.example/" for host in "cab"])
    await frontier.queue("a.example").retire()

    assert await listed(frontier.queues(state="ready", sort="key")) == "bc"


@pytest.mark.parametrize("asked", [{"state": "asleep"}, {"sort": "colour"}])
async def test_an_unknown_state_or_order_is_refused(frontier, asked):
    """The caller's fault: the answer names what there is."""
    with pytest.raises(InvalidInput, match="one of"):
        [view async for view in frontier.queues(**asked)]


async def test_thousands_of_queues_are_listed_page_by_page(frontier):
    """E8: paged; none twice, none left out."""
    await frontier.add([f"https://h{n:04}.example/" for n in range(2500)])

    keys = [view.key async for view in frontier.queues()]

    assert keys == [f"h{n:04}.example" for n in range(2500)]


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ({}, ["a/1", "a/2", "b/1", "b/pdf/1"]),
        ({"key": "b.example"}, ["b/1", "b/pdf/1"]),
        ({"key": ".example", "state": "leased"}, ["a/1"]),
        ({"state": "pending"}, ["a/2", "b/1", "b/pdf/1"]),
        ({"state": "done"}, []),
        ({"type": "nav"}, ["a/1", "b/1"]),
        ({"tag": "x"}, ["a/1", "a/2"]),
        ({"pattern": "pdf"}, ["b/pdf/1"]),
    ],
)
async def test_tasks_are_listed_and_filtered(frontier, which, expected):
    """In order of their discovery."""
    await pages(frontier)
    await frontier.queue("a.example").set(precedence=-1)
    await frontier.claim()

    found = [task.url async for task in frontier.tasks(**which)]

    assert [url.removeprefix("https://").replace(".example", "") for url in found] == expected


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ({}, ["b/1", "b/pdf/1"]),
        ({"state": "pending"}, ["b/1", "b/pdf/1"]),
        ({"state": "leased"}, []),
        ({"type": "nav"}, ["b/1"]),
        ({"tag": "x"}, []),
        ({"pattern": "pdf"}, ["b/pdf/1"]),
        ({"reason": "robots"}, []),
    ],
)
async def test_tasks_of_one_queue_are_listed_without_the_others(frontier, which, expected):
    """E8: with every filter, and without reading tasks of other queues."""
    await pages(frontier)
    frontier._context.store.tasks = None

    found = [task.url async for task in frontier.tasks(key="b.example", **which)]

    assert [url.removeprefix("https://").replace(".example", "") for url in found] == expected


async def test_an_unknown_task_state_is_refused(frontier):
    """The caller's fault."""
    with pytest.raises(InvalidInput, match="one of"):
        [task async for task in frontier.tasks(state="retrying")]


async def test_a_reader_may_leave_a_list_early(frontier):
    """Nothing is left open."""
    await frontier.add(f"{A}{n}" for n in range(2500))

    async for task in frontier.tasks():
        assert task.url == A + "0"
        break


@pytest.mark.parametrize(
    "call",
    [
        lambda frontier: frontier.add(None),
        lambda frontier: frontier.expire(limit="x"),
        lambda frontier: frontier.drop(older_than="x"),
        lambda frontier: frontier.configure({"events": {"jsonl": "/nowhere/at/all.jsonl"}}),
    ],
)
async def test_invalid_filter_is_refused_by_name(opened, call):
    """The caller's fault: a clear error, and nothing changed."""
    frontier = await opened()

    with pytest.raises(InvalidInput):
        await call(frontier)

    assert (await frontier.stats()).known == 0


async def test_events_move_to_another_file_live(opened, tmp_path):
    """N1: a path that changes holds from then on."""
    first, second = tmp_path / "first", tmp_path / "second"
    frontier = await opened({"events": {"jsonl": str(first)}})
    await frontier.add([A])

    await frontier.configure({"events": {"jsonl": str(second)}})
    await frontier.add([B])

    assert A in first.read_text()
    assert B not in first.read_text()
    assert B in second.read_text()


async def test_forgotten_tasks_are_admitted_again(frontier):
    """C10: by URL, by filter, and only counted by a dry run."""
    await frontier.add([(A + "1"), "https://a.example/2", "https://b.example/"])

    assert await frontier.forget((A + "1"), dry_run=True) == 1
    assert await frontier.forget(A + "1") == 1
    assert await frontier.forget(key="b.example", state="pending") == 1

    report = await frontier.add([(A + "1"), "https://a.example/2", "https://b.example/"])
    assert (report.added, report.refused) == (2, {"duplicate": 1})


async def test_forgetting_everything_is_asked_for(frontier):
    """C10: a call without a filter is refused, and so is a state that does not exist."""
    await frontier.add(A + "1")

    with pytest.raises(InvalidInput, match="pattern=''"):
        await frontier.forget()
    with pytest.raises(InvalidInput, match="state = 'gone'"):
        await frontier.forget(state="gone")
    assert await frontier.forget(pattern="") == 1


async def test_identity_is_forgotten_by_its_text(frontier):
    """B3, C10: as a URL is."""
    link = Link("", identity="item 1", done=True)
    await frontier.add([link])

    assert await frontier.forget("item 1") == 1
    assert (await frontier.add([link])).added == 1


async def test_task_is_forgotten_and_replayed_by_what_its_link_is_known_by(opened):
    """A3, B3, C10, G2: by its own fingerprint, with a URL or without, and by its identity."""
    frontier = await opened(settings={"retry": {"max_retries": 0}})
    imported = Link("", fingerprint=b"0123456789abcdef", done=True)
    other = Link(A, identity="item 2")
    await frontier.add([imported, other])

    assert await frontier.forget(imported) == 1
    assert (await frontier.add([imported])).added == 1
    (lease,) = await frontier.claim()
    await frontier.finish(lease, Failed("gone"))
    assert await frontier.replay(A) == 0
    assert await frontier.replay(other, dry_run=True) == 1
    assert await frontier.purge(other) == 1
    assert await frontier.forget(other) == 1


async def test_crawl_is_deleted_through_its_frontier(frontier):
    """I1: the number of its tasks is returned, and nothing is left."""
    await frontier.add([(A + "1"), "https://a.example/2"])

    assert await frontier.delete_crawl() == 2
    assert (await frontier.stats()).known == 0


class TestGroups:
    """Counts by type and tag."""

    async def test_largest_types_and_tags_have_counts_of_their_own(self, store, clock, monkeypatch):
        """I1: whatever is left out is summed, so that the sums of a crawl stay right."""
        monkeypatch.setattr(reports, "MAX_GROUPS", 2)
        async with Frontier.open(store, clock=clock) as frontier:
            links = [
                Link(f"https://{n}.example/", tag=tag, type=f"type-{tag}")
                for n, tag in enumerate("aabcccdd")
            ]
            await frontier.add([*links, "https://plain.example/"])
            (lease,) = await frontier.claim()
            await frontier.finish(lease, Done(200))

            stats = await frontier.stats()
            view = await store.crawl("default")

        assert set(stats.tags) == {"a", "c"}
        assert (stats.tag_count, stats.type_count) == (4, 5)
        for kept, others, every in (
            (stats.tags, stats.other_tags, view.tags),
            (stats.types, stats.other_types, view.types),
        ):
            whole, shown = Counter(), Counter(others)
            for counts in every.values():
                whole.update(counts)
            for counts in kept.values():
                shown.update(counts)
            assert shown == whole

    async def test_few_types_and_tags_leave_none_out(self, store, clock):
        """I1: which is the usual case."""
        async with Frontier.open(store, clock=clock) as frontier:
            await frontier.add([Link("https://a.example/", tag="t")])
            stats = await frontier.stats()

        assert (stats.tags, stats.other_tags) == ({"t": {"pending": 1}}, {})
        assert (stats.types, stats.other_types) == ({"page": {"pending": 1}}, {})
