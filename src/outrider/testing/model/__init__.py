"""The naive model: the definition of the rules. Lists sorted on every call, nothing clever.

Every branch names its rule. When a store and the model differ, one of them is wrong; when a rule is
unclear, it is decided here first (docs/adr). Slow on purpose: never use it for a crawl.
"""

from outrider.testing.model.export import Saving


class Model(Saving):
    """A store that is obviously right: Store, Admin and Inspect."""


__all__ = ["Model"]
