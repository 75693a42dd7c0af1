"""The raw engine on PostgreSQL: COPY and merge, and a windowed poll.

The poll is iudex's way: rank the best 10,000 rows by host, lock those that are first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from outrider.core.task import Task

WINDOW = 10_000
SCHEMA = """
DROP SCHEMA IF EXISTS raw CASCADE;
CREATE SCHEMA raw;
CREATE TABLE raw.task (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fingerprint bytea NOT NULL UNIQUE,
    host text NOT NULL,
    url text NOT NULL,
    type text NOT NULL,
    depth int NOT NULL,
    priority double precision NOT NULL,
    state smallint NOT NULL DEFAULT 0
);
CREATE INDEX task_pending ON raw.task (priority, id) WHERE state = 0;
"""
MERGE = """
INSERT INTO raw.task (fingerprint, host, url, type, depth, priority)
SELECT DISTINCT ON (fingerprint) fingerprint, host, url, type, depth, priority FROM coming
ON CONFLICT DO NOTHING RETURNING fingerprint
"""
POLL = """
WITH best AS (
    SELECT id, host, priority FROM raw.task WHERE state = 0 ORDER BY priority, id LIMIT %s
), ranked AS (
    SELECT id, priority, row_number() OVER (PARTITION BY host ORDER BY priority, id) AS place
    FROM best
), chosen AS (
    SELECT task.id FROM raw.task JOIN ranked USING (id)
    WHERE ranked.place = 1 AND task.state = 0
    ORDER BY ranked.priority, id LIMIT %s FOR UPDATE OF task SKIP LOCKED
)
UPDATE raw.task SET state = 1 FROM chosen WHERE task.id = chosen.id RETURNING task.id, task.url
"""


class RawPostgres:
    """One connection; every call is one transaction."""

    def __init__(self, url: str) -> None:
        self._line: Any = psycopg.connect(url)
        self._line.execute(SCHEMA)
        self._line.execute(
            "CREATE TEMP TABLE coming (fingerprint bytea, host text, url text, type text,"
            " depth int, priority double precision) ON COMMIT DELETE ROWS"
        )
        self._line.commit()

    def add(self, tasks: Sequence[Task]) -> int:
        """How many were new."""
        with self._line.cursor() as cursor:
            with cursor.copy("COPY coming FROM STDIN") as copy:
                for task in tasks:
                    row = (task.fingerprint, task.key, task.url, task.type)
                    copy.write_row((*row, task.depth, task.priority))
            added = len(cursor.execute(MERGE).fetchall())
        self._line.commit()
        return added

    def claim(self, limit: int) -> list[int]:
        """At most one a host among the best rows."""
        rows = self._line.execute(POLL, (WINDOW, limit)).fetchall()
        self._line.commit()
        return [number for number, _ in rows]

    def finish(self, numbers: Sequence[int]) -> None:
        """They are done."""
        self._line.execute("UPDATE raw.task SET state = 2 WHERE id = ANY(%s)", (list(numbers),))
        self._line.commit()

    def settle(self) -> None:
        """Statistics and dead rows as a running server has them."""
        self._line.autocommit = True
        self._line.execute("VACUUM ANALYZE raw.task")
        self._line.autocommit = False

    def close(self) -> None:
        """Drop it all."""
        self._line.execute("DROP SCHEMA raw CASCADE")
        self._line.commit()
        self._line.close()
