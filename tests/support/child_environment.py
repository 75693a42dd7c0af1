"""The environment of child processes that import modules of `tests/support`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_SUPPORT: Final = str(Path(__file__).parent)


def child_environment() -> dict[str, str]:
    """Return a copy of this process's environment in which `tests/support` can be imported."""
    environment = dict(os.environ)  # noqa: TID251 - handed on to a child process
    paths = [_SUPPORT, *filter(None, [environment.get("PYTHONPATH")])]
    return environment | {"PYTHONPATH": os.pathsep.join(paths)}
