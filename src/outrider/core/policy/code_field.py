"""The mark of a setting that may refer to code: `Meta(extra=CODE)` on its type."""

from __future__ import annotations

from typing import Any, Final

# `module:function` in a marked field is imported, so it is taken only from the process itself:
# outrider.settings.foreign_code finds every marked field and applies that rule.
CODE: Final[dict[str, Any]] = {"code": True}
