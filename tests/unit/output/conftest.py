"""Visits as an executor hands them in, and leases of a real store to make them of."""

import functools
import os
from pathlib import Path

import msgspec
import pytest

from outrider import Done, Frontier, Link
from outrider.fetch.response import Response
from outrider.output import append_files, journal

AT = 1_700_000_000.125
SETTINGS = {"politeness": {"min_delay": 0, "factor": 0, "max_in_flight": 100}}


class FakePage(msgspec.Struct):
    """As fetching makes one."""

    url: str
    status: int = 200
    body: bytes = b"<p>hello</p>"
    seconds: float = 0.25
    at: float = AT
    media_type: str | None = "text/html"
    charset: str | None = "utf-8"
    text: str = "<p>hello</p>"
    title: str | None = "Hello"
    digest: str | None = "d1"
    canonical: str | None = None
    location: str | None = None
    from_cache: bool = False
    response: Response | None = None


class FakeVisit:
    """As an executor has it when it ended."""

    def __init__(self, lease, *, outcome=None, items=(), links=(), **page):
        self.lease = lease
        self.outcome = Done(page.get("status", 200)) if outcome is None else outcome
        self.page = FakePage(lease.url, **page)
        self.items = list(items)
        self.links = list(links)


def responded(lease, body=b"<p>hello</p>", headers=(), *, status=200, **fields):
    """A visit with the answer as it came."""
    given = {"at": AT, "reason": "OK", "address": "192.0.2.7", **fields}
    response = Response(lease.url, status, tuple(headers), body, 0.25, **given)
    return FakeVisit(lease, response=response, body=body, status=status)


def lines_of(path):
    """All lines of a file, each whole."""
    data = Path(path).read_bytes()
    assert data == b"" or data.endswith(b"\n")
    return [msgspec.json.decode(line) for line in data.splitlines()]


def finish(frontier, visits):
    """The store is told, as an executor tells it."""
    return frontier.finish_many([(one.lease, one.outcome) for one in visits])


@pytest.fixture
async def frontier():
    """One in memory."""
    async with Frontier.open("memory://", settings=SETTINGS) as opened:
        yield opened


@pytest.fixture
def claimed(frontier):
    """Leases of as many pages."""

    async def claim(count, **link):
        first = (await frontier.stats()).known
        urls = [f"https://h{n}.test/{n}" for n in range(first, first + count)]
        await frontier.add([Link(url, **link) for url in urls])
        return await frontier.claim(count)

    return claim


@pytest.fixture
async def leases(claimed):
    """Six of them."""
    return await claimed(6)


@pytest.fixture
def visits(leases):
    """Six that were answered."""
    return [FakeVisit(lease) for lease in leases]


class Killed(BaseException):
    """Nothing that this process wants to do is done any more."""


class Mortal:
    """The system, until the n-th call that would change something: from then on nothing works.

    `torn`: of the fatal write, half is done.
    """

    FATAL = ("open", "write", "pwrite", "ftruncate", "fsync", "unlink")

    def __init__(self, calls, *, torn=False):
        self._left, self._torn = calls, torn

    def __getattr__(self, name):
        found = getattr(os, name)
        return functools.partial(self._call, found) if name in self.FATAL else found

    def _call(self, function, *args):
        fatal = self.is_over()
        if fatal and self._left == 0 and self._torn and function in (os.write, os.pwrite):
            function(args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
        if fatal:
            raise Killed
        return None if function is os.fsync else function(*args)  # no power is cut here

    def is_over(self):
        """One step more; whether it was the last."""
        self._left -= 1
        return self._left <= 0

    def step(self):
        """Something else than a call."""
        if self.is_over():
            raise Killed


@pytest.fixture
def system(monkeypatch):
    """The system that output works on is replaced."""

    def replace(new):
        for module in (journal, append_files):
            monkeypatch.setattr(module, "os", new)
        return new

    return replace


def bury(sink):
    """What the system does when a process is dead."""
    for one in (*sink._files._open.values(), sink._journal):
        if one._file >= 0:
            os.close(one._file)


@pytest.fixture
def kit():
    """What tests build visits of, as they cannot import this file."""

    class Kit:
        visit = FakeVisit
        page = FakePage
        responded = staticmethod(responded)
        lines = staticmethod(lines_of)
        finish = staticmethod(finish)
        settings = SETTINGS
        Mortal = Mortal
        Killed = Killed
        bury = staticmethod(bury)

    return Kit
