"""The trace of a simulated crawl: one line per call, with its instant in virtual seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outrider.core.task import Added
from outrider.core.verdict import Finished, Verdict
from outrider.simulation.virtual_loop import VirtualLoop
from outrider.store.protocol import ClaimRequest, ClaimResult, Step
from outrider.testing.invariants import Call


class Trace:
    """Writes a line for each call that changes a crawl."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.lines: list[str] = []
        self._writers: dict[str, Callable[..., None]] = {
            "add": self._added,
            "claim": self._claimed,
            "finish": self._finished,
            "steer": self._steered,
            "release": self._leases_answered,
            "extend": self._leases_answered,
            "expire": self._expired,
            "set_status": self._status_set,
            "replay": self._tasks_changed,
            "drop": self._tasks_changed,
        }

    def write(self, call: Call, answer: object) -> None:
        """Write the line of a call, if there is one for its verb."""
        writer = self._writers.get(call.verb)
        if writer is not None:
            writer(call.verb, answer, **call.arguments)

    def _line(self, verb: str, *details: object) -> None:
        text = " ".join(str(detail) for detail in details)
        self.lines.append(f"{self._loop.elapsed():10.3f}  {verb:<10} {text}")

    def _added(self, verb: str, answers: Sequence[Added], **_: object) -> None:
        self._line(verb, *(f"{a.url} [{a.reason or 'added'}]" for a in answers))

    def _claimed(self, verb: str, result: ClaimResult, request: ClaimRequest) -> None:
        leases = [f"{lease.url} #{lease.token}" for lease in result.leases]
        wake_in = "never" if result.wake_in is None else f"{result.wake_in:.3f}"
        asked = f"{request.worker}/{request.limit}{' lend' if request.lend else ''}"
        self._line(verb, asked, *leases, f"→ {result.status.value}, wakes {wake_in}")

    def _finished(
        self, verb: str, answers: Sequence[Finished], verdicts: Sequence[Verdict]
    ) -> None:
        for verdict, answer in zip(verdicts, answers, strict=True):
            state = answer.state.value if answer.state else "again" if answer.applied else "refused"
            retry = f"retry {verdict.retry_in:.3f}" if verdict.retry_in else ""
            reason = verdict.snooze_reason
            snooze = f"snooze {verdict.snooze:.3f} ({reason})" if verdict.snooze else ""
            numbers = f"delay {verdict.delay:.3f} {snooze} {retry}".rstrip()
            self._line(verb, f"#{verdict.token} {verdict.outcome} → {state}, {numbers}")
            if answer.answers:
                self._added("add", answer.answers)

    def _steered(self, verb: str, step: Step, target: str, act: object, **_: object) -> None:
        self._line(verb, target or "(all)", act, f"→ {step.count} queues")

    def _leases_answered(self, verb: str, answer: object, leases: object, **_: object) -> None:
        self._line(verb, leases, answer)

    def _expired(self, verb: str, count: int, **_: object) -> None:
        self._line(verb, count)

    def _status_set(self, verb: str, answer: object, status: object, **_: object) -> None:
        self._line(verb, status, answer)

    def _tasks_changed(self, verb: str, step: Step, which: object, **_: object) -> None:
        self._line(verb, which, step.count)
