"""The plans of verbs on a PostgreSQL server: they read what they need, not what exists (M4, C3).

Every statement of a verb is explained while it runs, by the plan that is kept for it. The crawls
are small here; `make plans` looks at a million queues (OUTRIDER_PLAN_ROWS).
"""

import os
import re
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from outrider.clock import SystemClock
from outrider.core.states import TaskState
from outrider.store.postgres import PostgresStore, runner, sql
from outrider.store.postgres.pipeline import Pipeline
from outrider.store.protocol import ClaimRequest, PriorityUpdate, SharedValueWrite, TaskFilter
from outrider.testing.builders import done, rules, task
from postgres_fill import fill

ROWS = int(os.environ.get("OUTRIDER_PLAN_ROWS", "20000"))  # noqa: TID251 - the runner's choice
CRAWL = "test"
BATCH = 100
HOUR = 3_600_000
TABLE = re.compile(r"\b(from|join) (queue|task|pending|delayed|ready|snooze|inactive|lease|note)\b")
VOLATILE = re.compile(r"\b(clock_timestamp|statement_timestamp|random|timeofday)\b", re.IGNORECASE)


class Plan:
    """The plan of one statement, and what it read."""

    def __init__(self, statement, top):
        self.statement = statement
        self.nodes = list(_nodes(top["Plan"]))
        self.blocks = top["Plan"]["Shared Hit Blocks"] + top["Plan"]["Shared Read Blocks"]

    @property
    def rows(self):
        """Rows of tables that were read, including those that were filtered out."""
        return sum(
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            for node in self.nodes
            if "Relation Name" in node and "Scan" in node["Node Type"]
        )

    @property
    def scans(self):
        """How tables were read."""
        return {node["Node Type"] for node in self.nodes if "Relation Name" in node}


def _nodes(node):
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


@pytest.fixture
def plans(monkeypatch):
    """Return a function that starts recording the plans of all statements."""
    found = []

    class Explained(Pipeline):
        """Explains statements that touch tables, before they run."""

        def send(self, statement, params=()):
            verb = statement.split(maxsplit=1)[0]
            uses_tables = verb in ("insert", "update", "delete") or TABLE.search(statement)
            if uses_tables:
                self._say("savepoint before")
                found.append(Plan(statement, self._explained(statement, params)))
                self._say("rollback to before")
            return super().send(statement, params)

        def _explained(self, statement, params):
            numbers = iter(range(1, len(params) + 1))
            numbered = re.sub("%s", lambda _: f"${next(numbers)}", statement)
            values = psycopg.ClientCursor(self._connection).mogrify(
                ", ".join(["%s"] * len(params)), params
            )
            self._say(f"prepare explained as {numbered}")
            explain = "explain (analyze, buffers, format json) execute explained"
            ((plan,),) = self._say(f"{explain} ({values})" if params else explain).fetchall()
            self._say("deallocate explained")
            return plan[0]

        def _say(self, text):
            return self._connection.cursor().execute(text, prepare=False)

    def begin():
        found.clear()
        monkeypatch.setattr(runner, "Pipeline", Explained)
        return found

    return begin


@pytest.fixture
def make(places):
    """Return a function that makes a store with a large crawl."""

    async def make(**filled):
        url = places.take("postgres")
        store = await PostgresStore.open(url, SystemClock())
        await store.configure(CRAWL, rules())
        schema = parse_qs(urlsplit(url).query)["schema"][0]
        with psycopg.connect(url.partition("?")[0], autocommit=True) as line:
            line.execute(f"set search_path to {schema}")
            fill(line, CRAWL, queues=ROWS, **filled)
        return store

    return make


def most(plans):
    """Return the statement that read most rows, for a message."""
    return max(plans, key=lambda plan: plan.rows).statement[:200]


def assert_cheap(plans, *, rows, blocks):
    """Assert that only indexes were read, and no more rows than the verb needs."""
    assert plans
    scans = {scan for plan in plans for scan in plan.scans}
    assert scans <= {"Index Scan", "Index Only Scan", "Tid Scan", "ModifyTable"}, scans
    assert sum(plan.rows for plan in plans) <= rows, most(plans)
    assert sum(plan.blocks for plan in plans) <= blocks


@pytest.mark.parametrize("is_routine", [True, False], ids=["routine", "judged"])
async def test_claim_and_finish_read_rows_in_proportion_to_the_leases(make, plans, is_routine):
    """C3: however many queues are ready, and however many tasks are pending in them."""
    store, begin = await make(each=2, is_routine=is_routine), plans
    found = begin()

    claimed = await store.claim(ClaimRequest(CRAWL, "w", BATCH))

    assert len(claimed.leases) == BATCH
    assert_cheap(found, rows=12 * BATCH, blocks=120 * BATCH)
    begin()
    assert all(end.applied for end in await store.finish([done(x) for x in claimed.leases]))
    assert_cheap(found, rows=12 * BATCH, blocks=120 * BATCH)
    await store.close()


