"""The address of a PostgreSQL store: a URL, validated before anything connects to the server."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from outrider.errors import InvalidInput
from outrider.store.address import HIDDEN, hide_secrets, is_option, show_address, unreadable

DEFAULT_SCHEMA: Final = "outrider"
_SCHEMES: Final = ("postgresql", "postgres")
_is_name = re.compile(r"[a-z_][a-z0-9_]{0,48}").fullmatch
_is_port = re.compile(r"[0-9]{0,5}(?:,[0-9]{0,5})*").fullmatch


class Address(NamedTuple):
    """A server's address as the driver takes it, and the schema that holds Outrider's tables."""

    url: str
    schema: str
    shown: str  # without a password

    def __repr__(self) -> str:
        return f"Address({self.shown!r}, schema={self.schema!r})"


def parse_address(url: str) -> Address:
    """Parse a URL; one that cannot be meant is refused."""
    base, _, options = url.partition("?")
    scheme, _, rest = base.partition("://")
    authority, _, path = rest.partition("/")
    # The driver ends the password at the first @, and the host at the first slash: with one more
    # of them it would take part of the password for the host, and show it in its error.
    if authority.count("@") > 1 or "@" in path or "@" in options:
        raise unreadable(scheme)
    query = parse_qsl(options, keep_blank_values=True)
    if not all(is_option(name) for name, _ in query):
        raise unreadable(scheme)
    shown = show_address(base)
    schema = dict(query).get("schema", DEFAULT_SCHEMA)
    if scheme not in _SCHEMES or not _is_name(schema):
        raise InvalidInput(
            f"{shown}?schema={schema!r}: a schema is up to 49 letters a-z, digits and _"
        )
    rest = urlencode([pair for pair in query if pair[0] != "schema"], quote_via=quote)
    found = base + ("?" + rest if rest else "")
    _check(found, scheme, shown)
    return Address(found, schema, shown)


def _check(url: str, scheme: str, shown: str) -> None:
    try:
        info = conninfo_to_dict(url)
    except psycopg.Error as error:
        if "percent-encoded" in str(error) or "://" in str(error):  # it quotes the address
            raise unreadable(scheme) from None
        raise InvalidInput(f"{shown}: {hide_secrets(str(error).strip(), url)}") from None
    if not _is_port(str(info.get("port") or "")):
        raise InvalidInput(f"{scheme}://{HIDDEN}: the port is no number; check the port of the URL")
