"""The seeder and the operator of a simulation: add seeds, steer queues, and heal at the end."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from outrider.core import queue_action as actions
from outrider.core.policy.rules import Budget
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import Link, Task
from outrider.errors import StoreUnavailable
from outrider.settings import crawl_rules
from outrider.simulation.web import Found
from outrider.store.protocol import PriorityUpdate, SharedValueWrite, Step, TaskFilter

if TYPE_CHECKING:
    from outrider.simulation.run import Run

SETTABLE: Final[dict[str, tuple[Any, ...]]] = {
    "balance": (0, 1, 3, 50),
    "total_budget": (-1, 0, 4, 12),
    "delay": (0.0, 1.0, 6.0, None),
    "max_in_flight": (1, 2, 3),
    "visits_per_second": (0.0, 0.2, 1.0),
    "precedence": (-2, 0, 1),
    "hold_queues": (True, False),
}
_CANCELS: Final = 0.01


class Seeder:
    """Adds the web's home pages in waves; later waves repeat some of them."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def run(self) -> None:
        """Add all waves; repeat each until it is answered."""
        run = self._run
        for wave in range(run.scenario.waves):
            tasks = list(
                run.tasks_of([self._link(found.url, found.type, wave) for found in self._some()])
            )
            await self._add_until_answered(tasks)
            await run.loop.sleep(run.dice.uniform(1.0, 120.0))
        run.is_seeded = True

    async def _add_until_answered(self, tasks: list[Task]) -> None:
        while True:
            try:
                await self._run.store.add(tasks)
            except StoreUnavailable:
                await self._run.loop.sleep(self._run.dice.uniform(0.1, 3.0))
            else:
                return

    def _some(self) -> list[Found]:
        seeds = self._run.scenario.web.seeds()
        return self._run.dice.sample(seeds, self._run.dice.randint(1, len(seeds)))

    def _link(self, url: str, kind: str, wave: int) -> Link:
        dice = self._run.dice
        plain = Link(url, type=kind, tag=f"wave-{wave}")
        if dice.random() < 0.6:
            return plain
        odd: dict[str, Any] = dice.choice(
            (
                {"delay": dice.uniform(0.0, 60.0)},
                {"forced": True},
                {"priority": dice.choice(("critical", "low", 3.5))},
                {"known": "raise", "bias": -5.0},
                {"known": "revisit"},
                {"known": "gather", "priority": -2.5},
            )
        )
        return replace(plain, **odd)


