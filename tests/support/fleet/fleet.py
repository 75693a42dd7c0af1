"""The fleet: worker processes that are started, killed, stopped and let go again, by name."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import msgspec

from child_environment import child_environment
from fleet import worker
from fleet.fake_web import World
from fleet.verify import ledgers
from fleet.worker_log import Told, Visited, read
from outrider.clock import uptime

_PATIENCE: Final = 180.0  # seconds a crawl may take, on the slowest machine
_NAP: Final = 0.02


class Fleet:
    """So many workers on a store; use it as a context, so that none is left behind."""

    def __init__(self, url: str, folder: Path, world: World) -> None:
        self._url = url
        self.folder = folder
        self.world = world
        self._members: dict[str, subprocess.Popen[str]] = {}
        self._started = 0
        self._said: IO[str] = (folder / "said.txt").open("a")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._members):
            self.kill(name)
        self._said.close()

    @property
    def names(self) -> list[str]:
        """Who is at work."""
        return list(self._members)

    def start(self, *, url: str | None = None, skew: float = 0.0) -> str:
        """One worker more; its name."""
        self._started += 1
        name = f"w{self._started:03}"
        world = msgspec.json.encode(self.world).decode()
        words = [url or self._url, str(self.folder / f"{name}.jsonl"), world, str(skew)]
        self._members[name] = subprocess.Popen(
            [sys.executable, "-m", worker.__name__, *words],
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=child_environment(),
        )
        return name

    def await_ready(self) -> None:
        """Until everybody has opened the store."""
        for process in self._members.values():
            assert process.stdout is not None
            process.stdout.readline()

    def kill(self, name: str) -> None:
        """As `kill -9` does."""
        process = self._members.pop(name)
        process.kill()
        process.communicate()

    def pause(self, name: str) -> None:
        """It stands still, and knows nothing of it."""
        self._members[name].send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """It goes on as if no time had passed."""
        self._members[name].send_signal(signal.SIGCONT)

    def visiting(self) -> str:
        """Somebody whose visit has just begun, so that it lasts a while."""
        for _ in range(int(_PATIENCE / _NAP)):
            for name in self._members:
                lines = [*read(self.folder / f"{name}.jsonl")]
                if lines and isinstance(lines[-1], Visited) and self._is_fresh(lines[-1]):
                    return name
            rest(_NAP)
        raise TimeoutError(f"nobody visits: {self.said()}")

    def _is_fresh(self, visit: Visited) -> bool:
        return uptime() < visit.at + self.world.duration / 2

    def late(self) -> int:
        """How many visits ended when their leases were lost."""
        return sum(isinstance(line, Told) and not line.applied for line in ledgers(self.folder))

    def kill_some(self, rounds: int, dice: random.Random, seconds: tuple[float, float]) -> int:
        """Kill one at random and start another, again and again; how often until the end."""
        for done in range(rounds):
            rest(dice.uniform(*seconds))
            if any(process.poll() is not None for process in self._members.values()):
                return done  # the crawl is over
            self.kill(dice.choice(self.names))
            self.start()
        return rounds

    def done(self) -> int:
        """How many ends of visits were acknowledged so far."""
        return sum(isinstance(line, Told) and line.applied for line in ledgers(self.folder))

    def wait_for(self, count: int) -> None:
        """Until so many visits have ended."""
        for _ in range(int(_PATIENCE / _NAP)):
            if self.done() >= count:
                return
            rest(_NAP)
        raise TimeoutError(f"{self.done()} of {count} visits: {self.said()}")

    def finish(self) -> None:
        """Until the crawl is over and everybody went home."""
        for name, process in list(self._members.items()):
            process.communicate(timeout=_PATIENCE)
            del self._members[name]
            if process.returncode:
                raise RuntimeError(f"{name} ended with {process.returncode}: {self.said()}")

    def said(self) -> str:
        """What workers said on standard error."""
        self._said.flush()
        return (self.folder / "said.txt").read_text()[-4000:]


def rest(seconds: float) -> None:
    """Real time passes."""
    threading.Event().wait(seconds)
