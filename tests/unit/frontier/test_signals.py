"""Predictions and problems: durable, shared by all workers, acting at once (F4, F5)."""

import pytest

from outrider import Done, Failed, Frontier, Link
from outrider.errors import InvalidInput
from outrider.frontier import signals
from outrider.store.protocol import SharedValueWrite

FAST = {"politeness": {"delay": 0.0}}
A = "https://a.example/"


def on(store, clock, **settings):
    """A frontier on it."""
    return Frontier.open(store, clock=clock, settings={**FAST, **settings})


async def priority(frontier, url):
    """Of a known URL."""
    return (await frontier.explain(url)).task.priority


async def terms(frontier, url):
    """Why."""
    return dict((await frontier.explain(url)).task.breakdown.terms)


async def states(frontier):
    """What came of predictions."""
    return {one.url: one.state async for one in frontier.predictions()}


class TestPredictions:
    """F4."""

    async def test_prediction_changes_a_pending_priority_at_once(self, store, clock):
        """C8: what a signal touches."""
        async with on(store, clock) as frontier:
            await frontier.add([A + "1", A + "2"])

            assert await frontier.predict(A + "2", 0.8, 0.5)
            assert await priority(frontier, A + "2") == 12 - 10.5
            assert [lease.url for lease in await frontier.claim()] == [A + "2"]

    async def test_prediction_counts_for_later_links(self, store, clock):
        """F4: whatever way its URL is written."""
        async with on(store, clock) as frontier:
            assert not await frontier.predict(A + "x?b=2&a=1", 0.5, 0.0)
            await frontier.add([A + "x?a=1&b=2&utm_source=mail"])

            assert await priority(frontier, A + "x?a=1&b=2") == 12 - 5

    async def test_other_worker_applies_a_prediction(self, store, clock):
        """F4: shared by all workers of a crawl."""
        async with on(store, clock) as one, on(store, clock) as other:
            await one.predict(A, 0.8, 0.5)
            clock.advance(5)
            await other.add([A])

            assert await priority(other, A) == 12 - 10.5

    async def test_predictions_outlive_the_process(self, tmp_path, clock):
        """F4: durable."""
        path = str(tmp_path / "crawl.outrider")
        async with on(path, clock) as frontier:
            await frontier.predict(A, 0.8, 0.5)
            await frontier.report_problem("missing-hub", "", "b.example")
            await frontier.report_problem("missing-hub", "", "b.example")
        async with on(path, clock) as frontier:
            await frontier.add([A, "https://b.example/"])

            assert await priority(frontier, A) == 12 - 10.5
            assert await priority(frontier, "https://b.example/") == 12 - 2.5

    @pytest.mark.parametrize(
        ("outcome", "state"),
        [
            (Done(status=200), "validated"),
            (Done(status=404), "failed"),
            (Failed("HTTP 500"), "open"),
        ],
    )
    async def test_visit_validates_a_prediction(self, store, clock, outcome, state):
        """F4: one that will be visited again stays open."""
        async with on(store, clock) as frontier:
            await frontier.add([A])
            await frontier.predict(A, 0.8, 0.5)
            (lease,) = await frontier.claim()
            await frontier.finish(lease, outcome)

            assert await states(frontier) == {A: state}

    async def test_dead_task_fails_its_prediction(self, store, clock):
        """F4."""
        async with on(store, clock, retry={"max_retries": 0}) as frontier:
            await frontier.add([A])
            await frontier.predict(A, 0.8, 0.5)
            (lease,) = await frontier.claim()
            await frontier.finish_many([(lease, Failed("HTTP 500"))])

            assert await states(frontier) == {A: "failed"}

    async def test_many_at_once(self, store, clock):
        """Batch-first; what waits moves in the background."""
        async with on(store, clock) as frontier:
            await frontier.add([A + str(n) for n in range(1200)])
            assert await frontier.predict_many((A + str(n), 0.8, 0.5) for n in range(1200)) == 0
        async with on(store, clock) as frontier:
            assert {task.priority async for task in frontier.tasks()} == {12 - 10.5}

    @pytest.mark.parametrize(
        ("guess", "fault"),
        [
            (("nonsense", 0.5, 0.5), "nonsense"),
            ((A, 1.5, 0.5), "confidence=1.5"),
            ((A, 0.5, -1), "lift=-1"),
            ((A, "much", 0.5), "confidence='much'"),
        ],
    )
    async def test_a_bad_guess_is_refused(self, store, clock, guess, fault):
        """Nothing of its batch is kept."""
        async with on(store, clock) as frontier:
            with pytest.raises(InvalidInput, match=fault):
                await frontier.predict_many([(A, 0.5, 0.5), guess])

            assert await states(frontier) == {}


