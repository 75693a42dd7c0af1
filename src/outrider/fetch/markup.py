"""XML read piece by piece, without entities, internal DTD, or anything from outside.

What was read before a fault is kept: the fault is told at the end.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from xml.parsers import expat

DEEPEST: Final = 256
LONGEST_TEXT: Final = 16_384  # characters kept of one element
LONGEST_TOKEN: Final = 2**20  # bytes without an end: expat would read them again and again
PIECE: Final = 65_536


class Element(NamedTuple):
    """An element that has ended: local names in lower case, attributes as written."""

    parent: str
    name: str
    attributes: dict[str, str]
    text: str


class _Refused(Exception):
    """The document holds something that is not read."""


class Elements:
    """The elements of some names in a document, in the order of their ends."""

    def __init__(self, pieces: Iterable[bytes], codec: str, names: frozenset[str]) -> None:
        self.root = ""
        self.base: str | None = None  # xml:base of the root
        self.fault: str | None = None
        self._pieces = pieces
        self._codec = codec
        self._names = names
        self._path: list[str] = [""]
        self._open: list[tuple[dict[str, str], list[str]]] = []
        self._room = 0
        self._ended: list[Element] = []

    def __iter__(self) -> Iterator[Element]:
        try:
            yield from self._read()
        except _Refused as refusal:
            self.fault = str(refusal)
        except expat.ExpatError as error:
            self.fault = f"malformed: {expat.ErrorString(error.code)}, line {error.lineno}"
        yield from self._taken()

    def _read(self) -> Iterator[Element]:
        parser = self._parser()
        decode = codecs.getincrementaldecoder(self._codec)("replace").decode
        given = 0
        for piece in self._pieces:
            data = decode(piece).encode()
            given += len(data)
            parser.Parse(data, False)
            if given - max(parser.CurrentByteIndex, 0) > LONGEST_TOKEN:
                raise _Refused("a tag or comment is too long")
            yield from self._taken()
        parser.Parse(decode(b"", True).encode(), True)

    def _parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate("utf-8")
        parser.UseForeignDTD(True)  # none is loaded; but `&nbsp;` is passed over, not an error
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _doctype
        parser.EntityDeclHandler = _entity
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        return parser

    def _taken(self) -> list[Element]:
        taken, self._ended = self._ended, []
        return taken

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(":")[2].lower()
        if len(self._path) == 1:
            self.root, self.base = local, attributes.get("xml:base")
        if len(self._path) > DEEPEST:
            raise _Refused(f"elements are nested deeper than {DEEPEST}")
        self._path.append(local)
        if local in self._names:
            self._open.append((attributes, []))
            self._room = LONGEST_TEXT

    def _text(self, text: str) -> None:
        if self._open and self._path[-1] in self._names and self._room > 0:
            self._open[-1][1].append(text[: self._room])
            self._room -= len(text)

    def _end(self, _: str) -> None:
        local = self._path.pop()
        if local in self._names:
            attributes, texts = self._open.pop()
            self._ended.append(Element(self._path[-1], local, attributes, "".join(texts)))


def _doctype(_name: str, _system: str | None, _public: str | None, has_subset: int) -> None:
    if has_subset:
        raise _Refused("a document type of its own is not read")


def _entity(*_: object) -> None:
    raise _Refused("an entity is declared")


def pieces_of(body: bytes) -> Iterator[bytes]:
    """A body in pieces."""
    return (body[at : at + PIECE] for at in range(0, len(body), PIECE))
