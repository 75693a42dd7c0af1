"""What goes over the socket: a hello from each side, then numbered requests and their answers.

A frame is its length in four bytes, big-endian, and that much msgpack; nobody believes a length
beyond MAX_FRAME. What arrives is decoded to declared types: nothing that is read here runs code.
"""

from __future__ import annotations

from asyncio import StreamReader
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Literal

import msgspec

from outrider import errors
from outrider.errors import InvalidInput, OutriderError, StoreError

PROTOCOL: Final = 4  # raised when a verb or a value of the store protocol changes
MAX_FRAME: Final = 64 * 2**20
BUFFER: Final = 2**20  # what a side reads ahead before the kernel has to wait

_HEADER: Final = 4
_KINDS: Final[dict[str, type[OutriderError]]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, OutriderError)
}


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Who speaks; understood by every release, so fields are only ever added at its end."""

    name: Literal["outrider"]
    protocol: int
    version: str
    store: str = ""  # the owner's; the other side has none
    refusal: str = ""  # why the owner will not serve


class Request(msgspec.Struct, frozen=True, array_like=True):
    """A verb of the seam with its arguments by name, still encoded."""

    id: int
    verb: str
    arguments: msgspec.Raw


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What the verb returned, still encoded; or the error it raised, and its message."""

    id: int
    error: str  # "": none
    message: str
    value: msgspec.Raw


def hello(store: str = "", refusal: str = "") -> Hello:
    """What this side says first."""
    return Hello("outrider", PROTOCOL, _release(), store, refusal)


@lru_cache(maxsize=1)
def _release() -> str:
    try:
        return version("outrider")
    except PackageNotFoundError:
        return "unknown"


def answer(number: int, value: Any) -> Answer:
    """A verb's own answer."""
    return Answer(number, "", "", encode(value))


def complaint(number: int, error: Exception) -> Answer:
    """An error as the nearest of our own kinds; any other is the store's fault."""
    for kind in type(error).__mro__:
        if _KINDS.get(kind.__name__) is kind:
            return Answer(number, kind.__name__, _plain(str(error)), _NOTHING)
    message = f"the store failed with {type(error).__name__}: {error}"
    return Answer(number, StoreError.__name__, _plain(message), _NOTHING)


def _plain(text: str) -> str:
    """UTF-8 has no lone surrogates, and an error about them must arrive all the same."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def raised(answer: Answer) -> OutriderError:
    """The error an answer carries, of the class it was raised as."""
    return _KINDS.get(answer.error, StoreError)(answer.message)


def encode(value: Any) -> msgspec.Raw:
    """Any value of the seam as msgpack."""
    try:
        return msgspec.Raw(_ENCODER.encode(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"this cannot be sent to the store: {error}") from error


def _stand_in(value: Any) -> str:
    """Stores carry a user's cost function and never call it: its place is kept, not its code."""
    if callable(value):
        return "custom"
    raise TypeError(f"a {type(value).__name__} is no value of the seam")


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_stand_in)
_NOTHING: Final = encode(None)


def frame(message: Hello | Request | Answer) -> bytes:
    """A message as it goes over the socket."""
    body = _ENCODER.encode(message)
    if len(body) > MAX_FRAME:
        raise InvalidInput(
            f"{len(body)} bytes are too many for one call to the store (at most {MAX_FRAME}): "
            "hand in, or ask for, less at a time"
        )
    return len(body).to_bytes(_HEADER, "big") + body


async def read_frame(reader: StreamReader) -> bytes:
    """The next frame's msgpack; EOFError when the other side has gone."""
    size = int.from_bytes(await reader.readexactly(_HEADER), "big")
    if size > MAX_FRAME:
        raise StoreError(f"a frame of {size} bytes was announced, the most is {MAX_FRAME}")
    return await reader.readexactly(size)


read_hello: Final = msgspec.msgpack.Decoder(Hello).decode
read_request: Final = msgspec.msgpack.Decoder(Request).decode
read_answer: Final = msgspec.msgpack.Decoder(Answer).decode
