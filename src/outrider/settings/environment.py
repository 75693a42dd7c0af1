"""The environment, asked by name: the one place that looks into it."""

from __future__ import annotations

import os


def is_set(name: str) -> bool:
    """Whether a variable has a value, be it an empty one."""
    return name in os.environ
