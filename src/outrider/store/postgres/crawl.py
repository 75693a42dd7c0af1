"""One crawl in one transaction: the rules of `heads` over a working set, written when it is done.

Verbs share the crawl: each holds a shared lock on its name. What concerns all of it, such as its
status and rules, changes only under a lock of its own: a verb that comes to such a change without
one is undone and run again with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from outrider.core.policy.rules import CrawlRules
from outrider.core.states import CrawlStatus
from outrider.store.heads.ledger import CHANGES_KEPT
from outrider.store.postgres import sql
from outrider.store.postgres.arrays import number_array, storable, text_array
from outrider.store.postgres.claiming import Claiming

_encode = msgspec.json.Encoder(enc_hook=lambda _: "custom").encode
rulebook_of = msgspec.json.Decoder(dict[int, CrawlRules]).decode
_timeline_of = msgspec.json.Decoder(list[tuple[float, str, str]]).decode
_rules_of = msgspec.json.Decoder(CrawlRules).decode

NO_RULES: Final = {0: CrawlRules()}


class NeedsWhole(Exception):
    """The whole crawl changes, and only a part of it is held."""


def plain_rules(rules: CrawlRules) -> CrawlRules:
    """Rules as they are kept: a cost function is the crawl's own affair."""
    return _rules_of(_encode(rules))


class ServerCrawl(Claiming):
    """All of it."""

    version = 0
    reorders = False
    delta_count = 0  # rows of counters appended

    def recall(self, row: tuple[Any, ...]) -> None:
        """Be what its row tells."""
        _, status, self.reason, self.settings, self.version, _, self.is_told, *rest = row
        self.status = CrawlStatus(status)
        self.at_finish, self.is_idle, self.runs, *rest = rest
        self.created, self.first, self.finished, timeline = rest
        self.timeline = deque(_timeline_of(timeline), self.timeline.maxlen)
        self._was, self._rules_were = self._gist(), self._rules_gist()

    def _gist(self) -> tuple[Any, ...]:
        """What concerns all of it, in the order of `WRITE_CRAWL`."""
        return (
            self.status.value,
            self.reason,
            self.settings,
            self.version,
            self.epoch,
            self.is_told,
            self.at_finish,
            self.is_idle,
            self.runs,
            self.created,
            self.first,
            self.finished,
            _encode(list(self.timeline)).decode(),
        )

    def _rules_gist(self) -> dict[int, int]:
        return {epoch: id(rules) for epoch, rules in self.rulebook.items()}

    def learn_last(self) -> None:
        """Its numbers as they are, for whoever holds all of it or only reads."""
        names = [self.sequence(name) for name in sql.SEQUENCES]
        ((self.count, self.queue_count, counter, arrivals, logged),) = self.wire.rows(
            sql.LAST_NUMBERS, names
        )
        if self.is_held or not self.writes:
            self.counter, self.arrivals, self.logged = counter, arrivals, logged
        self._last = (self.count, self.queue_count, counter, arrivals, logged)

    def obey(self, rules: CrawlRules) -> None:
        """See `Standing`: another order concerns those that are not at hand as well."""
        was_by_turn = getattr(self, "by_turn", None)
        super().obey(rules)
        self.reorders = self.reorders or was_by_turn not in (None, self.by_turn)

    def add_roots(self, mode: str, roots: Iterable[str]) -> None:
        """See `Ledger`."""
        if not self.is_held:
            raise NeedsWhole
        mode, names = storable(mode), text_array(roots)
        params = (self.id, mode, self.id, mode, names, self.id, mode)
        self.wire.send(sql.ADD_ROOTS, params)

    def load_roots(self) -> None:
        """To read all of them."""
        for mode, root in self.wire.rows(sql.READ_ALL_ROOTS, (self.id,)):
            self.roots.setdefault(mode, {})[root] = None

    # ---- writing

    def close(self) -> None:
        """The verb is done: hand in what it came to, and what concerns the crawl itself."""
        if not self.writes:
            return
        gist, rules = self._gist(), self._rules_gist()
        is_changed = gist != self._was or rules != self._rules_were or self.reorders
        if is_changed and not self.is_held:
            raise NeedsWhole
        if rules != self._rules_were:
            self._write_rules()
            gist = self._gist()
        self.write()
        if is_changed:
            self.wire.send(sql.UPDATE_CRAWL, (*map(_kept, gist), self.id))
        if self.reorders:
            self.wire.send(
                sql.ORDER_READY_BY_TURN if self.by_turn else sql.ORDER_READY_BY_PRIORITY, (self.id,)
            )
        self.delta_count = self.write_differences()
        self._write_events()
        if self.is_held:
            self._keep_numbers()

    def _write_rules(self) -> None:
        self.version += 1
        rulebook = {str(epoch): rules for epoch, rules in self.rulebook.items()}
        text = _encode(rulebook).decode()
        self.wire.send(sql.INSERT_RULES, (self.id, self.version, text))
        self.wire.send(sql.DELETE_OLD_RULES, (self.id, self.version))

    def _write_events(self) -> None:
        """Last, for they stand in the order in which they can be seen."""
        notes = list(self.log)
        if not notes:
            return
        last = self._numbered(len(notes))
        _, at, *words = zip(*notes, strict=True)
        numbers = number_array(range(last - len(notes) + 1, last + 1))
        self.wire.send(
            sql.ADD_EVENTS, (self.id, numbers, number_array(at), *map(text_array, words))
        )
        self.wire.send(sql.DELETE_OLD_EVENTS, (self.id, last - CHANGES_KEPT))

    def _numbered(self, count: int) -> int:
        """The number of the last of so many events."""
        if self.is_held:
            return self.logged
        self.wire.send(sql.LOCK_EXCLUSIVE, (self.events_key,))
        ((taken,),) = self.wire.rows(sql.NEXT_EVENT_NUMBERS, (self.sequence("events"), count))
        last: int = taken[-1]
        return last

    def _keep_numbers(self) -> None:
        """Whoever holds all of it counted by itself."""
        now = (self.count, self.queue_count, self.counter, self.arrivals, self.logged)
        for name, before, after in zip(sql.SEQUENCES, self._last, now, strict=True):
            if after > before:
                self.wire.send(sql.SET_LAST_NUMBER, (self.sequence(name), after))

    events_key = 0


def _kept(value: object) -> object:
    return storable(value) if isinstance(value, str) else value
