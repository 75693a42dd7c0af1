"""A host without end: calendars, nesting, sessions and parameters that only ever lead on."""

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
    """Its root links to every entrance; whoever enters must be stopped by the crawler."""
    return Site(
        TRAPS,
        paths={"/": linked("traps", *ENTRANCES), "/session": _session(seed), "/shop": _shop},
        rest=(_calendar, _nest, _echo),
        pages=["/", *ENTRANCES],
    )


def _calendar(asked: Asked) -> Reply | None:
    """The next month, and every day of this one."""
    if not asked.path.startswith("/calendar/"):
        return None
    year, month = (int(part) for part in asked.path.split("/")[2:4])
    after = f"/calendar/{year + month // 12}/{month % 12 + 1:02}"
    days = (f"/calendar/{year}/{month:02}/{day:02}" for day in range(1, 29))
    return Reply(linking(asked.path, [after, *days]))


def _nest(asked: Asked) -> Reply | None:
    """Always one segment more."""
    if not asked.path.startswith("/nest/"):
        return None
    return Reply(linking("nest", [f"{asked.path}/deeper", f"{asked.path}/lower"]))


def _echo(asked: Asked) -> Reply | None:
    """Relative links without a base: the same segments over and over."""
    if not asked.path.startswith("/echo/"):
        return None
    return Reply(linking("echo", ["a/b/", "b/a/"]))


def _session(seed: int) -> Behaviour:
    """A new session for every visit, and the same pages in each."""

    def behave(asked: Asked) -> Reply:
        sid, other = rolls(f"{seed} {asked.target} {asked.visit}", 2)
        urls = [f"/session?sid={sid:08x}", f"/session?sid={other:08x}&amp;page=2"]
        return Reply(linking("session", urls))

    return behave


def _shop(asked: Asked) -> Reply:
    """Every filter can be added to every other."""
    urls = [f"/shop?{asked.query}&amp;{kind}={asked.query.count('&')}" for kind in ("size", "tag")]
    return Reply(linking("shop", urls))
