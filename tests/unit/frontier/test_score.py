"""`score`: what adding links would make of them, without a trace (F9)."""

import asyncio
import math

import pytest

from outrider import Again, Closed, Done, Frontier, InvalidInput, Link
from outrider.store.memory import MemoryStore

A = "https://a.example/"
B = "https://b.example/"

LINKS = [
    A,
    Link(A + "1", type="nav", depth=2, origin="sitemap"),
    Link(A + "2", priority="high"),
    Link(A + "3", priority=-5, forced=True),
    Link(A + "4", base_priority=7.0, bias=-0.5),
    Link(A + "5?x=1", via=A + "5", type="article"),
    Link(A + "6", key="own key", delay=60.0, tag="t"),
    Link(A + "7", meta={"knowledge_reuse": 0.5, "estimated_cost_ms": 20}),
    Link(A + "deep", depth=11),
    Link(A + "8", priority=float("nan")),
    "ftp://a.example/",
    "https://c.example/",
    Link(B, depth=1, type="history"),
]


@pytest.fixture
def settings():
    """Settings that use every policy: costs, a scope that seeds bind, focus, cost-aware scores."""
    return {
        "budget": {"cost": "wag"},
        "scoring": {"cost_aware": True, "weights": {"history": 3.0}},
        "scope": {"mode": "host"},
        "queue": {"tie": "shuffle"},
        "keys": {"b.example": {"budget": {"cost": "zero"}}},
    }


async def task_values(frontier, answer):
    """What the store knows of an added link, as a score tells it."""
    task = (await frontier.explain(answer.url)).task
    names = "url priority breakdown precedence cost lane type key depth origin fingerprint"
    return tuple(getattr(task, name) for name in names.split())


def scored_values(answer):
    """The same of a score."""
    names = "url priority breakdown precedence cost lane type key depth origin fingerprint"
    return tuple(getattr(answer, name) for name in names.split())


@pytest.mark.parametrize("scorer", ["default", "fifo", "opic", "learning", "breadth-first"])
async def test_scores_equal_what_add_then_stores(opened, settings, scorer):
    """F9: priority, terms, precedence, lane, type and key; refusals by reason, in order."""
    settings["scoring"]["scorer"] = scorer
    frontier = await opened(settings)
    await frontier.predict(A, 0.5, 0.5)
    for _ in range(4):
        await frontier.report_problem("missing-hub", "a.example", "a.example")

    scored = await frontier.score(LINKS)
    report = await frontier.add(LINKS)

    assert [one.reason for one in scored.answers] == [one.reason for one in report.answers]
    assert [one.detail for one in scored.answers] == [one.detail for one in report.answers]
    assert [one.priority for one in scored.answers] == [one.priority for one in report.answers]
    assert (
        scored.refused
        == report.refused
        == {
            "bad-link": 1,
            "max-depth": 1,
            "off-scope": 1,
            "scheme": 1,
        }
    )
    added = [pair for pair in zip(scored.answers, report.answers, strict=True) if pair[1].added]
    assert len(added) == 9
    for one, answer in added:
        assert scored_values(one) == await task_values(frontier, answer)


async def test_score_reports_the_statistics_of_the_batch(frontier):
    """F9: count, time and features, as add does; explicit priorities are not scored."""
    scored = await frontier.score([f"{A}{n}" for n in range(2500)] + [Link(B, priority=1.0)])
    added = await frontier.add([B + "1"])

    assert len(scored.answers) == 2501
    assert scored.scoring.count == 2500
    assert 0 < scored.scoring.mean < 1
    assert scored.scoring.features == added.scoring.features


async def test_score_leaves_no_trace(opened, watched, clock):
    """F9: no task, root, refusal, bypass or event, and no write of the store."""
    settings = {"scope": {"mode": "host"}, "queue": {"bypass_depth": lambda link: True}}
    frontier = await opened(settings, store=watched)
    events = []
    frontier.subscribe(events.append)
    watched.calls.clear()

    scored = await frontier.score([A, Link(A + "deep", depth=50), "nonsense"], known=True)

    assert [one.reason for one in scored.answers] == [None, None, "bad-url"]
    assert set(watched.calls) == {"roots", "task"}
    stats = await frontier.stats()
    assert (stats.known, stats.bypassed, dict(stats.refused), events) == (0, 0, {}, [])
    elsewhere = await frontier.score([Link(A, depth=1)])  # A is no seed yet
    assert elsewhere.answers[0].reason == "off-scope"


