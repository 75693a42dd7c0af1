"""The naive model: the definition of the rules, with lists that are sorted on every call.

Every branch names its rule. When a store and the model differ, one of them is wrong; when a rule is
unclear, it is decided here first (docs/adr). It is slow on purpose: never use it for a crawl. Its
parts are read in this order: records, views, schedule, verbs, admin, export.
"""

from outrider.testing.model.export import Export


class Model(Export):
    """The naive store: `Store`, `Admin` and `Inspect` in the plainest possible code."""


__all__ = ["Model"]
