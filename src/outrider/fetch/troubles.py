"""What aiohttp raises, as reasons: the one place that knows its exceptions."""

from __future__ import annotations

import errno
import ssl
from typing import Final

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientSSLError,
    ConnectionTimeoutError,
    InvalidURL,
    NonHttpUrlClientError,
    ServerDisconnectedError,
    SocketTimeoutError,
)
from aiohttp.http_exceptions import (
    BadStatusLine,
    ContentLengthError,
    HttpProcessingError,
    InvalidHeader,
    LineTooLong,
    TransferEncodingError,
)

from outrider.fetch.connection import CONNECTING
from outrider.fetch.dns import RESOLVING
from outrider.fetch.local_faults import ERRNOS, PORTS, local_reason_of
from outrider.fetch.reasons import BAD_URL, HEADERS, Hindered

# All that a request may raise, whatever the host does, and whatever this machine lacks.
RAISED: Final = (ClientError, HttpProcessingError, OSError, MemoryError, RuntimeError)

_TOO_MANY: Final = "Too many headers received"  # aiohttp has no class for it

CONNECT: Final = {
    errno.ECONNREFUSED: "connect: refused",
    errno.ECONNRESET: "connect: reset",
    errno.ECONNABORTED: "connect: reset",
    errno.EPIPE: "connect: reset",
    errno.EHOSTUNREACH: "connect: no route",
    errno.ENETUNREACH: "connect: no route",
    errno.ETIMEDOUT: "connect: time limit",
    errno.EADDRNOTAVAIL: PORTS,
    **ERRNOS,
}


def reason_of(error: BaseException) -> str:
    """Why there is no response; a `RuntimeError` that is no fault of this machine is raised."""
    local = local_reason_of(error)
    if local is not None:
        return local
    match error:
        case RuntimeError():
            raise error
        case TimeoutError():
            return _late(error)
        case InvalidURL() | NonHttpUrlClientError():
            return BAD_URL
        case ClientConnectorError() | ClientSSLError():
            return _unconnected(error.__cause__)
        case _:
            return _broken(_root(error))


def _late(error: TimeoutError) -> str:
    """What took too long: aiohttp cancels the wait, and those who waited have marked that."""
    notes = getattr(_root(error), "__notes__", ())
    if RESOLVING in notes:
        return "dns: time limit"
    if CONNECTING in notes or isinstance(error, ConnectionTimeoutError):
        return "connect: time limit"
    return "time limit: read" if isinstance(error, SocketTimeoutError) else "time limit: total"


def _unconnected(cause: BaseException | None) -> str:
    match cause:
        case Hindered():
            return cause.reason
        case ssl.SSLError():
            return _insecure(cause)
        case OSError():
            return CONNECT.get(cause.errno or 0, "connect: failed")
        case _:
            return "connect: failed"


def _insecure(error: ssl.SSLError) -> str:
    words = error.reason or "failed"
    if isinstance(error, ssl.SSLCertVerificationError):
        words = error.verify_message
    # Behind the comma stands the name that the certificate does not cover.
    return "tls: " + words.partition(",")[0].replace("_", " ").lower()


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _broken(root: BaseException) -> str:
    """Why a connection that was made gave no whole answer."""
    match root:
        case ssl.SSLEOFError():
            return "cut: reset"
        case ssl.SSLError():
            return _insecure(root)
        case OSError():
            return "cut: reset"
        case ServerDisconnectedError():
            return "cut: no answer" if isinstance(root.message, str) else "cut: head"
        case HttpProcessingError():
            return _no_http(root)
        case _:
            return "cut: body"


def _no_http(root: HttpProcessingError) -> str:
    match root:
        case TransferEncodingError() | ContentLengthError():
            return "cut: body"
        case LineTooLong():
            return HEADERS
        case BadStatusLine():
            return "protocol: status line"
        case InvalidHeader():
            return "protocol: header"
        case _:
            return HEADERS if root.message == _TOO_MANY else "protocol: message"
