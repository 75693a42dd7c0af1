"""Why a URL is where it is: identity, admission, every term of its priority, place, time (O4)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from outrider.core.breakdown import Breakdown
from outrider.core.policy.score import breakdown_of
from outrider.core.policy.weights import BONUSES, TYPE_WEIGHTS, setting_of
from outrider.core.states import QueueState, TaskState
from outrider.core.task import Added, Link
from outrider.core.url import Url, fingerprint, parse_url
from outrider.frontier.reading import Reader
from outrider.frontier.reports import Explanation, Term
from outrider.store.protocol import CrawlView, QueuePosition, QueueView, TaskFilter, TaskView

PAGES: Final = 10  # looked at, evenly spread, to estimate a place in the whole crawl
PAGE: Final = 200  # tasks of each
FEW: Final = 10  # visits that say nothing of a crawl's pace
_USUAL: Final = {"weights": TYPE_WEIGHTS, "bonuses": BONUSES}


class Explaining(Reader):
    """Answers why."""

    async def explain(self, url: str | Link) -> Explanation:
        """Why a URL is where it is, or why it would not be admitted (O4).

        Of a `Link` that is not known, what it brings along is taken into account.
        """
        link = url if isinstance(url, Link) else Link(url)
        given = link.url
        parsed = given if isinstance(given, Url) else parse_url(given, self._settings.url)
        if not isinstance(parsed, Url):
            return Explanation(str(given)[:200], None, None, parsed.reason, parsed.detail)
        mark = fingerprint(link.identity or parsed.identity)
        known = await self.store.task(self.crawl, mark)
        if known is None:
            return await self._explain_unknown(link, parsed)
        return await self._explain_known(parsed, known)

    async def _explain_unknown(self, link: Link, url: Url) -> Explanation:
        # A copy: a question must count neither as a bypass nor as a scored link.
        admission = msgspec.structs.replace(self._admission, scorer=self._scorer.inner)
        (answer,) = admission.admit([link], are_seeds=False)
        if isinstance(answer, Added):
            mark, reason = fingerprint(link.identity or url.identity).hex(), answer.reason or ""
            return Explanation(url.text, url.identity, mark, reason, answer.detail)
        why = breakdown_of(answer)
        return Explanation(
            url.text,
            url.identity,
            answer.fingerprint.hex(),
            "admissible",
            None,
            breakdown=why,
            queue=await self.store.queue(self.crawl, answer.key),
            terms=self._terms(why, answer.type, answer.origin),
        )

    async def _explain_known(self, url: Url, task: TaskView) -> Explanation:
        place = await self.store.position(self.crawl, task.number)
        told = Explanation(
            url.text,
            url.identity,
            task.fingerprint.hex(),
            "known",
            task.reason,
            task,
            task.breakdown,
            place.queue,
            terms=self._terms(task.breakdown, task.type, task.origin),
        )
        return await self._placed(told, task, place) if task.state is TaskState.PENDING else told

    # ---- the terms

    def _terms(self, breakdown: Breakdown, kind: str, origin: str) -> tuple[Term, ...]:
        """Each with the setting that gave it its weight, and whoever said so."""
        return tuple(self._term(name, value, kind, origin) for name, value in breakdown.terms)

    def _term(self, name: str, value: float, kind: str, origin: str) -> Term:
        setting = setting_of(name, kind, origin, self._settings.scoring)
        if setting is None:
            return Term(name, value)
        path = tuple(setting.split(".", 2))
        return Term(name, value, setting, self._weight(path), self._origins.get(path, "default"))

    def _weight(self, path: tuple[str, ...]) -> Any:
        section, name, *entry = path
        found = getattr(getattr(self._settings, section), name)
        return found.get(entry[0], _USUAL[name].get(entry[0])) if entry else found

    # ---- place and time

    async def _placed(self, told: Explanation, task: TaskView, place: QueuePosition) -> Explanation:
        view = await self.store.crawl(self.crawl)
        across = max(place.ahead, await self._across(task, view))
        return msgspec.structs.replace(
            told,
            place=place.ahead,
            across=across,
            expected_in=self._expected_in(task, place, across, view),
        )

    async def _across(self, task: TaskView, view: CrawlView) -> int:
        """The share of a sample that goes before it, of all that waits."""
        seen = before = 0
        mine = (task.precedence, task.priority, task.number)
        for part in range(PAGES):
            which = TaskFilter(state=TaskState.PENDING)
            page = await self.store.tasks(
                self.crawl, which, after=view.known * part // PAGES, limit=PAGE
            )
            seen += len(page.items)
            before += sum((o.precedence, o.priority, o.number) < mine for o in page.items)
            if view.known <= PAGE:
                break
        return round(before / seen * view.pending) if seen else 0

    def _expected_in(
        self, task: TaskView, place: QueuePosition, across: int, view: CrawlView
    ) -> float | None:
        """At its queue's own pace, or at the crawl's so far if that is slower."""
        queue = place.queue
        if queue.state in (QueueState.RETIRED, QueueState.PAUSED):
            return None
        now = self._clock.now_ms() / 1000
        alone = _alone(task, place.ahead, queue, now)
        age = now - view.created_at
        is_known = view.visits > FEW and age > 0
        return max(alone, across * age / view.visits) if is_known else alone


def _alone(task: TaskView, ahead: int, queue: QueueView, now: float) -> float:
    """If nothing else competed."""
    pace = queue.delay / queue.max_in_flight
    starts = max(queue.wakes_in or 0.0, (task.due_at or now) - now)
    return max(0.0, starts) + ahead * pace
