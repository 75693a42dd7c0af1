"""The frames on the socket: a hello from each side, then numbered requests and their answers.

A client may subscribe to crawls. Then an answer numbered NOTIFICATION, which no request has, comes
with the name of a crawl whenever a claim may find more there (C6).

A frame is its length in four bytes, big-endian, and that much msgpack; a length above MAX_FRAME is
refused. Everything is decoded to declared types, so nothing that is read runs code.
"""

from __future__ import annotations

from asyncio import StreamReader
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from outrider import errors
from outrider.errors import InvalidInput, OutriderError, StoreError

PROTOCOL: Final = 5  # raised when a verb or a value of the store protocol changes
MAX_FRAME: Final = 64 * 2**20
NOTIFICATION: Final = 0
MAX_CRAWL_CHARS: Final = 1024  # of a crawl that is subscribed to
BUFFER: Final = 2**20  # bytes read ahead before the peer is blocked

_HEADER: Final = 4
_ERROR_CLASSES: Final[dict[str, type[OutriderError]]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, OutriderError)
}


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of each side. Every release decodes it: add fields only at its end."""

    name: Literal["outrider"]
    protocol: int
    version: str
    store: str = ""  # the id of the holder's store; a client sends none
    refusal: str = ""  # why the holder does not serve this client


class Request(msgspec.Struct, frozen=True, array_like=True):
    """A verb of the store protocol with its arguments by name, still encoded."""

    id: int
    verb: str
    arguments: msgspec.Raw


class Subscribe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of the requests `subscribe` and `unsubscribe`."""

    crawl: Annotated[str, Meta(max_length=MAX_CRAWL_CHARS)]


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The verb's return value, still encoded, or the error it raised and its message."""

    id: int
    error: str  # "": none
    message: str
    value: msgspec.Raw


def hello(store: str = "", refusal: str = "") -> Hello:
    """Build the hello of this side."""
    return Hello("outrider", PROTOCOL, _release(), store, refusal)


@lru_cache(maxsize=1)
def _release() -> str:
    try:
        return version("outrider")
    except PackageNotFoundError:
        return "unknown"


def answer(number: int, value: Any) -> Answer:
    """Build the answer that carries a return value."""
    return Answer(number, "", "", encode(value))


def error_answer(number: int, error: Exception) -> Answer:
    """Build the answer that carries an error as its nearest Outrider class, else `StoreError`."""
    for kind in type(error).__mro__:
        if _ERROR_CLASSES.get(kind.__name__) is kind:
            return Answer(number, kind.__name__, _without_surrogates(str(error)), _NOTHING)
    message = f"the store failed with {type(error).__name__}: {error}"
    return Answer(number, StoreError.__name__, _without_surrogates(message), _NOTHING)


def _without_surrogates(text: str) -> str:
    """Escape lone surrogates, which UTF-8 can't encode: an error about them must still arrive."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def error_of(answer: Answer) -> OutriderError:
    """Return the error that an answer carries, of the class it was raised as."""
    return _ERROR_CLASSES.get(answer.error, StoreError)(answer.message)


def encode(value: Any) -> msgspec.Raw:
    """Encode a value of the store protocol as msgpack."""
    try:
        return msgspec.Raw(_ENCODER.encode(value))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"this cannot be sent to the store: {error}") from error


def _encode_function(value: Any) -> str:
    """Encode a user's cost function as a marker: stores keep rules with it and never call it."""
    if callable(value):
        return "custom"
    raise TypeError(f"a {type(value).__name__} is not a value of the store protocol")


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_encode_function)
_NOTHING: Final = encode(None)


def frame(message: Hello | Request | Answer) -> bytes:
    """Encode a message as one frame."""
    body = _ENCODER.encode(message)
    if len(body) > MAX_FRAME:
        raise InvalidInput(
            f"{len(body)} bytes are too many for one call to the store (at most {MAX_FRAME}): "
            "use smaller batches"
        )
    return len(body).to_bytes(_HEADER, "big") + body


async def read_frame(reader: StreamReader) -> bytes:
    """Read the next frame's msgpack; EOFError if the peer closed the connection."""
    size = int.from_bytes(await reader.readexactly(_HEADER), "big")
    if size > MAX_FRAME:
        raise StoreError(f"a frame of {size} bytes was announced; the maximum is {MAX_FRAME}")
    return await reader.readexactly(size)


def read_subscription(request: Request) -> str:
    """Return the crawl that a request subscribes to, or unsubscribes from."""
    try:
        return _read_subscribe(request.arguments).crawl
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{request.verb}: {error}") from error


_read_subscribe: Final = msgspec.msgpack.Decoder(Subscribe).decode
read_crawl: Final = msgspec.msgpack.Decoder(str).decode
read_hello: Final = msgspec.msgpack.Decoder(Hello).decode
read_request: Final = msgspec.msgpack.Decoder(Request).decode
read_answer: Final = msgspec.msgpack.Decoder(Answer).decode
