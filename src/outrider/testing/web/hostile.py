"""The hostile host, and the outcomes a correct crawler may report for each of its paths."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import UnionType
from typing import Final

from outrider.core.outcome import Done, Dropped, Failed, Unreachable
from outrider.testing.web import bombs
from outrider.testing.web.behaviours import disguising, linked, redirecting
from outrider.testing.web.graph import DOMAIN
from outrider.testing.web.messages import Asked, Behaviour, Reply, html, linking
from outrider.testing.web.site import Site

HOST: Final = "hostile" + DOMAIN
_LINKS: Final = 100_000
_TAGS: Final = 200_000

ODD_LINKS: Final = (
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,hello",
    "mailto:nobody@web.test",
    "tel:+1",
    "ftp://hostile.web.test/",
    "file:///etc/passwd",
    "about:blank",
    "http://",
    "http:///",
    "http://[::1",
    "http://user:secret@hostile.web.test/",
    "//",
    "\x00",
    "http://hostile.web.test:99999/",
    "http://%00/",
    "x" * 100_000,
)
PRIVATE_LINKS: Final = (
    "http://127.0.0.1/",
    "http://0.0.0.0/",
    "http://localhost/",
    "http://10.0.0.1/",
    "http://192.168.0.1/",
    "http://172.16.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[fd00::1]/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0177.0.0.1/",
)


def _wrong_charset(_: Asked) -> Reply:
    return Reply("<p>caffè 漢字</p>".encode("utf-16"), type="text/html; charset=ascii")


def _unknown_charset(_: Asked) -> Reply:
    return Reply(html("?", "<p>hello</p>"), type='text/html; charset="no-such; \\charset"')


def _null_bytes(_: Asked) -> Reply:
    return Reply(b'<p>\x00</p><a href="/\x00found">x</a>' * 1000)


def _not_text(_: Asked) -> Reply:
    return Reply(bytes(range(256)) * 256)


@lru_cache(maxsize=1)
def _deep() -> bytes:
    return b"<div>" * _TAGS + b'<a href="/found">x</a>'


def _deep_nesting(_: Asked) -> Reply:
    return Reply(_deep())


def _long_attribute(_: Asked) -> Reply:
    return Reply(b'<a href="/found" title="%b">x</a>' % (b"x" * (4 << 20)))


@lru_cache(maxsize=1)
def _attributes() -> bytes:
    return b"<p " + b" ".join(b"a%d=1" % n for n in range(900_000)) + b">x</p>"


def _many_attributes(_: Asked) -> Reply:
    return Reply(_attributes())


@lru_cache(maxsize=1)
def _links() -> bytes:
    return linking("many", (f"/found/{n}" for n in range(_LINKS)))


def _many_links(_: Asked) -> Reply:
    return Reply(_links())


def _long_location(_: Asked) -> Reply:
    return Reply(b"", 302, headers=(("Location", "/" + "x" * 12_000),))


def _unknown_encoding(_: Asked) -> Reply:
    return Reply(html("?", "hello"), headers=(("Content-Encoding", "x-secret"),))


_Case = tuple[Behaviour, type | UnionType]
_CUT: Final = Failed | Unreachable
_BAD_HEAD: Final = Failed | Dropped

_CASES: Final[Mapping[str, _Case]] = {
    # Over the time limit.
    "/slow-headers": (bombs.slow_headers, _BAD_HEAD),
    "/slow-body": (bombs.slow_body, Failed),
    "/silence": (bombs.silence, Failed),
    # Over the size limit.
    "/endless-body": (bombs.endless_body, Dropped),
    "/endless-chunked": (bombs.endless_chunked, Dropped),
    "/gzip-bomb": (bombs.gzip_bomb, Dropped),
    "/brotli-bomb": (bombs.brotli_bomb, Dropped),
    "/long-header": (bombs.long_header, _BAD_HEAD),
    "/header-flood": (bombs.header_flood, _BAD_HEAD),
    "/endless-headers": (bombs.endless_headers, _BAD_HEAD),
    "/endless-continue": (bombs.endless_continue, _BAD_HEAD),
    # Cut off, or malformed.
    "/cut-body": (bombs.cut_body, Failed),
    "/cut-chunk": (bombs.cut_chunk, Failed),
    "/cut-chunks": (bombs.cut_chunks, Failed),
    "/bad-chunk": (bombs.bad_chunk, Failed),
    "/cut-gzip": (bombs.cut_gzip, Failed),
    "/false-gzip": (bombs.false_gzip, Failed | Dropped),
    "/two-lengths": (bombs.two_lengths, Failed),
    "/bad-status": (bombs.bad_status, Failed),
    "/garbage": (bombs.garbage, Failed),
    "/reset": (bombs.reset, _CUT),
    "/reset-body": (bombs.reset_body, Failed),
    "/empty-reply": (bombs.empty_reply, _CUT),
    # Redirects in circles, or to places that must not be visited.
    "/redirect-loop": (redirecting("/redirect-loop/back"), Done | Failed | Dropped),
    "/redirect-self": (redirecting("/redirect-self"), Done | Failed | Dropped),
    "/redirect-disguised": (disguising(), Done | Failed | Dropped),
    "/redirect-script": (redirecting("javascript:alert(1)"), Done | Failed | Dropped),
    "/redirect-private": (redirecting("http://169.254.169.254/"), Done | Failed | Dropped),
    "/redirect-long": (_long_location, Done | Failed | Dropped),
    # Pages that are hard to parse, and still answers.
    "/tiny-chunks": (bombs.tiny_chunks, Done),
    "/wrong-charset": (_wrong_charset, Done),
    "/unknown-charset": (_unknown_charset, Done),
    "/unknown-encoding": (_unknown_encoding, Done | Failed | Dropped),
    "/null-bytes": (_null_bytes, Done),
    "/not-text": (_not_text, Done),
    "/deep-nesting": (_deep_nesting, Done),
    "/long-attribute": (_long_attribute, Done),
    "/many-attributes": (_many_attributes, Done),
    "/many-links": (_many_links, Done),
    "/odd-links": (linked("odd", *ODD_LINKS), Done),
    "/private-links": (linked("private", *PRIVATE_LINKS), Done),
}

# By path, for `isinstance`: the outcomes that a correct crawler may report.
HOSTILE: Final[Mapping[str, type | UnionType]] = {
    path: expected for path, (_, expected) in _CASES.items()
}


def site() -> Site:
    """Return the host; its root links to all its pages."""
    paths = {path: behaviour for path, (behaviour, _) in _CASES.items()}
    paths["/redirect-loop/back"] = redirecting("/redirect-loop")
    paths["/"] = linked("hostile", *HOSTILE)
    return Site(HOST, paths=paths, pages=["/", *HOSTILE])
