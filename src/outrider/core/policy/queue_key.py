"""Queue keys: the function from a `Url` to the key of its queue, and addresses of queues (A4).

Delay, budget and concurrency belong to the key. A key function that separates what one machine
serves makes the crawl impolite to it; one that joins unrelated hosts makes it slow.
"""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from operator import attrgetter
from typing import Final, TypeAlias
from zlib import crc32

from publicsuffixlist import PublicSuffixList

from outrider.core.url import Url, UrlRules, parse_url

KeyFunction: TypeAlias = Callable[[Url], str]

MAX_KEY: Final = 255
MAX_BUCKETS: Final = 65_536

host_key: Final[KeyFunction] = attrgetter("host")


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


_NAMES: Final[dict[str, KeyFunction]] = {"host": host_key, "domain": domain_key, "surt": surt_key}


def key_function(name: str | KeyFunction) -> KeyFunction:
    """Return the key function that a setting names; a function is returned as it is.

    `module:function` is not resolved here: the core imports nothing by name.
    """
    if callable(name):
        return name
    if name.startswith("buckets:"):
        return _buckets(name)
    if name in _NAMES:
        return _NAMES[name]
    raise ValueError(_unknown(name))


def valid_key(key: object) -> str | None:
    """Return what a user's function answered if it is a valid key, else None."""
    if isinstance(key, str) and 0 < len(key) <= MAX_KEY and key.isprintable():
        return key
    return None


def suffixes(key: str) -> Iterator[str]:
    """Give the suffixes under which an override may stand for this key, longest first (A4).

    `a.example.org` has `.a.example.org`, `.example.org`, `.org`; so `.example.org` applies to
    `example.org` itself and to all below it. An address has no parents, only itself.

    A SURT authority has those of its host, and before them the host whatever its port, written as
    `address` does: `org,example:81` has `.org,example:81`, `.org,example:`, `.example.org`, `.org`.
    """
    host, has_parents = key, True
    if "," in key or ":" in key or "." not in key or is_address(key):  # most keys are hosts
        authority, port = _split_port(key)
        found = _host_of_surt(authority)
        if found is not None:
            host, has_parents = found, not is_address(found)
            if port:
                yield "." + key
            yield f".{authority}:"
    yield "." + host
    dot = host.find(".") if has_parents else -1
    while dot >= 0:
        yield host[dot:]
        dot = host.find(".", dot + 1)


def address(keyed_by: object, text: str) -> str:
    """Translate the name that a person gives to a queue or domain into what stores match (A4).

    `keyed_by` is the setting `queue.key`. The result is a key, or a suffix that begins with a dot;
    a host under SURT becomes `.org,example:`, which matches that host with any port. Raises
    ValueError with the fix if no key of this kind can match. A function may return any key, so any
    text is accepted.
    """
    if not isinstance(keyed_by, str) or not (keyed_by in _NAMES or keyed_by.startswith("buckets:")):
        return text
    if text.startswith("*."):
        raise ValueError(f"write {text[1:]!r} for a domain and all below it")
    dot = "." if text.startswith(".") else ""
    host, port = _split_port(text.removeprefix("."))
    if keyed_by.startswith("buckets:"):
        _check_bucket(keyed_by, text, host)
        return text
    if keyed_by == "surt" and host.endswith(","):
        surt = host.rstrip(",")
        fix = f"write {surt!r}, or {'.' + _reverse_surt(surt)!r} for all below it"
        raise ValueError(f"no SURT key ends in a comma; {fix}")
    if keyed_by == "surt" and dot and host.endswith(":"):
        return text  # what a host became
    if not (dot or _is_host(host) or (keyed_by == "surt" and "," not in host)):
        return text  # a key that links bring with them, or a SURT authority
    return _ADDRESSES[keyed_by](dot, _normalize_host(host), port)


def _by_host(dot: str, host: str, port: str) -> str:
    if port:
        raise ValueError(f"queues are keyed by host, without a port; write {dot + host!r}")
    return dot + host


