import pytest

from outrider.core.policy.rules import QueueRules
from outrider.core.task import Lease, PolitenessState
from outrider.fetch.document import _CODECS, Headers, charset_of, decode_body, sniff_media_type
from outrider.fetch.extract import Extracted
from outrider.fetch.page import Page
from outrider.fetch.response import Response
from outrider.testing.builders import task

URL = "https://example.org/a/page"


def page(body=b"", content_type="text/html", *fields, status=200, type="page", meta=b""):
    """A page as a visit makes it."""
    about = task(URL, type=type, depth=2, meta=meta)
    lease = Lease("s", 1, 1, about, 1, "w", 60.0, 0, 0, QueueRules(), PolitenessState())
    headers = (("Content-Type", content_type), *fields)
    return Page(lease, Response(URL, status, headers, body, 0.25, 1e9))


def test_a_page_shows_what_was_answered():
    """The response and the lease, under the names users know."""
    one = page(b"<p>hello", "Text/HTML; Charset=UTF-8", ("X-Thing", "1"))

    assert (one.url, one.status, one.seconds, one.at) == (URL, 200, 0.25, 1e9)
    assert (one.depth, one.lease.depth, one.links, one.from_cache) == (2, 2, [], False)
    assert (one.media_type, one.charset, one.text) == ("text/html", "utf-8", "<p>hello")
    assert one.headers["x-thing"] == "1"
    assert [node.text() for node in one.css("p")] == ["hello"]
    assert repr(one) == f"<Page 200 {URL}>"


def test_a_page_that_was_not_read_says_nothing():
    """Title and the rest are known after reading, and never raise before."""
    one = page(b"<title>x</title>")

    assert (one.title, one.canonical, one.is_nofollow, one.is_noindex) == (None, None, False, False)


def test_a_page_tells_what_was_found():
    """What reading found out is shown by the page itself."""
    one = page()
    one.found = Extracted("html", title="T", canonical="https://c/", nofollow=True, noindex=True)

    assert (one.title, one.canonical, one.is_nofollow, one.is_noindex) == (
        "T",
        "https://c/",
        True,
        True,
    )


def test_a_digest_is_of_the_body_alone():
    """Equal bodies have one digest, others another."""
    assert page(b"a").digest == page(b"a", "text/plain").digest != page(b"b").digest
    assert len(page().digest) == 32


@pytest.mark.parametrize(
    ("status", "location", "expected"),
    [
        (301, "/b?x", "https://example.org/b?x"),
        (302, "b", "https://example.org/a/b"),
        (308, "http://127.0.0.1/", "http://127.0.0.1/"),
        (200, "/b", None),
        (301, "javascript:x", None),
        (301, "http://[", None),
    ],
)
def test_a_location_is_absolute(status, location, expected):
    """Where a redirect leads, whatever it is; admission refuses later."""
    assert page(b"", "text/html", ("Location", location), status=status).location == expected


def test_a_redirect_without_a_target_leads_nowhere():
    """No Location, no target."""
    assert page(status=301).location is None


def test_headers_are_found_whatever_their_case():
    """The first of a name, or all; the host's own spelling is kept in `fields`."""
    headers = Headers((("Set-Cookie", "a"), ("X", "1"), ("set-cookie", "b")))

    assert headers["SET-COOKIE"] == "a"
    assert headers.all("Set-Cookie") == ["a", "b"]
    assert headers.all("absent") == []
    assert ("x" in headers, "y" in headers, 1 in headers) == (True, False, False)
    assert (list(headers), len(headers)) == (["set-cookie", "x"], 2)
    assert headers.get("y") is None
    assert "Set-Cookie" in repr(headers)


@pytest.mark.parametrize("told", ["", "application/octet-stream", "unknown/unknown"])
def test_missing_media_type_is_sniffed(told):
    """A host that does not say is judged by its first bytes."""
    assert page(b" \n<!DOCTYPE HTML><p>", told).media_type == "text/html"