async def test_seeds_of_the_batch_admit_what_follows_as_in_add(opened):
    """A5: also over the chunks of a long batch."""
    frontier = await opened({"scope": {"mode": "host"}})
    links = [Link(A, depth=1), A, *[Link(f"{A}{n}", depth=1) for n in range(1500)]]

    scored = await frontier.score(links)
    report = await frontier.add(links)

    assert scored.refused == report.refused == {"off-scope": 1}


async def test_seeds_of_other_workers_are_in_scope(opened, store):
    """A5: an attached frontier reads them before it scores."""
    first = await opened({"scope": {"mode": "host"}}, store=store)
    async with Frontier.attach(store) as second:
        await first.add([A])
        scored = await second.score([Link(A + "1", depth=1), Link(B, depth=1)])

    assert [one.reason for one in scored.answers] == [None, "off-scope"]


async def test_known_urls_are_told_if_asked(frontier):
    """B3: with their state; otherwise nothing is read."""
    await frontier.add([A, A + "1"])
    (lease,) = await frontier.claim(1)
    await frontier.finish(lease, Done(200))

    told = await frontier.score([A, A + "1", B, "nonsense"], known=True)
    silent = await frontier.score([A])

    assert [one.known for one in told.answers] == ["done", "pending", None, None]
    assert [one.known for one in silent.answers] == [None]


async def test_links_about_known_urls_are_scored_as_add_would_complete_them(frontier):
    """B3: what such a link leaves out is the task's."""
    await frontier.add([Link(A, type="article", depth=3)])

    (one,) = (await frontier.score([Link(A, known="raise", bias=-1.0)])).answers

    assert (one.type, one.depth, one.priority) == ("article", 3, 2.0)


async def test_score_takes_what_add_takes(frontier):
    """R4: one URL, one link, any iterable or async iterable; nothing else."""

    async def stream():
        for n in range(3):
            await asyncio.sleep(0)
            yield f"{A}{n}"

    assert len((await frontier.score(A)).answers) == 1
    assert len((await frontier.score(Link(A))).answers) == 1
    assert len((await frontier.score(iter([A, B]))).answers) == 2
    assert [one.url for one in (await frontier.score(stream())).answers] == [
        A + "0",
        A + "1",
        A + "2",
    ]
    with pytest.raises(InvalidInput, match=r"score\(5\)"):
        await frontier.score(5)


async def test_score_of_a_closed_frontier_is_refused(clock):
    """R4: as every call."""
    frontier = Frontier.open(MemoryStore(clock), clock=clock)
    with pytest.raises(Closed):
        await frontier.score([A])


async def test_attached_process_without_the_functions_of_the_crawl_is_refused(store, opened):
    """J1: code that a store names is never imported, so its score is unknown here."""
    await opened({"budget": {"cost": lambda _url, _via: 1}}, store=store)
    async with Frontier.attach(store) as second:
        with pytest.raises(InvalidInput, match=r"budget\.cost was .*pass it"):
            await second.score([A])


# ---- other crawlers' names in meta


async def test_other_names_in_meta_are_understood(opened):
    """F3, F6, F7: as origin, knowledge_reuse and estimated_cost_ms; kept under these names."""
    frontier = await opened({"scoring": {"cost_aware": True}})
    theirs = {"discoveryMethod": "sitemap", "knowledgeReuse": 0.5, "estimatedCostMs": 20, "own": 1}
    ours = {"knowledge_reuse": 0.5, "estimated_cost_ms": 20, "own": 1}

    given, plain = (
        await frontier.score([Link(A, meta=theirs), Link(A, origin="sitemap", meta=ours)])
    ).answers
    await frontier.add([Link(A, meta=theirs)])
    task = (await frontier.explain(A)).task

    assert given == plain
    assert given.origin == "sitemap"
    assert given.priority == pytest.approx((12 - 10 - 4) * 1.1)
    assert (task.origin, dict(task.meta), task.priority) == ("sitemap", ours, given.priority)