class Operator:
    """Makes random calls of operators, and remembers which keys it changed."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._targets: dict[str, None] = {}  # in the order they were changed
        self.acts = 0

    async def run(self) -> None:
        """Act at random until it is time to heal."""
        run, every = self._run, self._run.scenario.act_every
        while every:
            pause = run.dice.uniform(0.0, 2 * every)
            if run.loop.elapsed() + pause >= run.scenario.heal_at:
                break
            await run.loop.sleep(pause)
            await self._act_once()
        await run.loop.sleep(max(0.0, run.scenario.heal_at - run.loop.elapsed()))
        await self._heal()

    async def _act_once(self) -> None:
        act = self._run.dice.choice(self._possible_calls())
        self.acts += 1
        try:
            await act()
        except StoreUnavailable:
            return

    def _possible_calls(self) -> list[Callable[[], Coroutine[Any, Any, Any]]]:
        """Return the possible calls; steering is the most frequent."""
        steer = self._steer
        return [
            steer,
            steer,
            steer,
            steer,
            steer,
            self._filter,
            self._change_status,
            self._change_rules,
            self._expire,
            self._update_priorities,
        ]

    async def _steer(self) -> Step:
        target = self._target()
        act = self._act()
        self._targets[target] = None
        return await self._run.store.steer(self._run.crawl, target, act)

    def _target(self) -> str:
        dice, keys = self._run.dice, self._run.keys()
        if not keys or dice.random() < 0.2:
            return dice.choice((".north.example", ".west.example", ".example"))
        return dice.choice(keys)

    def _act(self) -> actions.QueueAction:
        dice = self._run.dice
        name = dice.choice(tuple(SETTABLE))
        every: tuple[actions.QueueAction, ...] = (
            actions.Set({name: dice.choice(SETTABLE[name])}),
            actions.Set({name: dice.choice(SETTABLE[name])}),
            actions.Pause(),
            actions.Resume(),
            actions.Retire(),
            actions.Revive(),
            actions.Revive(),
            actions.Snooze(dice.uniform(0.0, 120.0)),
            actions.Wake(),
            actions.Wake(),
        )
        return dice.choice(every)

    async def _filter(self) -> Step:
        run, dice = self._run, self._run.dice
        keys = run.keys() or [""]
        which = dice.choice(
            (
                TaskFilter(key=dice.choice(keys)),
                TaskFilter(type=dice.choice(("nav", "article", "page"))),
                TaskFilter(pattern=r"/a/\d*[13]$"),
                TaskFilter(older_than=dice.uniform(0.0, 300.0)),
            )
        )
        verb = dice.choice((run.store.drop, run.store.replay, run.store.replay, run.store.purge))
        return await verb(run.crawl, which, dry_run=dice.random() < 0.2)

    async def _change_status(self) -> None:
        run = self._run
        if run.dice.random() < _CANCELS:
            await run.store.set_status(run.crawl, CrawlStatus.CANCELLED)
            return
        await run.store.set_status(run.crawl, CrawlStatus.PAUSED)
        await run.loop.sleep(run.dice.uniform(0.0, 40.0))
        await run.store.set_status(run.crawl, CrawlStatus.RUNNING)

    async def _change_rules(self) -> None:
        """Change the rules of the crawl, then apply them to every queue (E5)."""
        run, dice = self._run, self._run.dice
        old = run.scenario.settings
        budget = Budget(
            hold_queues=dice.random() < 0.5,
            balance=dice.choice((1, 4, 3000)),
            total_budget=dice.choice((-1, -1, 5, 15)),
            cost=old.budget.cost,
            error_penalty=old.budget.error_penalty,
        )
        rules = crawl_rules(replace(old, budget=budget))
        await run.store.configure(run.crawl, rules)
        await run.store.steer(run.crawl, "", actions.Set({}))

    async def _expire(self) -> int:
        return await self._run.store.expire(limit=self._run.dice.choice((1, 100)))

    async def _update_priorities(self) -> int:
        """Update priorities of pending tasks, read now and written later (C8)."""
        run, dice = self._run, self._run.dice
        page = await run.store.tasks(run.crawl, TaskFilter(state=TaskState.PENDING), limit=100)
        await run.loop.sleep(dice.uniform(0.0, 2.0))
        updates = [
            PriorityUpdate(one.number, one.priority, dice.uniform(-50.0, 50.0))
            for one in page.items
        ]
        await run.store.put_values(
            run.crawl, [SharedValueWrite("opinion", "last", str(len(updates)))]
        )
        return await run.store.update_priorities(run.crawl, updates)

    # ---- healing

    async def _heal(self) -> None:
        """End all faults, and undo every restriction of queues."""
        run = self._run
        run.heal()
        while not run.is_seeded:
            await run.loop.sleep(1.0)
        await run.store.configure(run.crawl, crawl_rules(run.scenario.healed()))
        for target in (*self._targets, ""):
            await self._undo_restrictions(target)
        await run.store.set_status(run.crawl, CrawlStatus.RUNNING)
        await run.store.replay(run.crawl, TaskFilter(state=TaskState.DEAD), dry_run=False)
        await run.audit()
        run.is_healed = True

    async def _undo_restrictions(self, target: str) -> None:
        store, crawl = self._run.store, self._run.crawl
        changes = dict.fromkeys(SETTABLE) if target else {}
        await store.steer(crawl, target, actions.Set(changes))
        for act in (actions.Resume(), actions.Revive(), actions.Wake()):
            await store.steer(crawl, target, act)