class TestProblems:
    """F5."""

    async def test_problems_boost_their_host_at_once(self, store, clock):
        """C8, F5: the more, the sooner."""
        async with on(store, clock) as frontier:
            await frontier.add([A, "https://b.example/"])
            for _ in range(4):
                cluster = await frontier.report_problem("missing-hub", "", "b.example")

            assert cluster.count == 4
            assert await terms(frontier, "https://b.example/") == {
                "type": 12.0,
                "depth": 0.0,
                "cluster": -5.0,
            }
            assert [lease.key for lease in await frontier.claim()] == ["b.example"]

    async def test_a_path_is_boosted_in_the_background(self, store, clock):
        """F5: wherever it is."""
        async with on(store, clock) as frontier:
            await frontier.add([A + "news/1", "https://b.example/en/news/2", A + "sport"])
            await frontier.report_problem("coverage-gap", "", "/news")
            await frontier.report_problem("coverage-gap", "", "/news")
        async with on(store, clock) as frontier:
            found = {task.url: task.priority async for task in frontier.tasks()}
            assert found == {
                A + "news/1": 9.5,
                "https://b.example/en/news/2": 9.5,
                A + "sport": 12.0,
            }

    async def test_workers_count_problems_together(self, store, clock):
        """F5: nothing is counted twice, nothing is lost."""
        async with on(store, clock) as one, on(store, clock) as other:
            for _ in range(5):
                await one.report_problem("slow", "a.example", "/x")
                await other.report_problem("slow", "a.example", "/x")

            assert [problem.count for problem in await one.problems()] == [10]

    async def test_old_problems_expire(self, store, clock):
        """F5: after thirty minutes, and what waits waits again."""
        async with on(store, clock) as frontier:
            await frontier.add([A])
            for _ in range(4):
                await frontier.report_problem("missing-hub", "", "a.example")
            assert await priority(frontier, A) == 7.0
            clock.advance(1801)
            await frontier.add([A + "new"])

            assert await priority(frontier, A + "new") == 12.0
            assert await frontier.problems() == []
        async with on(store, clock) as frontier:
            assert await priority(frontier, A) == 12.0

    async def test_from_the_fifth_on_urls_are_proposed(self, store, clock):
        """F5: as predictions."""
        async with on(store, clock) as frontier:
            for _ in range(4):
                await frontier.report_problem("missing-hub", "a.example", "/world")
            assert await states(frontier) == {}
            await frontier.report_problem("missing-hub", "a.example", "/world")

            (guess,) = [one async for one in frontier.predictions()]
            assert (guess.url, guess.lift) == ("https://a.example/world/", 0.10)
            assert guess.confidence == pytest.approx(0.52)
            assert (await frontier.stats()).known == 0

            await frontier.report_problem("missing-hub", "a.example", "/world")
            (guess,) = [one async for one in frontier.predictions()]
            assert guess.confidence == pytest.approx(0.544)

    async def test_proposals_become_tasks_with_the_setting(self, store, clock):
        """F5."""
        async with on(store, clock, scoring={"proposals": True}) as frontier:
            for _ in range(5):
                await frontier.report_problem("missing-hub", "a.example", "/world")

            (task,) = [task async for task in frontier.tasks()]
            assert (task.url, task.type, task.origin) == (
                "https://a.example/world/",
                "hub",
                "gap-prediction",
            )
            (lease,) = await frontier.claim()
            await frontier.finish(lease, Done(status=200))
            assert await states(frontier) == {"https://a.example/world/": "validated"}

    @pytest.mark.parametrize(
        ("kind", "scope", "target"),
        [("", "", "x"), ("k", "", ""), ("k", "", "a\nb"), ("k", "", "x" * 600), (5, "", "x")],
    )
    async def test_a_bad_report_is_refused(self, store, clock, kind, scope, target):
        """With its field and the fix."""
        async with on(store, clock) as frontier:
            with pytest.raises(InvalidInput, match="printable text"):
                await frontier.report_problem(kind, scope, target)

            assert await frontier.problems() == []

    async def test_invalid_shared_values_are_ignored(self, store, clock):
        """Untrusted: a store may be written by others."""
        bad = [
            SharedValueWrite("prediction", "not hex", "{}"),
            SharedValueWrite("prediction", "ab" * 16, '{"url": 5}'),
            SharedValueWrite(
                "cluster", "x", '{"kind": "k", "scope": "", "target": "t", "samples": [["a", 1]]}'
            ),
            SharedValueWrite("cluster", "y", "nonsense"),
            SharedValueWrite("reward", "z", "[]"),
            SharedValueWrite("rescore", "all", "5"),
        ]
        async with on(store, clock) as frontier:
            await store.put_values("default", bad)
            await frontier.learn()
            await frontier.add([Link(A, depth=1)])

            assert await priority(frontier, A) == 13.0
            assert await frontier.problems() == []

    async def test_expired_problem_may_be_reported_again(self, store, clock, monkeypatch):
        """F5: by the worker that removed it, and by those that learnt of it."""
        monkeypatch.setattr(signals, "MAX_CLUSTERS", 2)
        async with on(store, clock) as one, on(store, clock) as other:
            for target in ("a.example", "b.example", "c.example"):
                await one.report_problem("missing-hub", "", target)
                clock.advance(1)
            assert {each.target for each in await other.problems()} == {"b.example", "c.example"}

            assert (await other.report_problem("missing-hub", "", "a.example")).count == 1
            await one.learn()
            assert (await one.report_problem("missing-hub", "", "b.example")).count == 1
            assert {each.target for each in await one.problems()} == {"a.example", "b.example"}


