"""Claims: which tasks a worker gets next (C3 to C6, E2, H1), and leases by fingerprint (D5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, final

import msgspec

from outrider.clock import to_ms
from outrider.core.order import NUMBER_BITS, NUMBER_MASK
from outrider.core.outcome import Answer, Last
from outrider.core.pick import ACTIVATE, NOTHING, Streak, pick
from outrider.core.policy.politeness import delay_at_start, draw_delay
from outrider.core.states import CrawlStatus, TaskState
from outrider.core.task import HIGH, LOW, Lease
from outrider.store.byte_limits import MAX_RESULT_BYTES, MAX_SHORT_URL, task_bytes
from outrider.store.engine.candidates import Candidates
from outrider.store.engine.finish import Finisher
from outrider.store.engine.leases import Leases
from outrider.store.engine.port import FastPath, Loader, QueueTable, TaskTable
from outrider.store.engine.records import CHUNK_BITS, COLUMNS, READY, UNLISTED, Queue, TaskRecord
from outrider.store.engine.schedule import Schedule, inactive_key
from outrider.store.engine.state import CrawlState
from outrider.store.engine.transitions import Transitions
from outrider.store.protocol import MAX_FINGERPRINTS, NO_PROCESS, ClaimRequest, ClaimResult

EXPIRE_STEP: Final = 1000  # overdue leases one claim expires
WAKE_STEP: Final = 4096  # queues one claim wakes; the next claim wakes the rest

PENDING, LEASED = TaskState.PENDING, TaskState.LEASED
RUNNING = CrawlStatus.RUNNING
_PENDING, _LEASED = COLUMNS[PENDING], COLUMNS[LEASED]


@final
class Claimer:
    """Leases tasks to workers."""

    __slots__ = (
        "_fast_path",
        "_finisher",
        "_leases",
        "_loader",
        "_queues",
        "_schedule",
        "_state",
        "_tasks",
        "_transitions",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - the parts it uses
        self,
        state: CrawlState,
        leases: Leases,
        tasks: TaskTable,
        queues: QueueTable,
        schedule: Schedule,
        transitions: Transitions,
        finisher: Finisher,
        loader: Loader | None,
        fast_path: FastPath | None,
    ) -> None:
        self._state, self._leases, self._tasks, self._queues = state, leases, tasks, queues
        self._schedule, self._transitions, self._finisher = schedule, transitions, finisher
        self._loader, self._fast_path = loader, fast_path

    def claim(self, request: ClaimRequest, now: int) -> ClaimResult:
        """Run the claim algorithm of ARCHITECTURE.md; only a claim wakes queues or ends a run."""
        state, loader = self._state, self._loader
        if request.outlives_process:
            request = msgspec.structs.replace(request, process=NO_PROCESS)
        if loader is not None:
            loader.begin_claim(request, now)
        self._finisher.expire_overdue(EXPIRE_STEP, now)
        if state.is_limited:
            self._finisher.check_limits(now)
        if state.status is not RUNNING:  # I1: leases no tasks
            return ClaimResult([], None, state.status, request.streak)
        if request.fingerprints:
            (leases, is_cut), streak = self._lease_named(request, now), request.streak
        elif self._fast_path is None:
            leases, streak, is_cut = self._lease_tasks(request, now)
        else:
            leases, streak, is_cut = self._lease_fast(self._fast_path, request, now)
        is_cut = is_cut or len(leases) >= request.limit
        wake_in = 0.0 if is_cut else self._wake_in(request, now)
        return ClaimResult(leases, wake_in, state.status, streak)

    def _lease_fast(
        self, fast_path: FastPath, request: ClaimRequest, now: int
    ) -> tuple[list[Lease], Streak, bool]:
        fast = fast_path.lease(request, now)
        if fast.is_complete or fast.is_cut:
            if not fast.leases:
                self._finish_run(now)
            return fast.leases, fast.streak, fast.is_cut
        limit, rolls = request.limit - len(fast.leases), request.rolls[len(fast.leases) :]
        rest = msgspec.structs.replace(request, limit=limit, streak=fast.streak, rolls=rolls)
        leases, streak, is_cut = self._lease_tasks(rest, now)
        return fast.leases + leases, streak, is_cut

    def _lease_tasks(self, request: ClaimRequest, now: int) -> tuple[list[Lease], Streak, bool]:
        """Lease tasks by steps 1 to 5; return whether they ended at the bytes of a claim."""
        loader = self._loader
        if loader is not None:
            loader.load_candidates(request)
        self._wake_queues(now)
        if loader is not None:
            loader.load_first_tasks(request)
        leases, streak, is_cut = self._pick_all(request, now)
        self._finish_run(now)
        return leases, streak, is_cut

    def _wake_queues(self, now: int) -> None:
        """E1: reschedule queues whose wake time has come, in (time, queue number) order."""
        schedule, queues = self._schedule, self._queues
        wakeups, loaded, end = schedule.wakeups, queues.loaded, (now + 1) << NUMBER_BITS
        for _ in range(WAKE_STEP):
            if not wakeups or wakeups[0] >= end:
                break
            entry = heappop(wakeups)
            number = entry & NUMBER_MASK
            queue = loaded[number >> CHUNK_BITS].get(number)
            wake_at = queues.wake_at(number) if queue is None else queue.wake_at
            if wake_at != entry >> NUMBER_BITS:
                continue
            if queue is None:
                queue = queues.get(number)
            queue.wake_at = 0
            if queue.list_state == UNLISTED and not queue.delayed.head:
                schedule.choose_list(queue, now)  # the common case: its tasks are due
            elif queue.list_state == UNLISTED:
                schedule.reschedule(queue, now)
            else:
                schedule.refresh(queue, now)  # C9: time alone activates no queue

    def _pick_all(self, request: ClaimRequest, now: int) -> tuple[list[Lease], Streak, bool]:
        """Steps 2 to 5 over all queues, or over those that the claim is limited to (C5)."""
        leases: list[Lease] = []
        taken: dict[int, int] = {}
        if request.keys:
            queues, so_far = self._queues_of(request.keys), (request.streak, MAX_RESULT_BYTES)
            streak, room = self._pick_among(queues, request, leases, taken, so_far, now)
        else:
            streak, room = so_far = self._pick_tasks(request, leases, taken, now)
            if 0 < request.max_queues <= len(taken) and len(leases) < request.limit:
                queues = [self._queues.get(number) for number in taken]
                streak, room = self._pick_among(queues, request, leases, taken, so_far, now)
        if taken:
            self._end_picking(request, taken)
        return leases, streak, room <= 0

    def _pick_tasks(  # noqa: C901, PLR0912
        self, request: ClaimRequest, leases: list[Lease], taken: dict[int, int], now: int
    ) -> tuple[Streak, int]:
        """Steps 2 to 5, until a limit is reached or no task is left; the second hot loop.

        Return the lane rotation, and the bytes that further tasks of the claim may have.
        """
        rules, schedule, lease = self._state.rules, self._schedule, self._lease
        (lane, count), burst, cap = request.streak, rules.burst, request.per_queue
        limit, is_loan, max_queues = request.limit, request.lend, request.max_queues
        counts_bytes = self._state.has_long_texts or limit * MAX_SHORT_URL > MAX_RESULT_BYTES
        counts_taken = cap or rules.breadth_discount or is_loan or max_queues
        deadline = now + to_ms(request.lease_for)
        skipped: list[Queue] = []
        loaded, first_task, inactive = self._queues.loaded, self._tasks.first, schedule.inactive
        ready0, ready1 = schedule.ready
        room = MAX_RESULT_BYTES
        while len(leases) < limit and room > 0:
            first = ready0.head[0] if ready0.head else 0
            second = ready1.head[0] if ready1.head else 0
            head = schedule.best_inactive(taken, cap, skipped) if inactive else None
            if head is None and count < burst and (second if lane else first):
                count += 1  # `pick` written out for the common case
            else:
                step, after = pick(
                    first, second, None if head is None else head.precedence, lane, count, burst
                )
                if step == ACTIVATE:
                    schedule.activate_first(now)
                    continue
                if step == NOTHING:
                    break
                lane, count = step, after
            number = (ready1 if lane else ready0).pop() & NUMBER_MASK
            queue = loaded[number >> CHUNK_BITS].get(number) or self._queues.get(number)
            if lane:
                queue.ready_key1 = 0
                entry = queue.lane1.pop()
            else:
                queue.ready_key0 = 0
                entry = queue.lane0.pop()
            record = first_task(queue, entry)
            if is_loan:
                record.loaned = True
                queue.loaned += 1
            leases.append(lease(queue, record, request, deadline, now, leases))
            if counts_bytes:
                about = record.task
                room -= len(about.url)
                if about.meta or about.text:  # `task_bytes` written out
                    room -= len(about.meta) + len(about.text)
            if counts_taken:
                self._count_taken(queue, request, taken)
                if len(taken) == max_queues:
                    break
        for queue in skipped:
            heappush(inactive, inactive_key(queue))
        return Streak(lane, count), room

    def _pick_among(
        self,
        queues: Iterable[Queue],
        request: ClaimRequest,
        leases: list[Lease],
        taken: dict[int, int],
        so_far: tuple[Streak, int],
        now: int,
    ) -> tuple[Streak, int]:
        """C5: steps 2 to 5 for a claim that may lease from these queues only."""
        ((lane, count), room), schedule = so_far, self._schedule
        burst = self._state.rules.burst
        deadline, candidates = now + to_ms(request.lease_for), Candidates(queues, request, taken)
        while len(leases) < request.limit and room > 0:
            first, second = candidates.first_ready(0), candidates.first_ready(1)
            head = candidates.first_inactive()
            step, after = pick(
                first, second, None if head is None else head.precedence, lane, count, burst
            )
            if head is not None and step == ACTIVATE:
                schedule.activate(head, now)
                candidates.push(head)
                continue
            if step == NOTHING:
                break
            lane, count = step, after
            queue = candidates.queue(second if lane else first)
            record = self._tasks.first(queue, queue.lane(lane).pop())
            if request.lend:
                record.loaned = True
                queue.loaned += 1
            leases.append(self._lease(queue, record, request, deadline, now, leases))
            room -= task_bytes(record.task)
            self._count_taken(queue, request, taken)
            candidates.push(queue)
        return Streak(lane, count), room

    def _count_taken(self, queue: Queue, request: ClaimRequest, taken: dict[int, int]) -> None:
        """C5, C7: count a lease of a queue, and let its next task compete in this claim."""
        taken[queue.number] = times = taken.get(queue.number, 0) + 1
        if request.lend:
            self._continue_loan(queue)
        if queue.list_state == READY:
            if times == request.per_queue:
                self._schedule.clear_ready_keys(queue)
            else:
                discount = self._state.rules.breadth_discount * times
                self._schedule.update_ready_keys(queue, discount)

    def _end_picking(self, request: ClaimRequest, taken: Iterable[int]) -> None:
        """C5, C7: what a claim took of a queue counts no more; what it lent is on no list."""
        for number in taken:
            queue = self._queues.get(number)
            if queue.list_state == READY:
                if request.lend:
                    self._schedule.unlist(queue)
                else:
                    self._schedule.update_ready_keys(queue)

    def _continue_loan(self, queue: Queue) -> None:
        """C7: keep a queue ready in the claim that lends it, while it has due tasks and budget."""
        may_spend = queue.session < queue.balance and not queue.is_over_budget()
        if may_spend and (queue.lane0.head or queue.lane1.head):
            self._schedule.listed += 1
            queue.list_state = READY

    def _lease(  # noqa: C901 - written out: every visit begins here
        self,
        queue: Queue,
        record: TaskRecord,
        request: ClaimRequest,
        deadline: int,
        now: int,
        before: list[Lease],
    ) -> Lease:
        """H1, E3, C3, D1, O1, O5: set token, deadline, charge, turn, next-ready; then reschedule.

        `before` are the leases that this claim has made.
        """
        state, leases, schedule = self._state, self._leases, self._schedule
        number = record.number
        state.last_token = token = state.last_token + 1
        state.last_turn = queue.turn = record.lease_turn = state.last_turn + 1
        record.token, record.worker, record.process = token, request.worker, request.process
        record.claimed = queue.last_start = now
        record.state, record.deadline, record.lasts = LEASED, deadline, deadline - now
        leases.held[number] = record
        self._tasks.update(record)
        heappush(leases.deadlines, deadline << NUMBER_BITS | number)
        if not queue.is_dirty:
            state.mark_dirty(queue)
        counts, task = record.counts, record.task
        if not counts.is_dirty:
            state.mark_counts_dirty(counts)
        cost, by_state = task.cost, counts.by_state
        by_state[_PENDING] -= 1
        by_state[_LEASED] += 1
        state.pending -= 1
        state.leased += 1
        if state.has_bands and not HIGH < task.priority < LOW:
            state.count_priority(task.priority, -1)
        queue.pending -= 1
        queue.in_flight += 1
        queue.spent += cost
        queue.session += cost
        queue.last_cost = cost
        queue.cost_sum += cost
        queue.cost_count += 1
        lease = Lease(  # `_new_lease` written out
            state.store,
            number,
            token,
            task,
            record.attempts + 1,
            request.worker,
            request.lease_for,
            record.failures,
            record.throttles,
            queue.rules,
            queue.politeness,
            None,
            None,
            -1.0,
            (now - record.due) / 1000,
            (now - queue.last_end) / 1000 if queue.last_end >= 0 else -1.0,
        )
        if record.answer is not None:
            set_last_answer(lease, record.answer, now - record.answered)
        schedule.listed -= 1
        queue.list_state = UNLISTED
        if queue.ready_key0 or queue.ready_key1:
            schedule.clear_ready_keys(queue)
        queue.wake_at = 0
        if queue.gap >= 0:
            queue.postpone(now + queue.gap, "delay")
            if queue.draws and not request.lend:  # C7: the borrower of a loan draws
                _draw_delay(queue, record, lease, request.roll(len(before)), now)
        if queue.in_flight < queue.slots:
            schedule.reschedule(queue, now)
        return lease

    # ---- the end of a claim

    def _finish_run(self, now: int) -> None:
        """I2."""
        if self._state.rules.stay_open:
            return
        loader = self._loader
        if loader is None or (not self._leases.held and loader.may_be_over()):
            self._state.finish_run(now)

    def _wake_in(self, request: ClaimRequest, now: int) -> float | None:
        """C6: return the seconds to the next deadline or wake time; None: time brings nothing."""
        if self._state.status is not RUNNING:
            return None
        if self._loader is not None:
            return self._loader.wake_in(request, now)
        if request.keys:
            return self._wake_in_of(self._queues_of(request.keys), now)
        if self._schedule.listed:
            return 0.0
        wake_at, deadline = self._schedule.first_wake(), self._leases.next_deadline()
        times = [at for at in (wake_at, deadline) if at is not None]
        return max(0, min(times) - now) / 1000 if times else None

    def _wake_in_of(self, queues: Iterable[Queue], now: int) -> float | None:
        """C6: the same for a claim by keys: their wake times, and all deadlines."""
        deadline = self._leases.next_deadline()
        times = [] if deadline is None else [deadline]
        for queue in queues:
            if queue.list_state != UNLISTED:
                return 0.0
            if queue.wake_at:
                times.append(queue.wake_at)
        return max(0, min(times) - now) / 1000 if times else None

    # ---- claims by keys

    def _queues_of(self, keys: Sequence[str]) -> list[Queue]:
        """C5: return the queues of some keys, each once; a key without a queue has that in lower
        case, as `queue` finds it.
        """
        if self._loader is not None:
            return self._loader.load_keys(keys)
        find = self._queues.find
        found = (find(key) or find(key.lower()) for key in keys)
        return list({queue.number: queue for queue in found if queue is not None}.values())

    # ---- leases by fingerprint

    def _lease_named(self, request: ClaimRequest, now: int) -> tuple[list[Lease], bool]:
        """D5: lease those of the named tasks that can be leased now, as many as a claim holds."""
        leases: list[Lease] = []
        room = MAX_RESULT_BYTES
        for record in self._named_tasks(request.fingerprints[:MAX_FINGERPRINTS]):
            if len(leases) < request.limit and room > 0 and _can_be_named(record, now):
                leases.append(self._lease_by_name(record, request, now))
                room -= task_bytes(record.task)
        return leases, room <= 0

    def _named_tasks(self, fingerprints: Sequence[bytes]) -> Iterable[TaskRecord]:
        if self._loader is not None:
            return self._loader.load_named(fingerprints)
        return self._find_tasks(fingerprints)

    def _find_tasks(self, fingerprints: Sequence[bytes]) -> Iterator[TaskRecord]:
        for fingerprint in fingerprints:
            number = self._tasks.find(fingerprint)
            if number is not None:
                yield self._tasks.get(number)

    def _lease_by_name(self, record: TaskRecord, request: ClaimRequest, now: int) -> Lease:
        """H1, E3: set token, deadline and charge; the queue keeps its turn and its next-ready."""
        state, queue, schedule = self._state, record.queue, self._schedule
        if queue.list_state == READY:  # its budget has changed, so its list is chosen again
            schedule.unlist(queue)
        queue.leave(record.task.lane, record.key, record.due)
        self._transitions.move(record, LEASED)
        record.named = True
        queue.in_flight -= 1
        queue.named += 1
        queue.charge(record.task.cost)
        state.last_token += 1
        record.token = state.last_token
        state.last_turn = record.lease_turn = state.last_turn + 1
        record.leased, record.lasts = now, to_ms(request.lease_for)
        record.worker, record.process = request.worker, request.process
        self._leases.held[record.number] = record
        self._leases.set_deadline(record, now + to_ms(request.lease_for))
        lease = self._new_lease(queue, record, request, now)
        schedule.reschedule(queue, now)
        return lease

    def _new_lease(
        self, queue: Queue, record: TaskRecord, request: ClaimRequest, now: int
    ) -> Lease:
        lease = Lease(
            self._state.store,
            record.number,
            record.token,
            record.task,
            record.attempts + 1,
            request.worker,
            request.lease_for,
            record.failures,
            record.throttles,
            queue.rules,
            queue.politeness,
            waited=(now - record.due) / 1000,
        )
        if record.answer is not None:
            set_last_answer(lease, record.answer, now - record.answered)
        return lease


def _draw_delay(queue: Queue, record: TaskRecord, lease: Lease, roll: float, now: int) -> None:
    """D1: draw the delay that counts from the start of this visit; it is the last delay now."""
    rules, state = queue.rules.politeness, queue.politeness
    record.drawn = drawn = draw_delay(rules, roll)
    delay = delay_at_start(rules, drawn, state.crawl_delay, state.level)
    queue.politeness = msgspec.structs.replace(state, last_delay=delay)
    queue.postpone(now + to_ms(delay), "delay")
    msgspec.structs.force_setattr(lease, "delay", drawn)


def set_last_answer(lease: Lease, answer: Answer, age: int) -> None:
    """G3: add a task's last answer and its age in milliseconds to a lease."""
    msgspec.structs.force_setattr(lease, "last", Last(answer, max(0, age) / 1000))


def _can_be_named(record: TaskRecord, now: int) -> bool:
    queue = record.queue
    is_free = queue.retired is None and not queue.paused and not queue.is_over_budget()
    return is_free and record.state is PENDING and record.due <= now
