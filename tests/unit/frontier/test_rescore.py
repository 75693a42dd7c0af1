"""Priorities of what waits, thought again (C8)."""

import asyncio

from outrider import Done, Frontier, Link
from outrider.core.breakdown import Breakdown
from outrider.core.policy.rules import CrawlRules
from outrider.frontier import rescore as module
from outrider.frontier.rescore import LOST_AFTER
from outrider.frontier.shared_state import Rescoring, encode
from outrider.store.protocol import PriorityUpdate, SharedValueWrite
from outrider.testing import FakeClock

FAST = {"politeness": {"delay": 0.0}}
A = "https://a.example/"


def on(store, clock, **settings):
    """A frontier on it."""
    return Frontier.open(store, clock=clock, settings={**FAST, **settings})


async def priorities(frontier):
    """Of all tasks, by path."""
    return {task.url.removeprefix(A): task.priority async for task in frontier.tasks()}


class TestRescoring:
    """All, by queue, by filter."""

    async def test_other_weights_change_pending_priorities(self, store, clock, background):
        """N1, C8: in the background, at once."""
        async with on(store, clock) as frontier:
            await frontier.add([Link(A + "nav", type="nav"), Link(A + "page", depth=1)])
            await frontier.configure({"scoring": {"weights": {"nav": 99}}})
            await background(frontier)

            assert await priorities(frontier) == {"nav": 99.0, "page": 13.0}
            job = await frontier.rescoring()
            assert (job.state, job.looked, job.changed, job.progress) == ("done", 2, 1, 1.0)

    async def test_unchanged_inputs_change_nothing(self, store, clock):
        """C8: whatever the links brought along."""
        links = [
            Link(A + "1", type="nav", depth=3, bias=-2.5, origin="sitemap"),
            Link(A + "2", base_priority=7.0, bias=1.0),
            Link(A + "3", priority=-4.0),
            Link(A + "4", priority="high"),
            Link(A + "5", forced=True),
            Link(A + "6", meta={"knowledge_reuse": 0.25, "estimated_cost_ms": 900}),
        ]
        async with on(store, clock, scoring={"cost_aware": True}) as frontier:
            await frontier.add(links)
            await frontier.predict(A + "1", 0.5, 0.5)
            before = [task async for task in frontier.tasks()]

            assert await frontier.rescore() == 0
            assert [task async for task in frontier.tasks()] == before

    async def test_explicit_priorities_stay(self, store, clock, background):
        """F8."""
        async with on(store, clock) as frontier:
            await frontier.add([Link(A + "1", priority=3.0), A + "2"])
            await frontier.configure({"scoring": {"weights": {"default": 50}}})
            await background(frontier)

            assert await priorities(frontier) == {"1": 3.0, "2": 50.0}

    async def test_by_queue_and_by_filter(self, store, clock):
        """C8: only what is asked for is looked at."""
        async with on(store, clock) as frontier:
            b = "https://b.example/"
            await frontier.add([A + "1", Link(A + "2", type="nav"), b])
            for task in [task async for task in frontier.tasks()]:
                await store.update_priorities("default", [_price(task, 77.0)])

            assert await frontier.rescore(key="b.example") == 1
            assert await frontier.rescore(type="nav") == 1
            assert await frontier.rescore(pattern="a.example/[2]") == 0
            assert await priorities(frontier) == {"1": 77.0, "2": 10.0, b: 12.0}

    async def test_leased_and_done_tasks_are_left_alone(self, store, clock, background):
        """C8: what is pending."""
        async with on(store, clock) as frontier:
            await frontier.add([A + "1", A + "2", A + "3"])
            (first,) = await frontier.claim(1)
            await frontier.finish(first, Done(status=200))
            (second,) = await frontier.claim(1)
            await frontier.configure({"scoring": {"weights": {"default": 50}}})
            await background(frontier)

            assert second.priority == 12.0
            assert sorted((await priorities(frontier)).values()) == [12.0, 12.0, 50.0]

    async def test_a_crawl_opened_under_other_settings_is_rescored(self, store, clock, background):
        """C8: a file that was edited while no worker ran."""
        async with on(store, clock) as frontier:
            await frontier.add([A])
        async with on(store, clock, scoring={"weights": {"default": 1}}) as frontier:
            await background(frontier)
            assert (await frontier.rescoring()).changed == 1
        async with on(store, clock, scoring={"weights": {"default": 1}}) as frontier:
            assert await priorities(frontier) == {"": 1.0}

    async def test_crawl_that_only_saw_adds_wants_no_rescoring(self, store, clock, background):
        """C8: its tasks were scored under the settings that hold, until those change."""
        await store.configure("default", CrawlRules())
        async with Frontier.attach(store, clock=clock) as command:
            await command.add([A])
            first = await command.rescoring()
            await command.configure({"lanes": {"burst": 3}})
            await background(command)
            second = await command.rescoring()
            await command.configure({"scoring": {"weights": {"default": 1}}})
            await background(command)

            assert (first.state, first.progress, second.state) == ("done", 1.0, "done")
            assert (await command.rescoring()).state == "wanted"

    async def test_another_worker_resumes_wanted_rescoring(self, store, clock, background):
        """C8: `outrider config set` ends before the work is done."""
        async with on(store, clock) as worker:
            await worker.add([A])
            async with Frontier.attach(store, clock=clock) as command:
                await command.configure({"scoring": {"weights": {"default": 1}}})
                await background(command)
                assert (await command.rescoring()).state == "wanted"
            await worker.learn()
            await background(worker)

            assert await priorities(worker) == {"": 1.0}

    async def test_rescoring_of_a_dead_worker_is_taken_over(self, store, clock):
        """C8: from where it was, after some silence."""
        async with on(store, clock) as frontier:
            await frontier.add([A + str(n) for n in range(10)])
            job = (await frontier.rescoring()).digest
            left = Rescoring(job, "running", "gone", after=5, looked=5, pending=10)
            await store.put_values("default", [SharedValueWrite("rescore", "all", encode(left))])
            for task in [task async for task in frontier.tasks()]:
                await store.update_priorities("default", [_price(task, 77.0)])
            await frontier.learn()

            await frontier._rescorer.resume()
            assert (await frontier.rescoring()).state == "running"
            clock.advance(LOST_AFTER / 1000 + 1)
            await frontier._rescorer.resume()

            assert (await frontier.rescoring()).state == "done"
            assert [*(await priorities(frontier)).values()] == [77.0] * 5 + [12.0] * 5

    async def test_reading_the_progress_does_not_stop_rescoring(
        self, unanswered, clock, monkeypatch, background
    ):
        """C8: a read may be answered after a later write."""
        monkeypatch.setattr(module, "STEP", 1)
        monkeypatch.setattr(module, "PROGRESS_INTERVAL", 0)
        async with on(unanswered, clock) as frontier:
            await frontier.add([A + str(n) for n in range(5)])
            unanswered.hold("update_priorities")
            await frontier.configure({"scoring": {"weights": {"default": 1}}})
            unanswered.hold("update_priorities", "values_since")
            looking = asyncio.create_task(frontier.rescoring())
            await asyncio.sleep(0)
            unanswered.let_go()
            await looking
            await background(frontier)

            assert (await frontier.rescoring()).state == "done"
            assert {*(await priorities(frontier)).values()} == {1.0}

    async def test_rescoring_taken_over_is_left_to_the_other_worker(self, store, unanswered, clock):
        """C8: one worker at a time, though the answer to our own word comes late."""
        async with on(unanswered, clock) as frontier:
            await frontier.add([A])
            digest = (await frontier.rescoring()).digest
            unanswered.hold("put_values")
            rescoring = asyncio.create_task(frontier.rescore())
            await asyncio.sleep(0)
            others = Rescoring(digest, "running", "other")
            await store.put_values("default", [SharedValueWrite("rescore", "all", encode(others))])
            await frontier.learn()
            unanswered.let_go()
            await rescoring

            assert await frontier.rescoring() == others

    async def test_worker_with_a_wrong_clock_does_not_take_over(self, watched, clock):
        """H7: silence is measured by the store's clock."""
        wrong = FakeClock(clock.now_ms() / 1000 + 600)
        async with on(watched, clock) as one, on(watched, wrong) as other:
            await one.add([A])
            running = Rescoring((await one.rescoring()).digest, "running", "third")
            await watched.put_values(
                "default", [SharedValueWrite("rescore", "all", encode(running))]
            )
            await other.learn()
            await other._rescorer.resume()

            assert await one.rescoring() == running

    async def test_claims_are_served_during_rescoring(self, store, clock):
        """C8: in bounded steps."""
        async with on(store, clock) as frontier:
            await frontier.add([f"https://h{n}.example/" for n in range(2000)])
            await frontier.configure({"scoring": {"weights": {"default": 1}}})
            claimed = 0
            while frontier._context.background.running:
                claimed += len(await frontier.claim(1))
                await asyncio.sleep(0)

            assert claimed > 2
            waiting = {task.priority async for task in frontier.tasks(state="pending")}
            assert waiting == {1.0}

    async def test_focus_parks_what_is_known(self, store, clock, background):
        """C9: what waits cannot be refused any more."""
        async with on(store, clock) as frontier:
            await frontier.add([A + "france", A + "golf"])
            await frontier.configure({"focus": {"on": True, "lists": ["countries"]}})
            await background(frontier)

            assert await priorities(frontier) == {"france": -5988.0, "golf": 5_000_000.0}
            report = await frontier.add([A + "tennis"])
            assert report.refused == {"off-focus": 1}

    async def test_a_focus_task_opens_its_queue(self, store, clock):
        """C9: what the crawl is about does not wait for its host's turn; on or off, live."""
        held = {"budget": {"hold_queues": True}, "focus": {"on": True, "lists": ["countries"]}}
        async with on(store, clock, **held) as frontier:
            await frontier.add([A + "world", "https://b.example/france"])
            states = {queue.key: queue.state async for queue in frontier.queues()}
            assert states == {"a.example": "inactive", "b.example": "ready"}

            await frontier.configure({"focus": {"on": False}})
            await frontier.add(["https://c.example/france"])
            assert (await frontier.queue("c.example").view()).state == "inactive"


def _price(task, priority):
    return PriorityUpdate(
        task.number, task.priority, priority, Breakdown("base", (("type", priority),))
    )
