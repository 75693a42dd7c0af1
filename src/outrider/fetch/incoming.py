"""Answers as curl hands them over, line by line and piece by piece: no more than is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from outrider.fetch.body import unpack
from outrider.fetch.client import FIELDS
from outrider.fetch.connection import INTERIM
from outrider.fetch.reasons import HEADERS, SIZE, SWITCHED
from outrider.fetch.reply import text_of

_ENOUGH: Final = 0xFFFFFFFF  # what curl takes for "no more"
_SWITCHING: Final = 101
_FINAL: Final = 200
_BODILESS: Final = (204, 304)  # a 304 tells the length of another
_STATUS_LINE: Final = re.compile(rb"HTTP/(\d(?:\.\d)?) (\d{3})(?: ([^\r\n]*))?\r?\n")
_DIGITS: Final = 19  # of a length; curl cannot count further


class Incoming:
    """One answer; `trouble` is the reason why the rest of it is not wanted."""

    def __init__(self, most: int, most_field: int, now: Callable[[], float]) -> None:
        self._most, self._most_field, self._now = most, most_field, now
        self._head_size = self._interim = 0
        # One buffer: a list of pieces costs up to 85 bytes for each byte that comes on its own.
        self._body = bytearray()
        self.trouble = ""
        self.heard = 0.0  # when the last of it came
        self.status = 0
        self.version = self.reason = ""
        self.fields: list[tuple[str, str]] = []
        self.is_headed = False  # the head is whole

    def line(self, line: bytes) -> int:
        """Take a line of a head, or of trailers."""
        self.heard = self._now()
        self._head_size += len(line)
        is_long = len(line) > self._most_field or self._head_size > 4 * self._most_field
        self.trouble = self.trouble or (HEADERS if is_long else self._lined(line))
        return _ENOUGH if self.trouble else len(line)

    def piece(self, piece: bytes) -> int:
        """Take a piece of the body."""
        self.heard = self._now()
        self._body += piece
        if len(self._body) > self._most:
            self.trouble = self.trouble or SIZE
        return _ENOUGH if self.trouble else len(piece)

    def _lined(self, line: bytes) -> str:
        if self.is_headed:
            return ""  # a trailer
        if not self.status:
            return self._began(line)
        if not line.strip():
            return self._headed()
        name, _, value = line.partition(b":")
        self.fields.append((name.decode("latin-1"), text_of(value.strip())))
        return HEADERS if len(self.fields) > FIELDS else ""

    def _began(self, line: bytes) -> str:
        parts = _STATUS_LINE.fullmatch(line)
        if parts is None:
            return "protocol: status line"
        self.version, self.status = parts[1].decode(), int(parts[2])
        self.reason = text_of((parts[3] or b"").strip())
        return SWITCHED if self.status == _SWITCHING else ""

    def _headed(self) -> str:
        if self.status >= _FINAL:
            self.is_headed = True
            return self._judged(set(self._values("content-length")))
        self.status, self.fields = 0, []
        self._interim += 1
        return "protocol: message" if self._interim > INTERIM else ""

    def _judged(self, lengths: set[str]) -> str:
        if self.status in _BODILESS or not lengths:
            return ""
        length = lengths.pop()
        is_odd = len(length) > _DIGITS or not length.isdecimal()
        if lengths or is_odd or self._values("transfer-encoding"):
            return "protocol: message"
        return SIZE if int(length) > self._most else ""

    def _values(self, wanted: str) -> list[str]:
        return [value for name, value in self.fields if name.lower() == wanted]

    def cut(self) -> str:
        """The reason if the connection ends here."""
        if self.is_headed:
            return "cut: body"
        return "cut: head" if self.status else "cut: no answer"

    def payload(self) -> bytes:
        """The body as it was sent."""
        return bytes(self._body)

    def unpacked(self, payload: bytes) -> bytes | str:
        """The body, or the reason why it cannot be had."""
        encodings = self._values("content-encoding")
        return unpack(payload, ",".join(encodings), self._most) if encodings else payload
