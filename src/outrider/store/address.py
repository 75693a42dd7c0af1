"""The address of a store as it may be shown. No other code puts an address into a message.

An address may hold a password, and mistyped ones hold it in places that no rule foresees. So an
address is shown only as far as it is read with certainty: never its user, its password or options
that are not known to be harmless, and of one that cannot be read its scheme at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from outrider.errors import InvalidInput

HIDDEN: Final = "…"
FIX: Final = (
    "write postgresql://user:password@host/database or redis://user:password@host:6379/0, with "
    "every special character of the user and the password percent-encoded (@ %40, / %2F, # %23, "
    "? %3F, % %25)"
)
_MIN_PLAIN_SECRET: Final = 4  # characters
_SHOWN_OPTIONS: Final = ("schema", "prefix", "shards", "db")  # as far as their values are plain

_HOST: Final = r"(?:(?:\[[0-9A-Fa-f:.]+\]|(?:[A-Za-z0-9_.-]|%[0-9A-Fa-f]{2})+)(?::[0-9]{1,5})?)?"
_URL: Final = re.compile(
    rf"""
    (?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://
    (?:(?P<user>[^/?\#]*)@)?
    (?P<hosts>{_HOST}(?:,{_HOST})*)
    (?P<path>(?:/(?:[A-Za-z0-9_.~/-]|%[0-9A-Fa-f]{{2}})*)?)
    (?:\?(?P<query>[^@\#]*))?
    """,
    re.VERBOSE | re.DOTALL,
).fullmatch
_scheme_of: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):").match
is_option: Final = re.compile(r"[A-Za-z_]{1,40}").fullmatch  # the name of one, in a URL
_is_plain: Final = re.compile(r"[A-Za-z0-9_.:-]{1,100}").fullmatch
# What is no URL is a path, unless it looks like an address: `user:password@host`, a URL that lacks
# a slash, or the keywords of a connection string.
_is_path: Final = re.compile(r"(?:/(?!/)|\.{1,2}/|~)").match
_is_mistyped: Final = re.compile(
    r"//|.*:.*@|(?:postgres|redis|valkey)\w*\+?\w*:"
    r"|.*(?:pass\w*|pwd|secret|token)\s*=|\s*(?:host|hostaddr|dbname|user|service)\s*=",
    re.DOTALL | re.IGNORECASE,
).match


def show_address(address: str) -> str:
    """Return the address without anything that may be secret; a path is shown whole."""
    if is_path(address):
        return address
    found = _URL(address)
    if found is None:
        return _scheme_alone(address)
    query = "&".join(_shown_options(found["query"] or ""))
    return f"{found['scheme']}://{found['hosts']}{found['path']}{'?' if query else ''}{query}"


def is_path(address: str) -> bool:
    """Tell whether it names a file: neither a URL nor a mistyped one."""
    if "://" in address:
        return False
    return _is_path(address) is not None or _is_mistyped(address) is None


def check_address(address: str) -> None:
    """Raise InvalidInput for what is neither a URL nor a path, unless such a file exists."""
    if "://" not in address and not is_path(address) and not _exists(address):
        raise InvalidInput(
            f"the address of the store is no URL and looks like no path: {FIX}; a file of such a "
            "name is written with its directory: ./NAME"
        )


def unreadable(scheme: str) -> InvalidInput:
    """Return the error of an address that is ambiguous; it quotes nothing of it."""
    return InvalidInput(f"{scheme}://{HIDDEN} cannot be read with certainty: {FIX}")


def hide_secrets(text: str, address: str) -> str:
    """Return a driver's message about an address, without the secrets in it."""
    for secret in sorted(set(_secrets(address)), key=len, reverse=True):
        found = re.escape(secret)
        if len(secret) < _MIN_PLAIN_SECRET:  # as a word of its own: letters are everywhere
            found = rf"(?<!\w){found}(?!\w)"
        text = re.sub(found, HIDDEN, text)
    return text


def hide_addresses(text: str, words: Iterable[str]) -> str:
    """Return a text with the addresses in it as they may be shown."""
    for word in sorted(_addresses(words), key=len, reverse=True):
        shown = show_address(word)
        for spelling in {word, repr(word)[1:-1], ascii(word)[1:-1]}:
            text = text.replace(spelling, shown)
    return text


def _exists(address: str) -> bool:
    try:
        return Path(address).exists()
    except (OSError, ValueError):
        return False


def _scheme_alone(address: str) -> str:
    found = _scheme_of(address)
    if found is None:
        return HIDDEN
    slashes = "//" if address.startswith("//", found.end()) else ""
    return f"{found[1]}:{slashes}{HIDDEN}" if slashes or _is_known(found[1]) else HIDDEN


def _is_known(scheme: str) -> bool:
    return scheme.lower().startswith(("postgres", "redis", "valkey"))


def _shown_options(query: str) -> Iterator[str]:
    for name, value in parse_qsl(query):
        if name in _SHOWN_OPTIONS and _is_plain(value):
            yield f"{name}={value}"


def _secrets(address: str) -> Iterator[str]:
    """Yield the password and every option that may be one, as written and as decoded."""
    rest = address.partition("://")[2]
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    password = authority.rpartition("@")[0].partition(":")[2]
    options = parse_qsl(rest.partition("?")[2])
    for secret in (password, *(value for name, value in options if "pass" in name.lower())):
        yield from filter(None, (secret, unquote(secret)))


def _addresses(words: Iterable[str]) -> set[str]:
    """Yield the words and values of options that are addresses with something to hide."""
    candidates = {word.partition("=")[2] if word.startswith("-") else word for word in words}
    return {word for word in candidates if _is_address(word) and show_address(word) != word}


def _is_address(word: str) -> bool:
    """Tell whether a word is an address of a store; a page's URL is not, unless it has an @."""
    return "@" in word or not word.lower().startswith(("http://", "https://"))
