"""The fleet: worker processes that are started, killed, stopped and continued by name."""

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
from fleet.verify import read_logs
from fleet.worker_log import FinishAnswered, Visited, read
from outrider.clock import uptime

_TIMEOUT: Final = 180.0  # seconds a crawl may take, on the slowest machine
_POLL_INTERVAL: Final = 0.02


class Fleet:
    """Worker processes on one store; a context manager, so that none is left running."""

    def __init__(self, url: str, folder: Path, world: World) -> None:
        self._url = url
        self.folder = folder
        self.world = world
        self._members: dict[str, subprocess.Popen[str]] = {}
        self._started = 0
        self._errors: IO[str] = (folder / "errors.txt").open("a")

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
        self._errors.close()

    @property
    def names(self) -> list[str]:
        """The names of the running workers."""
        return list(self._members)

    def start(self, *, url: str | None = None, skew: float = 0.0) -> str:
        """Start a worker; return its name."""
        self._started += 1
        name = f"w{self._started:03}"
        world = msgspec.json.encode(self.world).decode()
        words = [url or self._url, str(self.folder / f"{name}.jsonl"), world, str(skew)]
        self._members[name] = subprocess.Popen(
            [sys.executable, "-m", worker.__name__, *words],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=child_environment(),
        )
        return name

    def await_ready(self) -> None:
        """Wait until every worker has opened the store."""
        for process in self._members.values():
            assert process.stdout is not None
            process.stdout.readline()

    def kill(self, name: str) -> None:
        """Kill a worker with SIGKILL."""
        process = self._members.pop(name)
        process.kill()
        process.communicate()

    def pause(self, name: str) -> None:
        """Stop a worker; it does not notice."""
        self._members[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Continue a stopped worker."""
        self._members[name].send_signal(signal.SIGCONT)

    def visiting(self) -> str:
        """Return a worker whose visit has just begun."""
        for _ in range(int(_TIMEOUT / _POLL_INTERVAL)):
            for name in self._members:
                lines = [*read(self.folder / f"{name}.jsonl")]
                if lines and isinstance(lines[-1], Visited) and self._is_fresh(lines[-1]):
                    return name
            wait(_POLL_INTERVAL)
        raise TimeoutError(f"no worker visits a page: {self.errors()}")

    def _is_fresh(self, visit: Visited) -> bool:
        return uptime() < visit.at + self.world.duration / 2

    def late(self) -> int:
        """Return how many visits ended after their leases were lost."""
        return sum(
            isinstance(line, FinishAnswered) and not line.applied for line in read_logs(self.folder)
        )

    def kill_some(self, rounds: int, dice: random.Random, seconds: tuple[float, float]) -> int:
        """Kill a random worker and start another, repeatedly; return how often until the end."""
        for done in range(rounds):
            wait(dice.uniform(*seconds))
            if any(process.poll() is not None for process in self._members.values()):
                return done  # the crawl is over
            self.kill(dice.choice(self.names))
            self.start()
        return rounds

    def done(self) -> int:
        """Return how many finishes were applied so far."""
        return sum(
            isinstance(line, FinishAnswered) and line.applied for line in read_logs(self.folder)
        )

    def wait_for(self, count: int) -> None:
        """Wait until so many finishes were applied."""
        for _ in range(int(_TIMEOUT / _POLL_INTERVAL)):
            if self.done() >= count:
                return
            wait(_POLL_INTERVAL)
        raise TimeoutError(f"{self.done()} of {count} visits: {self.errors()}")

    def finish(self) -> None:
        """Wait until the crawl is over and every worker has ended."""
        for name, process in list(self._members.items()):
            process.communicate(timeout=_TIMEOUT)
            del self._members[name]
            if process.returncode:
                raise RuntimeError(f"{name} exited with {process.returncode}: {self.errors()}")

    def errors(self) -> str:
        """Return the last standard error output of the workers."""
        self._errors.flush()
        return (self.folder / "errors.txt").read_text()[-4000:]


def wait(seconds: float) -> None:
    """Let real time pass."""
    threading.Event().wait(seconds)