def test_given_media_type_is_used():
    """However the bytes look."""
    assert page(b"<html>", "text/plain; charset=x").media_type == "text/plain"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "application/octet-stream"),
        (b"\x00\x01", "application/octet-stream"),
        (b"hello", "text/plain"),
        (b"\xef\xbb\xbf<html>", "text/html"),
        (b"<?xml version='1.0'?>", "application/xml"),
        (b"<rss>", "application/xml"),
        (b"\x1f\x8b\x08x", "application/gzip"),
        (b"%PDF-1.7", "application/pdf"),
        (b"\x89PNG\r\n\x1a\nx", "image/png"),
    ],
)
def test_first_bytes_give_a_type_away(body, expected):
    """Signatures, then the first tag, then text."""
    assert sniff_media_type(body) == expected


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"\xef\xbb\xbfx", "text/html; charset=latin-1", "utf-8"),
        (b"\xff\xfex\0", "text/html; charset=utf-8", "utf-16-le"),
        (b"\xfe\xff\0x", None, "utf-16-be"),
        (b"<meta charset=koi8-r>", "text/html; charset=shift_jis", "cp932"),
        (b"<meta charset=koi8-r>", "text/html", "koi8-r"),
        (b"<META http-equiv=content-type content='text/html; charset=GBK'>", None, "gb18030"),
        (b'<?xml version="1.0" encoding="ISO-8859-2"?><x/>', None, "iso8859-2"),
        (b"<!-- <meta charset=koi8-r> --><meta charset=big5>", None, "big5hkscs"),
        (b"<meta charset=utf-16>", None, "utf-8"),
        (b"x", "text/html; charset='latin1'", "windows-1252"),
        (b"x", 'text/html; charset="US-ASCII"', "windows-1252"),
        (b"x", "text/html; charset=nonsense", "utf-8"),
        (b"\xe9", "text/html; charset=nonsense", "windows-1252"),
        ("é".encode(), None, "utf-8"),
        (b"\xe9t\xe9", None, "windows-1252"),
        (b" " * 1024 + b"<meta charset=koi8-r>", None, "utf-8"),
        (b"<meta charset=nonsense><meta charset=koi8-r>", None, "koi8-r"),
    ],
)
def test_a_charset_is_chosen_as_browsers_do(body, content_type, expected):
    """BOM, header, meta, UTF-8 if it is that, and else windows-1252."""
    assert charset_of(body, content_type) == expected


@pytest.mark.parametrize(
    "label",
    ["utf-7", "zlib", "rot13", "base64", "idna", "punycode", "unicode_escape", "mbcs", "\0"],
)
def test_a_dangerous_codec_is_never_used(label):
    """A page cannot choose what reads it beyond the standard's table."""
    assert charset_of(b"+ADw-script+AD4-", f"text/html; charset={label}") == "utf-8"
    assert charset_of(b"<meta charset=" + label.encode() + b">", None) == "utf-8"


@pytest.mark.parametrize("codec", ["utf-8", "gb18030", "iso2022_jp", "utf-16-le", "cp932", "cp949"])
def test_wrong_bytes_never_raise(codec):
    """What cannot be decoded is replaced."""
    assert isinstance(decode_body(bytes(range(256)) * 3 + b"\xff", codec), str)
    assert decode_body(b"a\xff", "utf-8") == "a\ufffd"


def test_a_byte_order_mark_is_no_text():
    """Neither in the text nor in the tree."""
    one = page(b"\xef\xbb\xbf<!doctype html><title>x</title>")

    assert one.text.startswith("<!doctype")
    assert one.html.head.css_first("title").text() == "x"


def test_a_tree_is_read_in_the_pages_charset():
    """The parser gets what the text is, whatever the bytes are."""
    one = page("<p>Привет".encode("koi8-r"), "text/html; charset=koi8-r")

    assert one.css("p")[0].text() == "Привет"


def test_every_codec_of_the_table_exists():
    """A label can be looked up, so its codec can be used."""
    assert len(_CODECS) > 150
    for codec in set(_CODECS.values()):
        assert isinstance(b"x\xff".decode(codec, "replace"), str)


@pytest.mark.parametrize(
    ("meta", "expected"), [(b"", 0), (b'{"indexes":2}', 2), (b'{"indexes":"x"}', 0)]
)
def test_a_sitemap_knows_the_indexes_before_it(meta, expected):
    """The link that led here told; anything else counts as none."""
    assert page(type="sitemap", meta=meta).indexes == expected
