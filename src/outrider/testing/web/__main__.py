"""The test web as a program: `python -m outrider.testing.web`.

It serves until standard input ends or SIGTERM comes. When it is ready it prints one JSON line:
port, settings for a crawler, and the file of hits. It answers every line on standard input with an
empty line, once all hits before it are in the record: a client may have an answer before its hit is
there.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import msgspec

from outrider.testing.web.graph import Shape
from outrider.testing.web.presets import WORLDS
from outrider.testing.web.runners import Ready
from outrider.testing.web.server import WebServer

_FLAGS = ("seed", "hosts", "pages", "links", "page_bytes", "private", "listed", "fed")


def main(arguments: list[str] | None = None) -> int:
    """Serve the web that the arguments describe."""
    options = _parser().parse_args(arguments)
    asyncio.run(_serve(options))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="outrider.testing.web", description=__doc__)
    parser.add_argument("--world", choices=sorted(WORLDS), default="small")
    parser.add_argument("--shape", default="{}", help="JSON with any field of Shape")
    for flag in _FLAGS:
        parser.add_argument(f"--{flag.replace('_', '-')}", type=int)
    parser.add_argument("--addresses", action="store_true", default=None)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--record", type=Path)
    return parser


def shape_of(options: argparse.Namespace) -> Shape:
    """Return the shape that the options describe; flags override the JSON."""
    fields = msgspec.json.decode(options.shape, type=dict[str, object])
    given = {flag: getattr(options, flag) for flag in (*_FLAGS, "addresses")}
    fields |= {flag: value for flag, value in given.items() if value is not None}
    return msgspec.convert(fields, Shape)


async def _serve(options: argparse.Namespace) -> None:
    web = WORLDS[options.world](shape_of(options))
    stop = await _stop_event()
    async with WebServer(web, port=options.port, record=options.record) as server:
        ready = Ready(server.port, server.settings(), str(options.record or ""))
        _print_line(msgspec.json.encode(ready).decode())
        await stop.wait()


async def _stop_event() -> asyncio.Event:
    """Return an event that is set when standard input ends, or SIGTERM or SIGINT comes."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await loop.connect_read_pipe(lambda: _InputReader(stop), sys.stdin)
    return stop


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class _InputReader(asyncio.Protocol):
    """Answers lines on standard input, and sets an event when it ends."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def data_received(self, _: bytes) -> None:
        _print_line("")

    def connection_lost(self, _: Exception | None) -> None:
        self._stop.set()


if __name__ == "__main__":
    sys.exit(main())
