"""`python -m outrider.testing.web`: serve a web until standard input ends, or SIGTERM comes.

One JSON line tells when it is ready: port, settings for a crawler, and where hits are recorded.
Whatever comes on standard input is answered by an empty line, once all that was served before is
in the record: a visitor may hold an answer before its hit is written down.
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
from outrider.testing.web.process import Ready
from outrider.testing.web.server import WebServer

_FLAGS = ("seed", "hosts", "pages", "links", "page_bytes", "private", "listed", "fed")


def main(arguments: list[str] | None = None) -> int:
    """Serve."""
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
    """The shape that is asked for: flags win over JSON."""
    fields = msgspec.json.decode(options.shape, type=dict[str, object])
    given = {flag: getattr(options, flag) for flag in (*_FLAGS, "addresses")}
    fields |= {flag: value for flag, value in given.items() if value is not None}
    return msgspec.convert(fields, Shape)


async def _serve(options: argparse.Namespace) -> None:
    web = WORLDS[options.world](shape_of(options))
    ended = await _end()
    async with WebServer(web, port=options.port, record=options.record) as server:
        ready = Ready(server.port, server.settings(), str(options.record or ""))
        _tell(msgspec.json.encode(ready).decode())
        await ended.wait()


async def _end() -> asyncio.Event:
    """Set when standard input ends, or SIGTERM or SIGINT comes."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await loop.connect_read_pipe(lambda: _Ear(ended), sys.stdin)
    return ended


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class _Ear(asyncio.Protocol):
    """Hears what comes on standard input, and that it ended."""

    def __init__(self, ended: asyncio.Event) -> None:
        self._ended = ended

    def data_received(self, _: bytes) -> None:
        _tell("")

    def connection_lost(self, _: Exception | None) -> None:
        self._ended.set()


if __name__ == "__main__":
    sys.exit(main())
