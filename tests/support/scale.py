"""How often randomised tests repeat what they do.

`make test` tries each behaviour with a few seeds, kills and faults; `make stress` sets
OUTRIDER_ROUNDS to repeat the same tests with so many times more of them.
"""

import os

ROUNDS = int(os.environ.get("OUTRIDER_ROUNDS", "1"))  # noqa: TID251 - set by the runner