async def test_empty_claim_reads_a_handful_of_rows(make, plans):
    """C3: with a million queues that wait, a claim reads the first wake time."""
    store = await make(asleep_until=SystemClock().now_ms() + HOUR)
    found = plans()

    claimed = await store.claim(ClaimRequest(CRAWL, "w", BATCH))

    assert not claimed.leases
    assert 3500 < claimed.wake_in <= 3600
    assert_cheap(found, rows=8, blocks=100)
    await store.close()


async def test_add_reads_only_the_queues_it_adds_to(make, plans):
    """B3: neither the known tasks nor the other queues."""
    store = await make()
    new = [
        task(f"https://h{n}.example/new", key=f"h{n}.example", crawl=CRAWL, depth=n % 4)
        for n in range(1, 31)
    ]
    found = plans()

    assert all(answer.added for answer in await store.add(new))
    assert_cheap(found, rows=12 * len(new), blocks=120 * len(new))
    await store.close()


async def test_priority_update_reads_only_the_tasks_it_moves(make, plans):
    """C8: neither the other tasks of its queues nor other queues."""
    store = await make(each=2)
    tasks = (await store.tasks(CRAWL, TaskFilter(), limit=BATCH)).items
    found = plans()

    prices = [PriorityUpdate(one.number, one.priority, -one.priority) for one in tasks]
    assert await store.update_priorities(CRAWL, prices) == BATCH
    assert_cheap(found, rows=12 * BATCH, blocks=120 * BATCH)
    await store.close()


async def test_links_that_gather_are_looked_up_in_one_statement(make, plans):
    """F10: links to known pages of many queues are as many statements as links to a few."""
    store = await make(each=2)
    shared = {"crawl": CRAWL, "priority": -1.0, "known": "gather"}
    links = [
        task(one.url, key=one.key, fingerprint=one.fingerprint, **shared)
        for one in (await store.tasks(CRAWL, TaskFilter(), limit=BATCH)).items
    ]
    found = plans()

    assert not any(answer.added for answer in await store.add(links))
    assert_cheap(found, rows=12 * BATCH, blocks=120 * BATCH)
    assert len(found) < 20
    await store.close()


async def test_write_of_shared_values_reads_only_the_replaced_ones(make, plans):
    """N1: writing some values and reading new ones reads no others."""
    store = await make()
    await store.put_values(CRAWL, [SharedValueWrite("t", str(n), "x") for n in range(2000)])
    found = plans()

    numbers = await store.put_values(
        CRAWL, [SharedValueWrite("t", str(n), "y") for n in range(0, 2000, 100)]
    )
    assert_cheap(found, rows=6 * len(numbers), blocks=60 * len(numbers))
    begin = plans()
    assert [note.number for note in await store.values_since(CRAWL, after=2000)] == numbers
    assert_cheap(begin, rows=2 * len(numbers), blocks=10 * len(numbers))
    await store.close()


async def test_listing_a_queue_reads_its_tasks_alone(make, plans):
    """E8: a page of a queue costs as much in a crawl of any size."""
    store, begin = await make(each=1), plans
    links = [task(f"https://h7.example/more/{n}", crawl=CRAWL) for n in range(3 * BATCH)]
    await store.add(links)

    found = begin()
    first = await store.queue_tasks(CRAWL, "h7.example", limit=BATCH)
    assert len(first.items) == BATCH
    assert_cheap(found, rows=5 * BATCH, blocks=25 * BATCH)
    begin()
    rest = await store.queue_tasks(
        CRAWL, "h7.example", state=TaskState.PENDING, after=first.after, limit=5 * BATCH
    )
    assert len(rest.items) == 2 * BATCH + 1
    assert_cheap(found, rows=20 * BATCH, blocks=60 * BATCH)
    await store.close()


async def test_queues_in_order_read_their_page_alone(make, plans):
    """E8: a page of an order costs as much in a crawl of any size."""
    store, begin = await make(asleep_until=SystemClock().now_ms() + HOUR), plans

    found = begin()
    by_key = await store.queues_in_order(CRAWL, "key", prefix="h1", after=">h15", limit=BATCH)
    assert [view.key for view in by_key.items][:2] == ["h15.example", "h150.example"]
    assert_cheap(found, rows=5 * BATCH, blocks=25 * BATCH)
    begin()
    by_wake = await store.queues_in_order(CRAWL, "wake", limit=BATCH)
    again = await store.queues_in_order(CRAWL, "wake", after=by_wake.after, limit=BATCH)
    assert again.items[0].key == f"h{BATCH + 1}.example"
    assert_cheap(found, rows=25 * BATCH, blocks=100 * BATCH)
    await store.close()


def all_statements():
    """The statements of all files, by name."""
    return {name: statement.text for name, statement in sql.STATEMENTS.items()}


def test_rows_that_move_are_deleted_without_a_join():
    """A plan may stem from when a table was empty: then a join would read all of it, each time."""
    searching = re.compile(r"delete from (ready|pending|delayed|snooze|inactive|lease) \w* ?using")

    assert not [text for text in all_statements().values() if searching.search(text)]


def test_no_statement_uses_a_volatile_function():
    """M4: a volatile function defeats every index; the clock is a parameter, or stable."""
    texts = all_statements()
    found = {name for name, text in texts.items() if VOLATILE.search(text)}

    assert len(texts) > 50
    assert not found
    assert "now()" in texts["open_transaction"]
