"""The URL parser: the only maker of `Url`, so every `Url` can be visited (A1, A2, A3).

Checks run in this order, and the first that fails is the answer: not text (`bad-url`), `too-long`,
`control-characters`, the WHATWG parser (`bad-url`), `scheme`, `too-long` again (the parser may
lengthen), `credentials`, an impossible host (`bad-url`), `private-address`.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from string import ascii_letters, digits, hexdigits
from typing import Final

import msgspec
from url import URL, URLError

from outrider.core.addresses import special_block

BAD_URL: Final = "bad-url"
SCHEME: Final = "scheme"
TOO_LONG: Final = "too-long"
CREDENTIALS: Final = "credentials"
CONTROL_CHARACTERS: Final = "control-characters"
PRIVATE_ADDRESS: Final = "private-address"

REASONS: Final = frozenset(
    (BAD_URL, SCHEME, TOO_LONG, CREDENTIALS, CONTROL_CHARACTERS, PRIVATE_ADDRESS)
)

# Names that only advertising and mail systems give, and that no site uses to choose content.
TRACKING: Final = (
    *("utm_*", "_ga", "_gl"),  # Google Analytics
    *("gclid", "gclsrc", "dclid", "gbraid", "wbraid", "gad_source", "gad_campaignid", "srsltid"),
    *("fbclid", "igshid", "msclkid", "twclid", "ttclid", "li_fat_id", "rdt_cid"),
    *("yclid", "ysclid", "_openstat"),  # Yandex
    *("mc_cid", "mc_eid", "mkt_tok", "_hsenc", "_hsmi", "__hssc", "__hstc", "__hsfp"),
    *("mtm_*", "pk_campaign", "pk_kwd"),  # Matomo
)


class Url(msgspec.Struct, frozen=True, gc=False):
    """A web address that may be visited; only `parse_url` makes one."""

    text: str  # what is visited: the WHATWG serialisation less the fragment
    identity: str  # the canonical form: two texts of one identity are one task
    host: str  # lower-case, punycode, no port, no root dot; IPv6 in brackets

    def __str__(self) -> str:
        return self.text


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why a text is no `Url`: `reason` is for counting, `detail` for people and safe to print."""

    reason: str
    detail: str


class UrlRules(msgspec.Struct, frozen=True, cache_hash=True):
    """What a crawl may change about reading URLs."""

    tracking: tuple[str, ...] = TRACKING  # parameters without identity; `*` may end a name
    allow_private: bool = False  # admit literal loopback, private and link-local addresses
    max_bytes: int = 8192  # of UTF-8, as given, as visited and as identity


DEFAULT: Final = UrlRules()

# DNS carries no longer name; the port is counted too, so that every key made of both stays short.
MAX_AUTHORITY: Final = 253

# The texts that the WHATWG parser gives back unchanged but for the fragment: lower-case name, no
# port, nothing that it would re-encode. Of real links 99 % are such, at a third of the price.
_SERIALISED: Final = re.compile(
    r"(https?://((?:(?!xn--)[a-z0-9_-]{1,48}+\.){1,4}+[a-z]{1,24}+)/[A-Za-z0-9_.~!$&'()*+,;=:@/-]*+)"
    r"(\?[A-Za-z0-9_.~!$&()*+,;=:@/?%-]*+)?+"
    r"(?:#[!-~]*+)?+"
).fullmatch

_ASCII_WHITESPACE: Final = "\t\n\f\r "
# Tab, LF and CR are absent: inside a URL the WHATWG parser removes them.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]").search

_SLASHES: Final = re.compile(r"\A(?:[/\\][\t\n\r]*){3,}").sub


def parse_url(text: object, rules: UrlRules = DEFAULT, base: Url | None = None) -> Url | Refusal:
    """Make the `Url` that `text` means, seen from `base` if it is relative; never raise."""
    if not isinstance(text, str):
        return Refusal(BAD_URL, f"a URL is text, not {_quote(type(text).__name__)}")
    if len(text) > rules.max_bytes:
        return _too_long(rules)
    absolute = text if base is None else _resolve_path(text, base, rules)
    plain = _SERIALISED(absolute)
    if plain is None or "/." in absolute:
        return _check_text(text, rules, base)
    page, host, query = plain.groups()
    if query is None:
        return Url(page, page, host)
    return _check_size(Url(page + query, page + _canonical_query(query[1:], rules), host), rules)


def fingerprint(identity: str) -> bytes:
    """Give the 128 bits by which a store knows an identity; any text at all has them."""
    try:
        data = identity.encode()
    except UnicodeEncodeError:
        data = identity.encode("utf-8", "surrogatepass")
    return blake2b(data, digest_size=16).digest()


def is_private_address(host: str) -> bool:
    """Tell literal addresses of special-purpose blocks; a name is never one, it has to resolve."""
    if not (host[-1:].isdigit() or ":" in host):
        return False
    try:
        block = special_block(host.strip("[]"))
    except ValueError:
        return False
    # Nothing answers in the blocks of documentation, and examples need them.
    return block is not None and not block.is_example


def _resolve_path(text: str, base: Url, rules: UrlRules) -> str:
    """Spell out the commonest relative link, `/path`, without the parser; others stay."""
    if not text.startswith("/") or text.startswith("//"):
        return text
    origin = base.text[: base.text.index("/", len("https://"))]
    return origin + text if len(origin) + len(text) <= rules.max_bytes else text


