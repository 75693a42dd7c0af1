"""Scripts put together: every transition is one, of pieces of Lua that know rows and keys by name.

A name in capitals is a number or a text that is put in here: `Q_TURN` is the place of a queue's
turn in its row, `K_ALARMS` a key. So rows and keys are named once, and a wrong name is found at
import.
"""

from __future__ import annotations

import re
from hashlib import sha1
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from outrider.store.redis import keys
from outrider.store.redis.rows import (
    FORMAT,
    HEAD_BYTES,
    ROW,
    CrawlRow,
    QueueRow,
    RulesRow,
    TaskRow,
    VerdictRow,
)
from outrider.store.saved import RESTORING

CHUNK: Final = 4096  # tasks, and queues, of one hash
BUCKET: Final = 64  # names of one hash: the server keeps few compact
CHANGES_KEPT: Final = 10_000
TIMELINE_KEPT: Final = 100
EXPIRE_STEP: Final = 250  # overdue leases one call takes back
WAKE_STEP: Final = 512  # queues one call wakes
RIPEN_MOST: Final = 1000  # delayed tasks of a queue that become due at one look
SCAN_MOST: Final = 256  # tasks of a lane whose instants are looked at
AHEAD_MOST: Final = 64  # ready queues read at once
NOTES_BYTES: Final = 1 << 20  # of notes that one call tells
DELAYED_MOST: Final = 10_000  # delayed tasks of a queue among which a place is counted


class Script(NamedTuple):
    """A script as the server is told and asked for it."""

    text: str
    name: str  # its digest, by which the server knows it


_PIECES: Final = ("crawl", "books", "ordering", "standing")
_FOUND: Final = (*_PIECES, "known")
_BORN: Final = (*_FOUND, "pricing", "adding")

_RECIPES: Final = {
    "settle": (),
    "add": _BORN,
    "claim": (*_FOUND, "ending", "claiming"),
    "extend": (*_PIECES, "ending"),
    "finish": (*_BORN, "ending", "finishing"),
    "release": (*_PIECES, "ending"),
    "expire": (*_PIECES, "ending"),
    "configure": (*_PIECES, "obeying"),
    "rerank": _PIECES,
    "steer": (*_BORN, "obeying"),
    "turn": _PIECES,
    "each": _PIECES,
    "roots": _PIECES,
    "beat": _PIECES,
    "note": _PIECES,
    "reprice": (*_PIECES, "pricing"),
    "reckon": _PIECES,
    "work": _PIECES,
    "restore": (*_BORN, "obeying", "restoring"),
    "see": ("crawl",),
    "see_crawl": ("crawl",),
    "see_queues": (*_FOUND, "seeing"),
    "see_tasks": _FOUND,
    "see_upcoming": _FOUND,
    "see_place": (*_FOUND, "seeing"),
    "see_changes": ("crawl",),
    "see_notes": ("crawl",),
    "see_keys": _PIECES,
    "see_known": _FOUND,
    "see_export": _PIECES,
}


def _places(letter: str, row: type[msgspec.Struct], *, after: int = 0) -> dict[str, str]:
    return {
        f"{letter}_{field.upper()}": str(place)
        for place, field in enumerate(row.__struct_fields__, after + 1)
    }


def _names() -> dict[str, str]:
    return {
        **_places("C", CrawlRow),
        **_places("Q", QueueRow),
        **_places("T", TaskRow),
        **_places("R", RulesRow),
        **_places("V", VerdictRow, after=1),
        "VERDICT_FIELDS": str(len(VerdictRow.__struct_fields__)),
        **{f"K_{name.upper()}": f"'{key}'" for name, key in keys.OF_A_CRAWL.items()},
        **dict(zip(("PENDING", "LEASED", "DONE", "DEAD", "DROPPED"), "01234", strict=True)),
        **dict(zip(("NEITHER", "READY", "INACTIVE"), "012", strict=True)),
        **dict(zip(("KEEP", "RAISE", "REVISIT", "GATHER"), "0123", strict=True)),
        "HEAD_BYTES": str(HEAD_BYTES),
        "AHEAD_MOST": str(AHEAD_MOST),
        "K_CRAWLS": f"'{keys.CRAWLS}'",
        "META": f"'{keys.META}'",
        "FORMAT": str(FORMAT),
        "ROW": str(ROW),
        "CHUNK": str(CHUNK),
        "BUCKET": str(BUCKET),
        "LOG_KEPT": str(CHANGES_KEPT),
        "TIMELINE_KEPT": str(TIMELINE_KEPT),
        "EXPIRE_STEP": str(EXPIRE_STEP),
        "WAKE_STEP": str(WAKE_STEP),
        "RIPEN_MOST": str(RIPEN_MOST),
        "SCAN_MOST": str(SCAN_MOST),
        "DELAYED_MOST": str(DELAYED_MOST),
        "NOTES_BYTES": str(NOTES_BYTES),
        "NO_RANK": "'" + r"\0" * 10 + "'",
        "RESTORING": f"'{RESTORING}'",
    }


def _assembled() -> dict[str, Script]:
    room, names = Path(__file__).parent / "scripts", _names()

    def put_in(found: re.Match[str]) -> str:
        return names[found[0]] if found[0] in names or found[1] else found[0]

    def piece(name: str) -> str:
        text = (room / f"{name}.lua").read_text(encoding="utf-8")
        return re.sub(r"\b(?:([CQTRVK]_)[A-Z]\w*|[A-Z]\w*)\b", put_in, text)

    scripts = {}
    for verb, pieces in _RECIPES.items():
        text = "".join(piece(name) for name in (*pieces, verb))
        scripts[verb] = Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())
    return scripts


SCRIPTS: Final = _assembled()
