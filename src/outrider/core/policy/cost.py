"""Cost policies: what a visit is charged against its queue's budget, from 0 to 65,535 (E4).

The cost is also the task's precedence, so dearer URLs wait behind cheaper ones of their queue.
"""

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Final, TypeAlias

from outrider.core.policy.traps import CALENDAR_WORDS
from outrider.core.url import Url, UrlRules, parse_url

Cost: TypeAlias = Callable[[Url, Url | str | None], int]  # (url, via)

MAX_COST: Final = 65_535

_YEAR_OR_WORD: Final = re.compile(
    CALENDAR_WORDS + r"|(?<!\d)(?:19|20)\d\d(?!\d)", re.IGNORECASE
).search
_ANY_ADDRESS: Final = UrlRules(allow_private=True)


def zero_cost(_url: Url, _via: Url | str | None = None) -> int:
    """Charge nothing: budgets never end."""
    return 0


def unit_cost(_url: Url, _via: Url | str | None = None) -> int:
    """Charge every visit alike: a budget counts visits."""
    return 1


def wag_cost(url: Url, via: Url | str | None = None) -> int:
    """Charge 1, a query 1 more, and one that only varies its referrer's query 1 more again."""
    page, mark, _ = url.identity.partition("?")
    if not mark:
        return 1
    return 3 if page == _page(via) else 2


def anti_calendar_cost(url: Url, _via: Url | str | None = None) -> int:
    """Charge 1, and 1 more for a calendar's word or a year in the path or query."""
    identity = url.identity
    return 2 if _YEAR_OR_WORD(identity, identity.index("/", len("https://"))) else 1


_NAMES: Final[dict[str, Cost]] = {
    "zero": zero_cost,
    "unit": unit_cost,
    "wag": wag_cost,
    "anti-calendar": anti_calendar_cost,
}


def cost_function(name: str | Cost) -> Cost:
    """Find a cost policy by its name in the settings; a function is one already."""
    if callable(name):
        return name
    if name in _NAMES:
        return _NAMES[name]
    raise ValueError(_unknown(name))


def valid_cost(cost: object) -> int | None:
    """Return what a user's function answered if it is a valid cost, else None."""
    if isinstance(cost, int) and not isinstance(cost, bool) and 0 <= cost <= MAX_COST:
        return cost
    return None


def _page(via: Url | str | None) -> str | None:
    url = parse_url(via, _ANY_ADDRESS) if isinstance(via, str) else via
    return url.identity.partition("?")[0] if isinstance(url, Url) else None


def _unknown(name: str) -> str:
    close = "".join(f"; did you mean {match!r}?" for match in get_close_matches(name, _NAMES, 1))
    return f"unknown cost {name!r}: not one of {', '.join(_NAMES)}{close}"
