"""The PostgreSQL store: each verb is the engine over the rows it touches, in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import Any, Final

from outrider.clock import Clock
from outrider.core.task import Added, Task
from outrider.core.verdict import Finished, Verdict
from outrider.store.byte_limits import MAX_CALL_BYTES, parts_by_bytes, task_bytes, verdict_bytes
from outrider.store.forwarding import ForwardingStore
from outrider.store.postgres.address import parse_address
from outrider.store.postgres.migrate import Prepared, prepare_store
from outrider.store.postgres.runner import Access, Runner
from outrider.store.protocol import Inspect, Notifies

# How a verb locks the crawls it touches; verbs that are not listed share them with others.
ACCESS: Final[Mapping[str, Access]] = {
    **{name: "read" for name, verb in vars(Inspect).items() if iscoroutinefunction(verb)},
    "configure": "exclusive",
    "add_roots": "exclusive",
    "set_status": "exclusive",
    "restore": "exclusive",
    "delete": "exclusive",
    "export": "exclusive",  # no transaction may be about to add to a page that was read
}


class PostgresStore(ForwardingStore):
    """`Store`, `Admin` and `Inspect` over one schema of one database.

    `promise` says what a crash of the server may lose, if anything.
    """

    is_inline = False

    notifies: Notifies = "mostly"

    def __init__(self, runner: Runner, prepared: Prepared) -> None:
        self._runner = runner
        self.id, self.promise = prepared

    @classmethod
    async def open(cls, url: str, clock: Clock) -> PostgresStore:
        """Connect and bring the tables up to date, or raise what prevents it."""
        address = parse_address(url)
        prepared = await asyncio.to_thread(prepare_store, address)
        runner = Runner(address, clock, prepared.id)
        try:
            await runner.open()
        except BaseException:
            await runner.close()
            raise
        return cls(runner, prepared)

    async def add(self, tasks: Sequence[Task]) -> list[Added]:
        """Add the tasks in as many transactions as their bytes need (M2)."""
        answers: list[Added] = []
        for part in parts_by_bytes(tasks, task_bytes, MAX_CALL_BYTES):
            answers += await super().add(part)
        return answers

    async def finish(self, verdicts: Sequence[Verdict]) -> list[Finished]:
        """Apply the verdicts in as many transactions as their links need."""
        answers: list[Finished] = []
        for part in parts_by_bytes(verdicts, verdict_bytes, MAX_CALL_BYTES):
            answers += await super().finish(part)
        return answers

    async def _forward(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        return await self._runner.run(
            lambda verbs: getattr(verbs, verb)(*args, **kwargs), ACCESS.get(verb, "shared")
        )

    def subscribe(self, crawl: str, notify: Callable[[], None]) -> Callable[[], None]:
        """See `protocol.FullStore`; under a virtual clock only this process notifies."""
        return self._runner.listener.add(crawl, notify)

    async def close(self) -> None:
        """Close every connection, once the running verbs have ended."""
        await self._runner.close()
