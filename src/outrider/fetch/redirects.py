"""Where a response points to: what is a redirect, and to what."""

from __future__ import annotations

from typing import Final

from outrider.core.url import Refusal, Url, UrlRules, parse_url
from outrider.fetch.response import Response

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


def target_of(response: Response, rules: UrlRules) -> Url | Refusal | None:
    """The target, why it cannot be one, or None if the response names none."""
    if response.status not in REDIRECTS:
        return None
    base = parse_url(response.url, rules)
    location = response.header("location")
    if location is None or not isinstance(base, Url):
        return None
    return parse_url(location, rules, base)
