"""Behaviours of the test sites: each function returns one; they can be nested."""

from __future__ import annotations

from collections.abc import Container
from email.utils import formatdate
from itertools import pairwise
from math import log
from typing import Final, Literal

import msgspec

from outrider.testing.web.messages import (
    HTML,
    Answer,
    Asked,
    Behaviour,
    Reply,
    html,
    linking,
)
from outrider.testing.web.seeded_random import chance

Redirection = Literal[301, 302, 303, 307, 308]
_MAX_CHANGES: Final = 100_000


def serving(body: bytes | str, type: str = HTML, status: int = 200) -> Behaviour:
    """Return a behaviour that always sends the same body."""
    reply = Reply(body.encode() if isinstance(body, str) else body, status, type)
    return lambda _: reply


def linked(title: str, *urls: str) -> Behaviour:
    """Return a behaviour that sends a page of links."""
    return serving(linking(title, urls))


def failing(
    status: int, retry_after: float | None = None, *, retry_as_date: bool = False
) -> Behaviour:
    """Return a behaviour that sends an error status, with Retry-After if seconds are given."""
    body = html(f"{status}", f"status {status}")
    reply = Reply(body, status, retry_after=retry_after, retry_as_date=retry_as_date)
    return lambda _: reply


def redirecting(location: str, status: Redirection = 302) -> Behaviour:
    """Return a behaviour that redirects; `location` may be relative."""
    reply = Reply(linking("moved", [location]), status, headers=(("Location", location),))
    return lambda _: reply


def disguising(status: Redirection = 302) -> Behaviour:
    """Return a behaviour that redirects to itself, with a new tracking parameter each time."""

    def behave(asked: Asked) -> Answer:
        location = f"{asked.path}?utm_source=hop{asked.hit}"
        return redirecting(location, status)(asked) or Reply()

    return behave


def chain(prefix: str, hops: int, goal: str, status: Redirection = 302) -> dict[str, Behaviour]:
    """Return paths `prefix`0 … that redirect, one to the next, to a goal after so many hops."""
    steps = [*(f"{prefix}{n}" for n in range(hops)), goal]
    return {here: redirecting(there, status) for here, there in pairwise(steps)}


def flaky(then: Behaviour, *, times: int = 1, trouble: Behaviour | None = None) -> Behaviour:
    """Return a behaviour that fails the first visits of a target, then behaves as `then`."""
    first = trouble or failing(500)
    return lambda asked: first(asked) if asked.visit <= times else then(asked)


def throttling_haste(least: float, retry_after: float, *, as_date: bool = False) -> Behaviour:
    """Return a behaviour: 429 within `least` seconds of the last answer; for `Site.first`."""
    busy = failing(429, retry_after, retry_as_date=as_date)
    return lambda asked: busy(asked) if asked.idle < least else None


def throttling_hits(
    hits: Container[int], retry_after: float | None, *, as_date: bool = False, status: int = 429
) -> Behaviour:
    """Return a behaviour that sends 429 on the n-th hits of a host, from 1; for `Site.first`."""
    busy = failing(status, retry_after, retry_as_date=as_date)
    return lambda asked: busy(asked) if asked.hit in hits else None


def slow(then: Behaviour, *, wait: float = 0.0, pause: float = 0.0, pieces: int = 1) -> Behaviour:
    """Return a behaviour that waits before the head, and between pieces of the body."""
    return _with_fields(then, wait=wait, pause=pause, pieces=pieces)


def packed(then: Behaviour) -> Behaviour:
    """Return a behaviour that compresses with gzip, whatever the client accepts."""
    return _with_fields(then, gzip=True)


def chunked(then: Behaviour, *, pieces: int = 3) -> Behaviour:
    """Return a behaviour that sends chunks instead of a length."""
    return _with_fields(then, chunked=True, pieces=pieces)


def reply_if_changed(reply: Reply, asked: Asked) -> Reply:
    """Return the reply, or 304 if the client has the same version of the page."""
    fields = dict(reply.headers)
    held = asked.headers.get("if-none-match")
    if held is not None:
        is_same = fields.get("ETag") in [tag.strip() for tag in held.split(",")]
    else:
        since = asked.headers.get("if-modified-since")
        is_same = since is not None and since == fields.get("Last-Modified")
    return Reply(b"", 304, headers=reply.headers) if is_same else reply


def changing(seed: int, rate: float, *links: str) -> Behaviour:
    """Return a behaviour: a page that changes `rate` times a second (Poisson), with validators."""

    def behave(asked: Asked) -> Answer:
        version, changed_ago = version_of(seed, asked.path, rate, asked.age)
        tag = f'"{seed}-{version}"'
        modified = formatdate(asked.at - changed_ago, usegmt=True)
        body = html(asked.path, f"<p>version {version}</p>") + linking("more", links)
        reply = Reply(body, headers=(("ETag", tag), ("Last-Modified", modified)))
        return reply_if_changed(reply, asked)

    return behave


def version_of(seed: int, path: str, rate: float, age: float) -> tuple[int, float]:
    """Return how often a page has changed at an age, and seconds since its last change."""
    changed_at = 0.0
    for version in range(_MAX_CHANGES):
        gap = -log(1.0 - chance(f"{seed} {path} change {version}")) / rate
        if changed_at + gap > age:
            return version, age - changed_at
        changed_at += gap
    return _MAX_CHANGES, 0.0


def _with_fields(then: Behaviour, **fields: object) -> Behaviour:
    def behave(asked: Asked) -> Answer | None:
        answer = then(asked)
        return msgspec.structs.replace(answer, **fields) if isinstance(answer, Reply) else answer

    return behave
