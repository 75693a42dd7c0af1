"""`outrider pause`, `resume` and `cancel`: the whole crawl, turned by a person (I1, I3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outrider.cli.asking import confirm
from outrider.cli.opening import on_crawl
from outrider.cli.options import Crawl, Json, Store, Yes
from outrider.cli.showing import found_wrong, say, say_json
from outrider.core.states import CrawlStatus

if TYPE_CHECKING:
    from outrider.frontier import Frontier

_WAYS: Final = {
    CrawlStatus.FINISHED: "; only work starts it again: add URLs, replay dead ones, revive queues",
    CrawlStatus.CANCELLED: "; add to another: --crawl NAME",
}


def pause(store: Store, *, crawl: Crawl = "default", as_json: Json = False) -> None:
    """Pause a crawl: it lends nothing until resumed. Leaves with 1 if it is not paused then."""
    _turn(store, crawl, CrawlStatus.PAUSED, as_json=as_json)


def resume(store: Store, *, crawl: Crawl = "default", as_json: Json = False) -> None:
    """Resume a paused crawl. Leaves with 1 if it is not running then."""
    _turn(store, crawl, CrawlStatus.RUNNING, as_json=as_json)


def cancel(
    store: Store, *, yes: Yes = False, crawl: Crawl = "default", as_json: Json = False
) -> None:
    """Cancel a crawl, for good: what is pending or leased reads as dropped. A person is asked."""
    confirm(f"Cancel {crawl} for good?", yes=yes)
    _turn(store, crawl, CrawlStatus.CANCELLED, as_json=as_json)


def _turn(store: str, crawl: str, wanted: CrawlStatus, *, as_json: bool) -> None:
    status = on_crawl(store, crawl, lambda frontier: run(frontier, wanted))
    if as_json:
        say_json({"crawl": crawl, "status": status})
    else:
        say(f"{crawl} is {status}")
    if status is not wanted:
        found_wrong(f"a crawl that is {status} cannot become {wanted}{_WAYS.get(status, '')}")


async def run(frontier: Frontier, wanted: CrawlStatus) -> CrawlStatus:
    """Turn it; answers the status it has then."""
    if wanted is CrawlStatus.PAUSED:
        return await frontier.pause()
    if wanted is CrawlStatus.CANCELLED:
        return await frontier.cancel()
    return await frontier.resume()