def _by_domain(dot: str, host: str, port: str) -> str:
    domain = registrable_domain(host)
    if port or host != domain:
        raise ValueError(f"queues are keyed by registrable domain; write {domain!r}")
    return dot + host


def _by_surt(dot: str, host: str, port: str) -> str:
    """A suffix, a key with its port, or a host whatever its port."""
    if dot and port:
        raise ValueError(f"a suffix has no port; write {'.' + host!r}")
    if dot:
        return "." + host
    return _reversed_labels(host) + port if port else f".{_reversed_labels(host)}:"


_ADDRESSES: Final[dict[str, Callable[[str, str, str], str]]] = {
    "host": _by_host,
    "domain": _by_domain,
    "surt": _by_surt,
}


def _check_bucket(keyed_by: str, text: str, host: str) -> None:
    """Refuse a suffix, a host, and a bucket that is not there."""
    count = int(keyed_by.removeprefix("buckets:"))
    there = f"queues are keyed into {count} buckets, {_bucket(0)} to {_bucket(count - 1)}"
    if text.startswith("."):
        raise ValueError(f'{there}, and none has a suffix; name them, or set queue.key = "host"')
    if _is_host(host):
        name = _bucket(crc32(_normalize_host(host).encode()) % count)
        raise ValueError(f"{there}; {host} is in {name}, together with other hosts: write {name!r}")
    number = text.removeprefix("bucket-")
    if number != text and number.isdecimal():
        is_there = int(number[:6]) < count and text == _bucket(int(number[:6]))
        if not is_there:
            raise ValueError(there)


def _is_host(text: str) -> bool:
    """Tell whether text is written as a host, not as a key of a link or a SURT."""
    return text == "localhost" or text.endswith("]") or ("." in text and "," not in text)


def _normalize_host(host: str) -> str:
    """Return a host as the URL parser writes it: lower case, punycode, no trailing dot."""
    if _PLAIN_HOST(host) and not is_address(host):
        return host
    url = parse_url(f"http://{host}/", UrlRules(allow_private=True))
    return url.host if isinstance(url, Url) else host.lower()


_PLAIN_HOST: Final = re.compile(
    r"[0-9-]*+[a-z][a-z0-9-]*+(?:\.[0-9-]*+[a-z][a-z0-9-]*+)*+"
).fullmatch


def _split_port(authority: str) -> tuple[str, str]:
    """Split an authority into host and port, which keeps its colon; no port: ""."""
    found = _PORT(authority)
    return (found[1], found[2]) if found else (authority, "")


_PORT: Final = re.compile(r"(.*[^:]|\[[^\]]*\])(:[0-9]{1,5})").fullmatch


def _host_of_surt(authority: str) -> str | None:
    """Return the host of a SURT authority without its port; None: it is not one."""
    if "," in authority:
        return None if "." in authority else _reverse_surt(authority)
    return authority if "." not in authority or is_address(authority) else None


def _reverse_surt(surt: str) -> str:
    return ".".join(reversed(surt.split(",")))


@lru_cache(maxsize=65_536)
def registrable_domain(host: str) -> str:
    """Return the host's registrable domain: one label more than the public suffix.

    Private suffixes count (`alice.github.io` is a domain of its own), since their tenants are
    unrelated. Addresses, single labels and suffixes themselves are their own domain.
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


def _buckets(name: str) -> KeyFunction:
    count = name.removeprefix("buckets:")
    if not re.fullmatch("[0-9]{1,5}", count) or not 1 <= int(count) <= MAX_BUCKETS:
        raise ValueError(f"{name!r}: the number of buckets must be 1 to {MAX_BUCKETS}")
    names = [_bucket(number) for number in range(int(count))]
    return lambda url: names[crc32(url.host.encode()) % len(names)]


def _bucket(number: int) -> str:
    return f"bucket-{number:04}"


def _unknown(name: str) -> str:
    known = [*_NAMES, "buckets:N"]
    close = "".join(f"; did you mean {match!r}?" for match in get_close_matches(name, known, 1))
    return f"unknown keying {name!r}: not one of {', '.join(known)}{close}"
