"""Benchmarks of the peers on Outrider's workload, each in its own environment.

The contract, for `outrider bench` and anyone else:

    python benchmarks/peers/run.py --workload FILE [--claims FILE] [--limit N] [--hosts N]
                                   [--core N] [--peers scrapy crawlee] [--json OUT]

Python 3.11 or newer with venv runs it; nothing of Outrider is imported. FILE holds raw URLs in
canonical form, one a line: the workload is the add stream with its duplicates, the claims are what
waits when claims are measured. Without --claims that is the workload's distinct URLs, the n-th
moved to host n modulo --hosts; 20,000 lines keep 2,000 hosts busy to the end. Environments are
made in .venv-peers when missing or outdated, which needs the package index; the rest of a run
takes a minute, or two on a busy machine.

Standard output is a table; progress and complaints go to standard error; OUT is one JSON object:

    schema    1; raised when a name or a meaning changes
    python    the version the peers ran on
    core      the core they stayed on, or null
    workload  {"lines": N, "distinct": N}
    claims    {"distinct": N, "hosts": N}
    peers     name → {"version", "versions", "reason"}: reason is null, or why nothing was measured
    figures   name → {"best", "median", "unit", "reason", ...}: all in FIGURES of the peers asked;
              best and median are null exactly when reason is not. Measured ones also have "what",
              "windows", "count", "wall" (a mean a second of wall time), and where they apply
              "durability", "queue", "hosts", "hosts_left"

Rates are per CPU second of the whole process, in windows as in outrider.bench. The exit code is 0
whatever the peers do, and 2 if the arguments are wrong: what a missing figure means is the
caller's to decide.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from figures import nothing

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent.parent / ".venv-peers"
FIGURES = {
    "scrapy": (
        "scrapy.adds",
        "scrapy.adds_plain",
        "scrapy.adds_as_written",
        "scrapy.canonicaliser",
        "scrapy.claims_default",
        "scrapy.claims_plain",
    ),
    "crawlee": (
        "crawlee.sqlite.adds",
        "crawlee.sqlite.claims",
        "crawlee.memory.adds",
        "crawlee.memory.claims",
    ),
}
LIMIT = 100_000
HOSTS = 2_000
INSTALLING = 900.0  # seconds; slow networks are common, endless ones are not waited for
MEASURING = 240.0  # seconds; a script budgets itself to one minute on an idle machine


class Unmeasured(Exception):
    """A peer could not be installed or run; the message says why."""


def measure(
    workload: Path,
    *,
    claims: Path | None = None,
    limit: int = LIMIT,
    hosts: int = HOSTS,
    core: int | None = None,
    peers: Sequence[str] = tuple(FIGURES),
) -> dict[str, Any]:
    """All figures of the peers named, in the shape the contract states."""
    stream = workload.read_text().split()[:limit]
    core = _last_core() if core is None else core
    with tempfile.TemporaryDirectory() as folder:
        if claims is None:
            claims = Path(folder, "claims.txt")
            claims.write_text("\n".join(spread(stream, hosts)))
        options = ["--workload", str(workload), "--claims", str(claims), "--limit", str(limit)]
        options += [] if core is None else ["--core", str(core)]
        found = {peer: _measured(peer, options) for peer in peers}
        return {
            "schema": 1,
            "python": platform.python_version(),
            "core": core,
            "workload": {"lines": len(stream), "distinct": len(set(stream))},
            "claims": _counted(claims),
            "peers": {
                peer: {key: answer.get(key) for key in ("version", "versions", "reason")}
                for peer, answer in found.items()
            },
            "figures": {
                name: figure for a in found.values() for name, figure in a["figures"].items()
            },
        }


def spread(texts: Sequence[str], hosts: int) -> list[str]:
    """The distinct URLs, in order, the n-th on host n modulo hosts: every host has equal work."""
    distinct = map(urlsplit, dict.fromkeys(texts))
    return [
        url._replace(netloc=f"www.host-{number % hosts}.example").geturl()
        for number, url in enumerate(distinct)
    ]


def _counted(claims: Path) -> dict[str, int]:
    distinct = set(claims.read_text().split())
    return {"distinct": len(distinct), "hosts": len({urlsplit(url).netloc for url in distinct})}


def _last_core() -> int | None:
    """The first core often serves the interrupts of the machine, so the last is the quieter."""
    ask = getattr(os, "sched_getaffinity", None)
    return max(ask(0)) if ask else None


def _measured(peer: str, options: list[str]) -> dict[str, Any]:
    try:
        answer = _answer(peer, options)
    except Unmeasured as why:
        _tell(f"{peer}: {why}")
        return {"reason": str(why), "figures": {name: nothing(str(why)) for name in FIGURES[peer]}}
    missing = nothing("its script did not report it")
    return answer | {"figures": {n: answer["figures"].get(n, missing) for n in FIGURES[peer]}}


def _answer(peer: str, options: list[str]) -> dict[str, Any]:
    python = environment(peer)
    _tell(f"{peer}: measuring…")
    script = str(HERE / f"measure_{peer}.py")
    output = _run([str(python), "-E", "-B", script, *options], MEASURING)
    try:
        return json.loads(output)
    except ValueError as error:
        raise Unmeasured(f"its script printed no JSON: {error}") from error


def environment(peer: str) -> Path:
    """The peer's interpreter; its environment is created if missing or if pins changed."""
    folder, pins = ENVIRONMENTS / peer, HERE / f"{peer}.txt"
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    wanted = f"# Python {platform.python_version()}\n{pins.read_text()}"
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    _tell(f"{peer}: installing {pins.name} into {folder.parent.name}/{folder.name}…")
    _run([sys.executable, "-m", "venv", "--clear", str(folder)], INSTALLING)
    pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "-r", str(pins)], INSTALLING)
    stamp.write_text(wanted)  # last, so that half an environment is never taken for a whole one
    return python