def _check_text(text: str, rules: UrlRules, base: Url | None) -> Url | Refusal:
    trimmed = text.strip(_ASCII_WHITESPACE)
    if not trimmed.isascii() and len(trimmed.encode("utf-8", "surrogatepass")) > rules.max_bytes:
        return _too_long(rules)
    # `isprintable` is the cheaper question, and almost always enough.
    if not trimmed.isprintable() and (found := _CONTROL(trimmed)) is not None:
        return _control(trimmed, found)
    try:
        href = str(URL.parse(trimmed) if base is None else _join(trimmed, base))
    except (URLError, UnicodeError) as error:
        return _unreadable(trimmed, error)
    return _visitable(href.partition("#")[0], rules)


def _join(text: str, base: Url) -> URL:
    # The standard skips surplus slashes before a host; the library does so only without a base.
    return URL.parse(_SLASHES("//", text), _library_url(base.text))


@lru_cache(maxsize=256)
def _library_url(text: str) -> URL:
    return URL.parse(text)


def _visitable(text: str, rules: UrlRules) -> Url | Refusal:
    if not text.startswith(("https://", "http://")):
        return Refusal(SCHEME, f"{_quote(text)} is neither http nor https; leave it out")
    if len(text) > rules.max_bytes:
        return _too_long(rules)
    path_at = text.index("/", len("https://"))
    authority = text[text.index("/") + 2 : path_at]
    if "@" in authority:
        return Refusal(CREDENTIALS, f"{_quote(authority)} names a user; take it out of the URL")
    if len(authority) > MAX_AUTHORITY:
        return Refusal(BAD_URL, f"the host is longer than {MAX_AUTHORITY} characters; shorten it")
    host = _host(authority)
    if not rules.allow_private and is_private_address(host):
        fix = "to visit it, set url.allow_private (--allow-private)"
        return Refusal(PRIVATE_ADDRESS, f"{host} is a private address; {fix}")
    return _check_size(Url(text, text[:path_at] + _canonical(text[path_at:], rules), host), rules)


def _host(authority: str) -> str:
    if ":" in authority and not authority.endswith("]"):
        authority = authority.rpartition(":")[0]
    # `example.org.` is the machine `example.org`: a second key would double its pace.
    return authority.removesuffix(".") or authority


def _check_size(url: Url, rules: UrlRules) -> Url | Refusal:
    return url if len(url.identity) <= rules.max_bytes else _too_long(rules)


def _canonical(path_and_query: str, rules: UrlRules) -> str:
    path, _, query = path_and_query.partition("?")
    return _spelt(path, _IN_PATH) + (_canonical_query(query, rules) if query else "")


def _canonical_query(query: str, rules: UrlRules) -> str:
    kept = _untracked(rules)("", "&" + _spelt(query, _IN_QUERY)).split("&")
    # An empty piece (`a&&b`) is no parameter; `a` and `a=` stay two.
    pieces = sorted(filter(None, kept))
    return "?" + "&".join(pieces) if pieces else ""


@lru_cache(maxsize=64)
def _untracked(rules: UrlRules) -> Callable[[str, str], str]:
    """Give the eraser of tracking parameters from a query that begins with `&`."""
    names = "|".join(map(_tracking_pattern, filter(None, rules.tracking))) or "(?!)"
    return re.compile(f"&(?:{names})[^&]*").sub


def _tracking_pattern(name: str) -> str:
    # The regex engine passes over a branch by its first character only if that ignores no case.
    begun = name.removesuffix("*")
    first = f"[{re.escape(begun[0].lower() + begun[0].upper())}]" if begun else ""
    return f"{first}(?i:{re.escape(begun[1:])})" + ("(?![^=&])" if begun == name else "")


def _spellings(bare: str) -> dict[str, str]:
    """Map every way to write an escape to the one way that this part of an identity uses."""
    escapes = {f"%{high}{low}": int(high + low, 16) for high in hexdigits for low in hexdigits}
    # A stray `%` would join what follows: `%%34%31` would become `%41`, and next time `A`.
    return {"%": "%25"} | {
        escape: chr(byte) if chr(byte) in bare else f"%{byte:02X}"
        for escape, byte in escapes.items()
    }


# Bare are the unreserved characters of RFC 3986, and those it forbids but the parser leaves bare:
# to a server `a[]=1` and `a%5B%5D=1` are one. A delimiter and its escape (`/`, `%2F`) stay two.
_UNRESERVED: Final = ascii_letters + digits + "-._~"
_IN_PATH: Final = _spellings(_UNRESERVED + "|^[]")
_IN_QUERY: Final = _spellings(_UNRESERVED + "|^[]`{}\\")
_ESCAPE: Final = re.compile("%(?:[0-9A-Fa-f]{2})?").sub


def _spelt(part: str, spellings: dict[str, str]) -> str:
    return _ESCAPE(lambda found: spellings[found[0]], part) if "%" in part else part


def _quote(text: str) -> str:
    # Whatever stands before an @ may be a password, also where the parser found no user.
    shown = "..." + text[text.rindex("@") :] if "@" in text else text
    return f'"{ascii(shown[:40])[1:-1][:40]}"'


def _too_long(rules: UrlRules) -> Refusal:
    return Refusal(TOO_LONG, f"longer than {rules.max_bytes} bytes; shorten it or raise the limit")


def _control(text: str, found: re.Match[str]) -> Refusal:
    code = f"U+{ord(found[0]):04X}"
    return Refusal(CONTROL_CHARACTERS, f"{_quote(text)} holds {code}; remove or encode it")


def _unreadable(text: str, error: Exception) -> Refusal:
    cause = "half a surrogate pair" if isinstance(error, UnicodeError) else str(error)
    return Refusal(BAD_URL, f"{_quote(text)}: {cause[:40]}; write scheme://host/path")
