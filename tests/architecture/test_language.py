"""Names and sentences of the package are plain technical English (CONTRIBUTING.md, Language)."""

import re
from pathlib import Path

import pytest

import outrider

SOURCE = Path(outrider.__file__).parent

# Words of a private language, each with its replacement. People do nothing in code: workers,
# processes and callers do.
WORDS = {
    r"who(m)?ever": "the worker, process or caller",
    r"(?<![\"'])(nobody|somebody|anybody)(?![\"'@/])": "no worker, a caller, …",
    r"anew": "again",
    r"of ours": "of Outrider",
    r"(goes|went) on": "resumes, continues",
    r"answers with": "returns",
    r"reads as": "is reported as",
    r"lends nothing": "leases no tasks",
    r"one a line": "one per line",
    r"(handed|hands) out": "leased",
    r"seam": "store protocol",
    r"footing|seating|stocking|roster|glimpse|ripe": "a noun of the field",
    r"umpire|witness|duel": "checker, differential test",
    r"strangers?": "unknown, unrelated",
}
CONSTANTS = {
    r"_?(MOST|LONGEST)": "MAX_…",
    r"_?LEAST": "MIN_…",
    r"_?PATIENCE": "…_TIMEOUT",
    r"_?TRIES": "MAX_ATTEMPTS",
    r"_?EVERY": "…INTERVAL",
}
# Applied migrations are never edited.
MIGRATIONS = "store/postgres/migrations/"


def sources():
    """List the files of the package, except applied migrations."""
    return [
        path
        for path in SOURCE.rglob("*")
        if path.suffix in {".py", ".lua", ".sql"}
        and not path.relative_to(SOURCE).as_posix().startswith(MIGRATIONS)
    ]


@pytest.mark.parametrize(
    ("words", "flags"), [(WORDS, re.IGNORECASE), (CONSTANTS, 0)], ids=["words", "constants"]
)
def test_private_words_are_not_used(words, flags):
    """A newcomer can look up every word."""
    pattern = re.compile(rf"\b(?:{'|'.join(words)})\b", flags)
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {match[0]}"
        for path in sources()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for match in pattern.finditer(line)
    ]

    assert found == []