def _run(command: list[str], seconds: float) -> str:
    try:
        done = subprocess.run(  # noqa: S603  our own scripts and pins, no shell
            command, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as slow:
        raise Unmeasured(f"gave up after {seconds:.0f} s") from slow
    except OSError as error:
        raise Unmeasured(f"could not be started: {error.strerror}") from error
    if done.returncode:
        raise Unmeasured(_complaint(done.stderr or done.stdout) or f"exit code {done.returncode}")
    return done.stdout


def _complaint(text: str) -> str:
    """The line that says what went wrong: pip marks its own, Python's is the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith("ERROR:")]
    return (marked or lines or [""])[-1].removeprefix("ERROR: ")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _table(report: dict[str, Any]) -> str:
    rows = [f"{peer} {about['version'] or 'absent'}" for peer, about in report["peers"].items()]
    for name, figure in report["figures"].items():
        if figure["best"] is None:
            rows.append(f"  {name:24} {'–':>9} {'':19}{figure['reason']}")
        else:
            median = f"({figure['median']:,.0f})"
            rows.append(f"  {name:24} {figure['best']:9,.0f} {median:>11} /s    {figure['what']}")
    return "\n".join(rows)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Scrapy and Crawlee on our workload.")
    parser.add_argument("--workload", type=Path, required=True, help="raw URLs, one a line")
    parser.add_argument("--claims", type=Path, help="distinct URLs that wait to be claimed")
    parser.add_argument("--limit", type=int, default=LIMIT, help="lines of the workload to use")
    parser.add_argument("--hosts", type=int, default=HOSTS, help="hosts to spread claims over")
    parser.add_argument("--core", type=int, help="the core to stay on; the last by default")
    parser.add_argument("--peers", nargs="+", choices=FIGURES, default=tuple(FIGURES))
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    asked = parser.parse_args()
    for file in (asked.workload, asked.claims):
        if file is not None and not file.is_file():
            parser.error(f"there is no file {file}")
    return asked


def main() -> None:
    """Measure, print, write."""
    asked = vars(_asked())
    target = asked.pop("json")
    report = measure(**asked)
    print(_table(report))
    if target is not None:
        target.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
