"""`outrider version`: which Outrider, on which Python."""

from __future__ import annotations

import platform
import sys

from outrider import __version__


def version() -> None:
    """Show the version."""
    sys.stdout.write(f"outrider {__version__}, Python {platform.python_version()}\n")
