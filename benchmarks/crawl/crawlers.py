"""The compared crawlers: how each is started, its cost and its output."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Event, Timer
from typing import Any

import msgspec
from webs import cores, pin

from outrider.testing.web import Hit, Web
from outrider.testing.web.graph import ROBOTS

HERE = Path(__file__).resolve().parent
OURS = Path(sys.executable).with_name("outrider")
CONCURRENCY = 16
LONGEST = 900.0  # seconds; whoever takes longer is ended
LOOK = 0.002  # seconds between two looks at a record
OUT = "out.jsonl"  # what every crawler writes in its folder
STORE = "crawl.outrider"  # and what ours keeps there

pause = Event().wait  # seconds in which nothing is done


class Unmeasured(Exception):
    """A crawler has no figure; the message says why."""


class Spent(msgspec.Struct, frozen=True):
    """What a run took: its process, and all it started."""

    cpu: float  # seconds, user and system
    wall: float
    code: int


Command = Callable[[str, Path], list[str]]  # from a seed, in a folder


def ours(*options: str) -> Command:
    """Outrider, without delays, as many visits of a host at a time as there are slots."""
    eager = ("--delay", "0", "--set", f"politeness.max_in_flight={CONCURRENCY}", *options)
    return polite("--slots", str(CONCURRENCY), *eager)


def polite(*options: str) -> Command:
    """Outrider with its default politeness."""

    def command(seed: str, folder: Path) -> list[str]:
        files = ["--store", str(folder / STORE), "--output", str(folder / "out")]
        # The webs here are deep: a host of few links a page is a chain of pages.
        where = ["--scope", "all", "--allow-private", "--max-depth", "1000000"]
        return [str(OURS), "crawl", seed, *files, *where, "--quiet", *options]

    return command


def peer(name: str, *options: str) -> Command:
    """Scrapy or Crawlee, in an environment of its own."""
    python = _environment(name)
    script = str(HERE / f"{name}_crawl.py")

    def command(seed: str, folder: Path) -> list[str]:
        where = [seed, str(folder / OUT), str(CONCURRENCY)]
        filled = [option.format(folder=folder) for option in options]
        return [str(python), "-E", "-B", script, *where, *filled]

    return command


def _environment(name: str) -> Path:
    sys.path.append(str(HERE.parent / "peers"))  # scripts, not a package
    peers = importlib.import_module("run")
    try:
        python: Path = peers.environment(name)
    except peers.Unmeasured as why:
        raise Unmeasured(f"{name}: {why}") from why
    return python


def started(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """On the crawlers' core."""
    with (folder / "errors.txt").open("ab") as errors:
        process = subprocess.Popen(command, cwd=folder, stdout=errors, stderr=errors)  # noqa: S603  our own commands
    pin(process.pid, cores()[1])
    return process


def crawled(command: Sequence[str], folder: Path) -> Spent:
    """Run to the end."""
    began = time.perf_counter()
    process = started(command, folder)
    late = Timer(LONGEST, process.kill)
    late.start()
    _, status, usage = os.wait4(process.pid, 0)
    late.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    return Spent(usage.ru_utime + usage.ru_stime, wall, process.returncode)


def killed_at(process: subprocess.Popen[bytes], is_time: Callable[[], bool]) -> bool:
    """End it by SIGKILL once it is time; False: it ended before by itself."""
    while not is_time():
        if process.poll() is not None:
            return False
        pause(LOOK)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return True


class Record:
    """A server's record that grows: counted, not read."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.lines = 0

    def count(self) -> int:
        """Hits so far."""
        while data := self._file.read(1 << 20):
            self.lines += data.count(b"\n")
        return self.lines


def counts_of(folder: Path) -> dict[str, Any]:
    """Return the counts of an Outrider crawl's store; empty if there is none."""
    store = folder / STORE
    if not store.exists():
        return {}
    told = subprocess.run([OURS, "stats", store, "--json"], capture_output=True, check=True)  # noqa: S603  our own command
    counts: dict[str, Any] = msgspec.json.decode(told.stdout)
    return counts


def pages_of(hits: Iterable[Hit], web: Web) -> Counter[str]:
    """How often each page was served, by the server's record."""
    served = (hit for hit in hits if hit.path != ROBOTS and hit.status == 200)
    return Counter(web.page(hit.host, hit.target) for hit in served)


class Written(msgspec.Struct, frozen=True):
    """What a crawler wrote down."""

    pages: Counter[str]
    torn: int  # lines that are no JSON, or end without a newline


def written(folder: Path) -> Written:
    """Read it back."""
    path = folder / OUT
    data = path.read_bytes() if path.exists() else b""
    pages: Counter[str] = Counter()
    torn = int(bool(data) and not data.endswith(b"\n"))
    for line in data.splitlines():
        try:
            pages[msgspec.json.decode(line)["url"]] += 1
        except (msgspec.DecodeError, UnicodeDecodeError):
            torn += 1
    return Written(pages, torn)


def lost_work(hits: Iterable[Hit], web: Web, folder: Path, wanted: set[str]) -> str:
    """Why a run has no figure: every page is to be fetched once, and written once. "": it is so."""
    fetched, wrote = pages_of(hits, web), written(folder)
    faults = {
        "not fetched": len(wanted - fetched.keys()),
        "fetched more than once": sum(count > 1 for count in fetched.values()),
        "strange": len(fetched.keys() - wanted),
        "not written": len(wanted - wrote.pages.keys()),
        "written more than once": sum(count > 1 for count in wrote.pages.values()),
        "torn": wrote.torn,
    }
    return ", ".join(f"{count} {what}" for what, count in faults.items() if count)
