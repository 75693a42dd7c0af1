"""PostgreSQL: the same frontier for any number of workers."""

from outrider.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
