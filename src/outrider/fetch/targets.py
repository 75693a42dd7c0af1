"""Where connections go instead, by settings: URL, Host header and TLS name stay as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from outrider.errors import SettingsError

_PLACE: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]/\s]+))(?::(\d{1,5}))?", re.ASCII)


class Target(NamedTuple):
    """An address, or a name for one, and a port; without one, the URL's stays."""

    address: str
    port: int | None


class Targets:
    """Who is reached elsewhere: a host by its name, those under a suffix, or everyone (`.`)."""

    def __init__(self, connect_to: Mapping[str, str]) -> None:
        self._targets = {
            host.lower() or ".": _target(host, place) for host, place in connect_to.items()
        }

    def of(self, host: str) -> Target | None:
        """The most exact entry's target."""
        if not self._targets:
            return None
        host = host.rstrip(".")
        found, at = self._targets.get(host), 0
        while found is None and (at := host.find(".", at)) >= 0:
            found = self._targets.get(host[at:])
            at += 1
        return found or self._targets.get(".")


def _target(host: str, place: str) -> Target:
    parts = _PLACE.fullmatch(place)
    if parts is None or int(parts[3] or 0) > 0xFFFF:
        raise SettingsError(f'fetch.connect_to["{host}"]: write address:port, not "{place}"')
    return Target(parts[1] or parts[2], int(parts[3]) if parts[3] else None)
