"""Which queue a URL stands in: a keying maps every `Url` to a key, the same one for ever.

Delay, budget and concurrency belong to the key, so a keying that separates what one machine serves
makes the crawl impolite to it, and one that joins strangers makes it slow.
"""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from operator import attrgetter
from typing import Final, TypeAlias
from zlib import crc32

from publicsuffixlist import PublicSuffixList

from outrider.core.url import Url

Keying: TypeAlias = Callable[[Url], str]

MAX_KEY: Final = 255
MAX_BUCKETS: Final = 65_536

host_key: Final[Keying] = attrgetter("host")


def domain_key(url: Url) -> str:
    """Key by registrable domain, so that all hosts of one owner share a queue."""
    return registrable_domain(url.host)


def surt_key(url: Url) -> str:
    """Key by SURT authority: labels from the right, then the port unless it is the default.

    `http://www.example.org:8080/` has `org,example,www:8080`; an address is not turned round.
    """
    authority = url.text.split("/", 3)[2]
    _, colon, port = authority[authority.rfind("]") + 1 :].rpartition(":")
    return _reversed_labels(url.host) + colon + port if colon else _reversed_labels(url.host)


_NAMES: Final[dict[str, Keying]] = {"host": host_key, "domain": domain_key, "surt": surt_key}


def keying(name: str | Keying) -> Keying:
    """Find a keying by its name in the settings; a function is one already.

    `module:function` is not looked up here, for the core imports nothing by name.
    """
    if callable(name):
        return name
    if name.startswith("buckets:"):
        return _buckets(name)
    if name in _NAMES:
        return _NAMES[name]
    raise ValueError(_unknown(name))


def checked_key(key: object) -> str | None:
    """Give back what a user's function answered if it can be a key, else None."""
    if isinstance(key, str) and 0 < len(key) <= MAX_KEY and key.isprintable():
        return key
    return None


def suffixes(key: str) -> Iterator[str]:
    """Give the suffixes under which an override may stand for this key, longest first.

    `a.example.org` has `.a.example.org`, `.example.org`, `.org`; so `.example.org` speaks for
    `example.org` itself and for all below it. An address has no parents, only itself.
    """
    yield "." + key
    if is_address(key):
        return
    dot = key.find(".")
    while dot >= 0:
        yield key[dot:]
        dot = key.find(".", dot + 1)


@lru_cache(maxsize=65_536)
def registrable_domain(host: str) -> str:
    """Give what the host's owner registered: one label more than the public suffix.

    Private suffixes count (`alice.github.io` is Alice's), since their tenants are strangers.
    Addresses, single labels and suffixes themselves are their own domain.
    """
    if is_address(host):
        return host
    return _public_suffixes().privatesuffix(host) or host


def is_address(host: str) -> bool:
    """Tell an IP address from a name: WHATWG hosts end in a number only if they are addresses."""
    return host.endswith("]") or host.rpartition(".")[2].isdecimal()


# Read at first use: a crawl keyed by host never pays for the list.
@lru_cache(maxsize=1)
def _public_suffixes() -> PublicSuffixList:
    return PublicSuffixList()


@lru_cache(maxsize=65_536)
def _reversed_labels(host: str) -> str:
    return host if is_address(host) else ",".join(reversed(host.split(".")))


def _buckets(name: str) -> Keying:
    count = name.removeprefix("buckets:")
    if not re.fullmatch("[0-9]{1,5}", count) or not 1 <= int(count) <= MAX_BUCKETS:
        raise ValueError(f"{name!r}: the number of buckets must be 1 to {MAX_BUCKETS}")
    names = [f"bucket-{number:04}" for number in range(int(count))]
    return lambda url: names[crc32(url.host.encode()) % len(names)]


def _unknown(name: str) -> str:
    known = [*_NAMES, "buckets:N"]
    close = "".join(f"; did you mean {match!r}?" for match in get_close_matches(name, known, 1))
    return f"unknown keying {name!r}: not one of {', '.join(known)}{close}"
