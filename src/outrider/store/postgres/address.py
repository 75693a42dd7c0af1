"""Where a store is: what a URL of ours says, checked before anybody is asked."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from outrider.errors import InvalidInput

DEFAULT_SCHEMA: Final = "outrider"
_SCHEMES: Final = ("postgresql", "postgres")
_is_name = re.compile(r"[a-z_][a-z0-9_]{0,48}").fullmatch


class Address(NamedTuple):
    """A server's address as its driver takes it, and the schema where our tables are."""

    url: str
    schema: str
    shown: str  # without a password


def parsed(url: str) -> Address:
    """What the URL says; one that cannot be meant is refused."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise InvalidInput(f"postgresql://…: {error}") from error
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    schema = dict(query).get("schema", DEFAULT_SCHEMA)
    if parts.scheme not in _SCHEMES or not _is_name(schema):
        raise InvalidInput(
            f"{shown}?schema={schema!r}: a schema is up to 49 letters a-z, digits and _"
        )
    rest = urlencode([pair for pair in query if pair[0] != "schema"], quote_via=quote)
    return Address(_checked(urlunsplit(parts._replace(query=rest)), shown), schema, shown)


def _checked(url: str, shown: str) -> str:
    try:
        conninfo_to_dict(url)
    except psycopg.Error as error:
        raise InvalidInput(f"{shown}: {str(error).strip()}") from error
    return url