@pytest.mark.parametrize(
    ("link", "names"),
    [
        (
            Link(A, origin="feed", meta={"discoveryMethod": "sitemap"}),
            ("origin", "discoveryMethod"),
        ),
        (
            Link(A, meta={"knowledgeReuse": 1, "knowledge_reuse": 0}),
            ("knowledge_reuse", "knowledgeReuse"),
        ),
        (
            Link(A, meta={"estimatedCostMs": 1, "estimated_cost_ms": 2}),
            ("estimated_cost_ms", "estimatedCostMs"),
        ),
        (Link(A, meta={"discoveryMethod": 5}), ("discoveryMethod",)),
        (Link(A, meta={"discoveryMethod": "x" * 256}), ("discoveryMethod",)),
    ],
)
async def test_contradicting_names_in_meta_are_refused(frontier, link, names):
    """F3, F6, F7: a link that says two things is a bad link, and the answer names both."""
    (answer,) = (await frontier.add([link])).answers

    assert answer.reason == "bad-link"
    assert all(name in answer.detail for name in names)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        *(
            ("knowledgeReuse", value, "must be a number from 0 to 1")
            for value in ("x", "0.5", True, 1.5, -0.1, 10**400, math.nan, math.inf, [0.5], {})
        ),
        *(
            ("estimatedCostMs", value, "must be milliseconds, a number from 0 on")
            for value in ("fast", -5, False, math.nan, [20])
        ),
    ],
)
async def test_values_that_cannot_be_used_are_refused(frontier, name, value, wanted):
    """F6, F7: another crawler's name means what it means, so a value without effect is an error."""
    (answer,) = (await frontier.add([Link(A, meta={name: value})])).answers

    assert answer.reason == "bad-link"
    assert answer.detail.startswith(f"meta.{name} = ")
    assert answer.detail.endswith(wanted)

    await frontier.add([A])
    (lease,) = await frontier.claim()
    with pytest.raises(InvalidInput, match=f"Again: meta.{name} = "):
        await frontier.finish(lease, Again(meta={name: value}))


async def test_own_names_in_meta_may_have_any_value(frontier):
    """F6, F7: meta is the user's; under these names a value that is no number says nothing."""
    metas = [{"knowledge_reuse": "mine"}, {"knowledge_reuse": 1.5}, {"estimated_cost_ms": "fast"}]
    links = [Link(f"{A}{n}", meta=meta) for n, meta in enumerate([{}, *metas])]
    report = await frontier.add(links)

    none, text, over, cost = [answer.priority for answer in report.answers]
    assert (text, cost) == (none, none)
    assert over == none - 8.0


@pytest.mark.parametrize(
    "meta",
    [
        {"knowledgeReuse": 0},
        {"knowledgeReuse": 1, "estimatedCostMs": 0},
        {"knowledgeReuse": None, "estimatedCostMs": None},
        {"estimatedCostMs": 10**30},
    ],
)
async def test_usable_values_are_admitted_to_their_bounds(frontier, meta):
    """F6, F7: null says nothing."""
    assert (await frontier.add([Link(A, meta=meta)])).added == 1


async def test_same_value_under_both_names_is_fine(frontier):
    """F3, F6, F7: nothing contradicts; null says nothing."""
    links = [
        Link(A, origin="sitemap", meta={"discoveryMethod": "sitemap"}),
        Link(B, origin="feed", meta={"discoveryMethod": None}),
        Link(A + "1", meta={"knowledgeReuse": 0.5, "knowledge_reuse": 0.5}),
    ]
    report = await frontier.add(links)

    assert report.added == 3
    assert [(await frontier.explain(link.url)).task.origin for link in links] == [
        "sitemap",
        "feed",
        "opportunistic",
    ]


async def test_method_of_discovery_in_meta_replaces_the_origin_of_a_raised_task(frontier):
    """B3, F3: what a link says in meta is said by the link, not left out."""
    await frontier.add([Link(A, origin="feed")])
    report = await frontier.add([Link(A, known="raise", meta={"discoveryMethod": "sitemap"})])
    task = (await frontier.explain(A)).task

    assert (report.answers[0].reason, report.answers[0].added) == ("duplicate", False)
    assert task.priority == 2.0