LEARNING = {"scoring": {"scorer": "learning", "exploration": 0.0}}


class TestRewards:
    """F10: what a learner learnt."""

    async def _expected(self, frontier):
        told = await frontier.explain(Link(A + "good/99", via=A))
        return dict(told.breakdown.terms)["expected"]

    async def _rewarded(self, frontier):
        await frontier.add([Link(A + f"{kind}/{n}") for n in range(8) for kind in ("good", "bad")])
        while claim := await frontier.claim(1):
            (lease,) = claim
            await frontier.finish(lease, Done(200, reward=float("good" in lease.url)))

    async def test_other_settings_leave_what_was_learnt(self, store, clock):
        """N1: a change of manners is none of opinions."""
        async with on(store, clock, **LEARNING) as frontier:
            await self._rewarded(frontier)
            before = await self._expected(frontier)
            await frontier.configure({"lanes": {"burst": 2}})

            assert before < -0.5
            assert await self._expected(frontier) == before

    async def test_other_worker_learns_rewards(self, store, clock):
        """Durable, and shared at the latest when the frontier closes."""
        async with on(store, clock, **LEARNING) as frontier:
            await self._rewarded(frontier)
            before = await self._expected(frontier)
        async with on(store, clock, **LEARNING) as other:
            assert await self._expected(other) == pytest.approx(before)

    async def test_closing_frontier_leaves_rescoring_to_other_workers(self, watched, clock):
        """C8: closing is quick, however many tasks are pending; rescoring stays wanted."""
        async with on(watched, clock, **LEARNING) as frontier:
            await self._rewarded(frontier)
            await frontier.add([A + "good/x", A + "bad/x"])
            assert frontier._policies.scorer.inner.is_stale
            priced = watched.calls["update_priorities"]
        assert watched.calls["update_priorities"] == priced
        async with Frontier.attach(watched, clock=clock) as other:
            assert (await other.rescoring()).state == "wanted"

    async def test_invalid_predictions_are_left_out(self, store, clock):
        """Untrusted: the others are still listed."""
        async with on(store, clock) as frontier:
            await frontier.predict(A, 0.5, 0.5)
            await store.put_values(
                "default", [SharedValueWrite("prediction", "ab" * 16, '{"url": 5}')]
            )

            assert await states(frontier) == {A: "open"}
