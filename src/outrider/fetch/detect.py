"""The block detector: tells a challenge or denial page from the page that was asked for (G0).

An ordinary page must never be taken for one. So a page with status 200 needs a vendor's own mark
and next to no text, and words alone count only on pages that say nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from outrider.core.outcome import SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS
from outrider.errors import SettingsError
from outrider.fetch.block_signs import (
    APPLICATION,
    BY_TITLE,
    DENIED,
    DETOURS,
    FIELDS,
    HINTS,
    SUSPECTED,
    UNTITLED,
    VENDORS,
    WIDGETS,
)
from outrider.fetch.response import Response
from outrider.settings.code_references import resolve

Detector: TypeAlias = Callable[[Response], str | None]

MOST_SCANNED: Final = 64 * 1024
MOST_BARE: Final = 10 * 1024  # of a page that is known by marks alone
MOST_SHORT: Final = 4 * 1024  # of a page that is known by its words
MOST_TEXT: Final = 2500  # characters that a challenge says, at most
MOST_WORDS: Final = 700  # characters of a page that is known by its words

_HEAD: Final = 4096
_NOT_DENIED: Final = frozenset((401, 404, 407, 410))  # these mean what they say
_READ: Final = ("text/html", "text/plain", "application/xhtml")
_HIDDEN: Final = re.compile(rb"<(script|style|template|svg)\b|<!--").search
_TAG: Final = re.compile(rb"<[^<>]*>?")


def detect(response: Response) -> str | None:
    """Why a response is a block, such as "challenge: cloudflare"; None if it is an answer."""
    status, body = response.status, response.body
    reason = _by_fields(response)
    if reason is not None:
        return reason
    if 300 <= status < 400:
        return _by_detour(response)
    if 200 <= status < 300:
        return _in_place_of_a_page(body) if len(body) <= MOST_SCANNED else None
    is_denial = 400 <= status < 500 or status == SERVICE_UNAVAILABLE
    return _denied(response) if is_denial and status not in _NOT_DENIED else None


def detector_of(setting: object) -> Detector | None:
    """The detector that a setting means; None: every response is taken as it is."""
    if setting == "none":
        return None
    found = detect if setting == "default" else resolve(setting, "fetch.detector")
    if not callable(found):
        raise SettingsError(
            f"fetch.detector = {setting!r}: give default, none, module:function or a function"
        )
    detector: Detector = found
    return detector


def _by_fields(response: Response) -> str | None:
    for name, value in response.headers:
        known = FIELDS.get(name.lower())
        if known is not None and (not known[1] or value.strip().lower() in known[1]):
            return known[0]
    return None


def _by_detour(response: Response) -> str | None:
    target = (response.header("location") or "")[:512]
    return next((reason for part, reason in DETOURS if part in target), None)


def _in_place_of_a_page(body: bytes) -> str | None:
    """Marks count only where there is next to no text: a page may well speak of challenges."""
    reason = _by_title(body)
    if reason is None and len(body) <= MOST_BARE:
        reason = next((reason for mark, reason in UNTITLED if mark in body), None)
    if reason is not None:
        return reason if len(_text(body)) <= MOST_TEXT else None
    if len(body) <= MOST_SHORT and any(hint in body for hint in HINTS):
        return _by_words(body, SUSPECTED)
    return None


def _by_title(body: bytes) -> str | None:
    vendors = BY_TITLE.get(_title(body), ())
    return next((one.reason for one in vendors if any(mark in body for mark in one.marks)), None)


def _title(body: bytes) -> bytes:
    tag = body.find(b"<title", 0, _HEAD)
    tag = body.find(b"<TITLE", 0, _HEAD) if tag < 0 else tag
    start = body.find(b">", tag, tag + 200) + 1
    end = body.find(b"</", start, start + 200)
    return body[start:end].strip().lower() if tag >= 0 and start > 0 and end > 0 else b""


def _denied(response: Response) -> str | None:
    """A status that refuses: a mark is enough. Too Many Requests needs no words to be believed."""
    body = response.body[:MOST_SCANNED]
    marked = (one.reason for one in VENDORS if any(mark in body for mark in one.marks))
    reason = next(marked, None)
    if reason is not None or response.status == TOO_MANY_REQUESTS:
        return reason
    if not (response.header("content-type") or _READ[0]).lower().startswith(_READ):
        return None
    if any(widget in body for widget in WIDGETS) and len(_text(body)) <= MOST_WORDS:
        return "challenge: captcha"
    if len(body) > MOST_SHORT:
        return None
    return _by_words(body, SUSPECTED) or _by_words(body, DENIED)


def _by_words(body: bytes, words: re.Pattern[str]) -> str | None:
    text = _text(body)
    if len(text) > MOST_WORDS or not words.search(text) or APPLICATION.search(text):
        return None
    return "denied: short page"


def _text(body: bytes) -> str:
    """What a reader sees, in lower case. Not parsed: hostile nesting would make that slow."""
    body = body[:MOST_SCANNED].lower()
    shown, start = [], 0
    while (hidden := _HIDDEN(body, start)) is not None:
        shown.append(body[start : hidden.start()])
        start = body.find(b"-->" if hidden[1] is None else b"</" + hidden[1], hidden.end())
        if start < 0:
            break
    if start >= 0:
        shown.append(body[start:])
    text = _TAG.sub(b" ", b" ".join(shown)).decode("utf-8", "replace")
    return " ".join(text.replace("&#39;", "'").replace("&nbsp;", " ").split())
