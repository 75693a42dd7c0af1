"""What a seed did, call by call, for whoever repeats it; nothing is written for nobody."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.core.queue_action import QueueAction
from outrider.core.task import Added
from outrider.core.verdict import Finished, Verdict
from outrider.simulation.virtual_loop import Stage
from outrider.store.protocol import ClaimRequest, ClaimResult


class Trace:
    """One line a call, with its instant in virtual seconds."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.lines: list[str] = []

    def say(self, verb: str, *details: object) -> None:
        """Anything."""
        text = " ".join(str(detail) for detail in details)
        self.lines.append(f"{self._stage.elapsed():10.3f}  {verb:<9} {text}")

    def added(self, answers: Sequence[Added]) -> None:
        """What became of links."""
        self.say("add", *(f"{a.url} [{a.reason or 'added'}]" for a in answers))

    def claimed(self, request: ClaimRequest, claimed: ClaimResult) -> None:
        """Who got what, and when to ask again."""
        got = [f"{lease.url} #{lease.token}" for lease in claimed.leases]
        wake_in = "never" if claimed.wake_in is None else f"{claimed.wake_in:.3f}"
        asked = f"{request.worker}/{request.limit}{' lend' if request.lend else ''}"
        self.say("claim", asked, *got, f"→ {claimed.status.value}, wakes {wake_in}")

    def finished(self, verdict: Verdict, answer: Finished) -> None:
        """What a visit came to."""
        state = answer.state.value if answer.state else "again" if answer.applied else "refused"
        more = f"retry {verdict.retry_in:.3f}" if verdict.retry_in else ""
        snooze = f"snooze {verdict.snooze:.3f} ({verdict.snooze_reason})" if verdict.snooze else ""
        numbers = f"delay {verdict.delay:.3f} {snooze} {more}".rstrip()
        self.say("finish", f"#{verdict.token} {verdict.outcome} → {state}, {numbers}")
        if answer.answers:
            self.added(answer.answers)

    def steered(self, target: str, act: QueueAction, count: int) -> None:
        """What an operator did."""
        self.say("steer", target or "(all)", act, f"→ {count} queues")
