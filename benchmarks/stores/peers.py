"""Benchmarks of scrapy-redis and PgQueuer, each in its own environment."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from outrider.bench.measurement import Measure

HERE = Path(__file__).resolve().parent
LONGEST = 300.0  # seconds


def scrapy_redis(url: str, texts: list[str]) -> dict[str, Any]:
    """Rates of its adds and claims."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "urls"
        file.write_text("\n".join(texts))
        return _measured("scrapy-redis", url, str(file))


def pgqueuer(url: str, count: int) -> dict[str, Any]:
    """Rates of its adds, and of jobs run."""
    return _measured("pgqueuer", url, str(count))


def ratio(name: str, rate: float, theirs: dict[str, Any], figure: str, target: float) -> Measure:
    """Yield Outrider's rates divided by the peers'."""
    if theirs.get("reason") or theirs.get("lost"):
        why = theirs.get("reason") or "it lost work"
        return Measure(f"{name}: {why}"[:90], 0.0, "×", target)
    return Measure(f"{name} ({theirs[figure]:,.0f}/s)", rate / theirs[figure], "×", target)


def _measured(peer: str, *words: str) -> dict[str, Any]:
    sys.path.append(str(HERE.parent / "peers"))  # scripts, not a package
    environments = importlib.import_module("run")
    script = str(HERE / f"peer_{peer.replace('-', '_')}.py")
    try:
        python = environments.environment(peer)
        done = subprocess.run(  # noqa: S603  our own script
            [str(python), "-E", "-B", "-W", "ignore", script, *words],
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        found: dict[str, Any] = json.loads(done.stdout)
    except environments.Unmeasured as why:
        return {"reason": str(why)}
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return {"reason": f"{type(error).__name__}: {error}"}
    return found
