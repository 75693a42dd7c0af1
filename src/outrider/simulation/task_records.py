"""What is counted apart from every store: a queue's manners, a task's tale, a lease's end."""

from __future__ import annotations

import msgspec

from outrider.core.policy.politeness import DONE_TO_CALM
from outrider.core.states import TaskState
from outrider.core.task import Lease, LeaseId, PolitenessState


class Row(msgspec.Struct):
    """What a queue's visits add up to (D3, D4), by the rules and not by the store."""

    level: int = 0
    calm: int = 0
    throttles_in_row: int = 0
    unreachable_in_row: int = 0
    blocks_in_row: int = 0

    def after(self, outcome: str, seen: PolitenessState) -> None:
        """One visit more; counts go on from what its lease saw."""
        if outcome == "done":
            self._done()
        elif outcome == "throttled":
            self.level, self.throttles_in_row = seen.level + 1, seen.throttles_in_row + 1
        if outcome != "dropped":
            unreachable, blocked = outcome == "unreachable", outcome == "blocked"
            self.unreachable_in_row = seen.unreachable_in_row + 1 if unreachable else 0
            self.blocks_in_row = seen.blocks_in_row + 1 if blocked else 0
            self.calm = self.calm if outcome == "done" else 0

    def _done(self) -> None:
        self.throttles_in_row, self.calm = 0, self.calm + 1
        if self.calm >= DONE_TO_CALM:
            self.level, self.calm = max(0, self.level - 1), 0

    def revived(self) -> None:
        """`revive` clears what is counted in a row."""
        self.throttles_in_row = self.unreachable_in_row = self.blocks_in_row = 0


class Tale(msgspec.Struct):
    """What became of one task so far."""

    open: LeaseId | None = None  # lent, and its end not seen
    state: TaskState = TaskState.PENDING
    attempts: int = 0
    crashes: int = 0
    done: int = 0  # visits that ended as done
    causes: int = 1  # reasons to visit it: its discovery, and every revisit
    may_restart: bool = False  # a replay may have chosen it

    def restart(self) -> None:
        """B2: a revisit or replay starts at 0, and whatever was lent before is void."""
        self.attempts = self.crashes = 0
        self.open, self.state, self.may_restart = None, TaskState.PENDING, False


class Lent(msgspec.Struct):
    """A lease: when it began, and which calls began and finished it (many share an instant)."""

    lease: Lease
    at: int
    call: int
    finished_by: int | None = None
    is_loan: bool = False  # C7: lost, it may have gone back uncounted
