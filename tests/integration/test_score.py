"""Links scored on every store as adding them would score them, with nothing stored (F9)."""

import pytest

from outrider import Done, Frontier, Link

A = "https://a.example/"
SETTINGS = {"scope": {"mode": "host"}, "budget": {"cost": "wag"}, "scoring": {"cost_aware": True}}
LINKS = [
    A,
    Link(A + "1?q=1", depth=1, type="article", origin="sitemap"),
    Link(A + "2", depth=1, meta={"knowledgeReuse": 0.25, "estimatedCostMs": 900}),
    Link("https://b.example/", depth=1),
    Link(A + "3", depth=1, forced=True, priority="low"),
    "nonsense",
]


@pytest.fixture(params=["memory", "file", "postgres", "redis", "cluster"])
def place(request, places, tmp_path):
    """An empty store of each kind."""
    local = {"memory": "memory://", "file": str(tmp_path / "x.outrider")}
    return local.get(request.param) or places.take(request.param)


def seen(answers):
    """What both answers tell."""
    return [(one.url, one.reason, one.priority) for one in answers]


async def test_attached_frontier_scores_as_the_owner_adds(place):
    """F4, F5, F9: the crawl's settings, seeds, signals and known URLs; on a second frontier."""
    async with Frontier.open(place, settings=SETTINGS) as owner:
        await owner.add([A + "seed"])
        (lease,) = await owner.claim(1)
        await owner.finish(lease, Done(200))
        await owner.predict(A + "1?q=1", 0.9, 0.1)
        for _ in range(4):
            await owner.report_problem("coverage-gap", "a.example", A + "2")
        async with Frontier.attach(owner.store) as reader:
            before = await reader.stats()
            scored = await reader.score([*LINKS, A + "seed"], known=True)
            after = await reader.stats()
        report = await owner.add(LINKS)

        assert before == after
        assert scored.refused == {"off-scope": 1, "bad-url": 1}
        assert seen(scored.answers[:-1]) == seen(report.answers)
        assert [one.known for one in scored.answers] == [None] * 6 + ["done"]
        terms = [dict(one.breakdown.terms) for one in scored.answers[1:3]]
        assert {"gap", "discovery"} <= terms[0].keys()
        assert {"cluster", "reuse", "cost"} <= terms[1].keys()
        for one in scored.answers[:3]:
            task = (await owner.explain(one.url)).task
            assert (task.precedence, task.lane, task.type, task.key, task.breakdown) == (
                *(one.precedence, one.lane, one.type, one.key, one.breakdown),
            )
