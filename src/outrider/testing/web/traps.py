"""A host of crawler traps: endless calendars, nesting, sessions and parameters."""

from __future__ import annotations

from typing import Final

from outrider.testing.web.behaviours import linked
from outrider.testing.web.graph import DOMAIN
from outrider.testing.web.messages import Asked, Behaviour, Reply, linking
from outrider.testing.web.seeded_random import rolls
from outrider.testing.web.site import Site

TRAPS: Final = "traps" + DOMAIN
ENTRANCES: Final = (
    "/calendar/2024/01",
    "/nest/deep",
    "/session?sid=0",
    "/shop?colour=red",
    "/echo/a/b",
)


def site(seed: int) -> Site:
    """Return the host; its root links to every trap, and only the crawler's limits end it."""
    return Site(
        TRAPS,
        paths={"/": linked("traps", *ENTRANCES), "/session": _session(seed), "/shop": _shop},
        rest=(_calendar, _nest, _echo),
        pages=["/", *ENTRANCES],
    )


def _calendar(asked: Asked) -> Reply | None:
    """Link to the next month, and to every day of this one."""
    if not asked.path.startswith("/calendar/"):
        return None
    year, month = (int(part) for part in asked.path.split("/")[2:4])
    after = f"/calendar/{year + month // 12}/{month % 12 + 1:02}"
    days = (f"/calendar/{year}/{month:02}/{day:02}" for day in range(1, 29))
    return Reply(linking(asked.path, [after, *days]))


def _nest(asked: Asked) -> Reply | None:
    """Link to paths with one more segment."""
    if not asked.path.startswith("/nest/"):
        return None
    return Reply(linking("nest", [f"{asked.path}/deeper", f"{asked.path}/lower"]))


def _echo(asked: Asked) -> Reply | None:
    """Link to relative paths that repeat the same segments."""
    if not asked.path.startswith("/echo/"):
        return None
    return Reply(linking("echo", ["a/b/", "b/a/"]))


def _session(seed: int) -> Behaviour:
    """Link to a new session on every visit, with the same pages in each."""

    def behave(asked: Asked) -> Reply:
        sid, other = rolls(f"{seed} {asked.target} {asked.visit}", 2)
        urls = [f"/session?sid={sid:08x}", f"/session?sid={other:08x}&amp;page=2"]
        return Reply(linking("session", urls))

    return behave


def _shop(asked: Asked) -> Reply:
    """Link to every combination of filters."""
    urls = [f"/shop?{asked.query}&amp;{kind}={asked.query.count('&')}" for kind in ("size", "tag")]
    return Reply(linking("shop", urls))
