"""Crawls of a local web over real sockets: by the library here, by the command in processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from outrider.settings import merged, settings_of
from outrider.testing.web import WebServer, WebThread
from outrider.testing.web.graph import FEED, ROBOTS, SITEMAP
from outrider.wiring import opened

PATIENCE = 120  # seconds: a crawl that takes longer hangs
NAP = 0.02  # seconds between two looks
ASIDE = {ROBOTS, SITEMAP, FEED}
QUICK = {
    "politeness": {"delay": 0.05},
    "retry": {"base": 0.05, "jitter": 0.0, "max_retries": 1},
    "fetch": {"connect_timeout": 2.0, "read_timeout": 2.0, "total_timeout": 5.0},
    "scope": {"mode": "domain"},
    "queue": {"max_depth": 100},
}


class Crawled(NamedTuple):
    """A crawl that is over, and what the web's own record says of it."""

    web: Any
    hits: list
    ends: dict  # URL → its outcomes, in order
    ending: Any
    stats: Any
    queues: dict

    @property
    def pages(self):
        """How often each page was asked for, whatever it was called."""
        return pages_of(self.web, self.hits)

    def last(self, host, target="/"):
        """How the last visit of a page ended."""
        return self.ends[self.web.url(host, target)][-1]


def pages_of(web, hits):
    """How often each page was asked for; robots.txt, sitemaps and feeds are no pages."""
    return Counter(web.page(hit.host, hit.target) for hit in hits if hit.path not in ASIDE)


@pytest.fixture
def crawled():
    """Crawls a web from its roots, or from seeds, in this process and to the end."""

    async def crawl(web, *seeds, settings=None, store="memory://", **how):
        ends = defaultdict(list)

        def observe(visits):
            for visit in visits:
                ends[visit.url].append(visit.outcome)

        async with WebServer(web) as server:
            tree = merged(merged(settings_of(QUICK), server.settings()), settings or {})
            async with opened(store, settings=tree, **how) as crawling:
                crawling.observe(observe)
                await crawling.frontier.add(list(seeds) or server.web.seeds())
                async with asyncio.timeout(PATIENCE):
                    ending = await crawling.run()
                stats = await crawling.frontier.stats()
                queues = {view.key: view async for view in crawling.frontier.queues()}
            return Crawled(server.web, list(server.hits), dict(ends), ending, stats, queues)

    return crawl


# ---- the command


class Answer(NamedTuple):
    """What a command left with, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """The one object it wrote."""
        return json.loads(self.out)

    @property
    def last(self):
        """The last line of its answer."""
        return self.out.splitlines()[-1]


class Command:
    """`outrider`, in a folder; whatever still runs at the end of a test is killed."""

    def __init__(self, folder):
        self.folder = folder
        self._started = []

    def start(self, *words, before="true", command=None):
        """A process that runs it, or another command, after a command of the shell."""
        command = command or str(Path(sys.executable).with_name("outrider"))
        process = subprocess.Popen(
            ["/bin/sh", "-c", f'{before} && exec "$0" "$@"', command, *map(str, words)],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def __call__(self, *words):
        """Run it to its end."""
        return self.end(self.start(*words))

    def shown(self, *words):
        """The objects that it wrote, one a line."""
        return [json.loads(line) for line in self(*words).out.splitlines()]

    def end(self, process):
        """Wait for a process that was started."""
        out, err = process.communicate(timeout=PATIENCE)
        return Answer(process.returncode, out, err)

    def heard(self, process):
        """The next line of a process's errors, and nothing of those after it: `end` has them."""
        line = b""
        while (letter := os.read(process.stderr.fileno(), 1)) not in (b"", b"\n"):
            line += letter
        return line.decode()

    def on(self, served, *words, delay=0.02):
        """The words of a crawl of a web."""
        return ("crawl", *words, "--delay", delay, *reaching(served))

    def lines(self, name):
        """The objects of a file of JSON lines."""
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]

    def files(self):
        """Every file there is, with its bytes."""
        return {path.name: path.read_bytes() for path in self.folder.iterdir() if path.is_file()}

    def clean_up(self):
        """Leave no process behind."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()


def reaching(served):
    """Options with which the command finds a web."""
    routes = served.settings()["fetch"]["connect_to"]
    table = ", ".join(f'"{host}" = "{place}"' for host, place in routes.items())
    return ("--set", f"fetch.connect_to={{{table}}}")


@pytest.fixture
def outrider(tmp_path):
    """The command, in a folder of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    command = Command(folder)
    yield command
    command.clean_up()


@pytest.fixture
def serve():
    """Serves webs beside the test until it ends."""
    served = []

    def begin(web):
        served.append(WebThread(web).__enter__())
        return served[-1]

    yield begin
    for one in served:
        one.__exit__()


@pytest.fixture
def until():
    """Waits until something is so; for tests that are no coroutines."""

    def wait(is_so):
        nap = threading.Event()
        for _ in range(int(PATIENCE / NAP)):
            if is_so():
                return
            nap.wait(NAP)
        pytest.fail("it never came to pass")

    return wait
