"""The `outrider` command; needs the `cli` extra, and says so if it is missing."""

from __future__ import annotations

import gc
import sys

_MISSING = """\
The outrider command needs two more packages. Install them with:
    pip install 'outrider[cli]'
"""


def main() -> None:
    """Run the command line, and exit with its code."""
    gc.disable()  # imports create no garbage; saves a tenth of a short command's time
    try:
        from outrider.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("rich", "typer", "click"):
            raise
        sys.stderr.write(_MISSING)
        sys.exit(2)
    gc.freeze()
    gc.enable()
    sys.exit(run())
