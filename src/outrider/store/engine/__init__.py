"""The engine: the scheduling code that the memory, embedded and PostgreSQL stores share."""
