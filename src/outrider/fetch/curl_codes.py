"""What curl says went wrong, as reasons: the one place that knows its codes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from curl_cffi import CurlECode, CurlError, CurlInfo

from outrider.fetch.incoming import Incoming
from outrider.fetch.local_faults import CERTIFICATES, ENOMEM, ERRNOS
from outrider.fetch.reasons import BAD_URL, HEADERS
from outrider.fetch.troubles import CONNECT

Asking: TypeAlias = Callable[[CurlInfo], Any]

_REASONS: Final = {
    CurlECode.UNSUPPORTED_PROTOCOL: "protocol: status line",  # HTTP/0.9, or no HTTP at all
    CurlECode.URL_MALFORMAT: BAD_URL,
    CurlECode.COULDNT_RESOLVE_HOST: "dns: failed",
    CurlECode.WEIRD_SERVER_REPLY: "protocol: message",
    CurlECode.HTTP2: "protocol: message",
    CurlECode.OUT_OF_MEMORY: ENOMEM,
    CurlECode.SSL_CACERT_BADFILE: CERTIFICATES,
    CurlECode.OPERATION_TIMEDOUT: "connect: time limit",  # it is told of no other
    CurlECode.SSL_CONNECT_ERROR: "tls: handshake failed",
    CurlECode.TOO_LARGE: HEADERS,
}

# What OpenSSL calls them.
_CERTIFICATES: Final = {
    9: "certificate is not yet valid",
    10: "certificate has expired",
    18: "self-signed certificate",
    19: "self-signed certificate in certificate chain",
    20: "unable to get local issuer certificate",
}
_NO_SOCKET: Final = "failed to open socket"
_BY_NAME: Final = {os.strerror(number): reason for number, reason in ERRNOS.items()}
_MISMATCH: Final = "subject name"  # curl compares names itself, and has no code for it


def reason_of(error: CurlError, ask: Asking, incoming: Incoming) -> str:
    """Why there is no response."""
    code = error.code
    if code == CurlECode.PEER_FAILED_VERIFICATION:
        return "tls: " + _insecure(error, ask)
    if code in _REASONS:
        return _REASONS[CurlECode(code)]
    if code == CurlECode.COULDNT_CONNECT or not ask(CurlInfo.PRETRANSFER_TIME):
        return _unopened(str(error)) or CONNECT.get(ask(CurlInfo.OS_ERRNO), "connect: failed")
    is_reset = code != CurlECode.GOT_NOTHING and not incoming.status
    return "cut: reset" if is_reset else incoming.cut()


def is_lost(error: CurlError, ask: Asking, incoming: Incoming) -> bool:
    """Whether an old connection broke before a word came; in HTTP/1 curl itself asks again."""
    is_old = not ask(CurlInfo.NUM_CONNECTS)
    return error.code == CurlECode.HTTP2 and is_old and not incoming.heard


def _unopened(text: str) -> str:
    """Why there was no socket to connect with: curl has no number for it, only its name."""
    if _NO_SOCKET not in text:
        return ""
    return next((reason for name, reason in _BY_NAME.items() if name in text), "")


def _insecure(error: CurlError, ask: Asking) -> str:
    if _MISMATCH in str(error):
        return "hostname mismatch"
    return _CERTIFICATES.get(ask(CurlInfo.SSL_VERIFYRESULT), "certificate verify failed")
