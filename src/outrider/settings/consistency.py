"""Rules between settings: pairs that contradict each other, and names that are probably typos (N2).

Each rule is declared once, in the tables below, and applied to the settings that result from all
layers. When two settings cross, one of them has no effect: at its default it gives way; given by a
layer it is refused, with both paths and the fix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import msgspec

from outrider.core.policy.link_types import PLACES
from outrider.core.policy.queue_key import suffixes
from outrider.core.policy.retry import Retry
from outrider.core.policy.weights import BONUSES, ORIGINS, TASK_TYPES
from outrider.settings.errors import InvalidSetting, Path, dotted_path, short_repr
from outrider.settings.paths import KEYS, leaves_of, value_at
from outrider.settings.schema import Settings

_SIMILAR: Final = 0.8  # of 1: difflib's ratio from which on a name is taken for a typo


class Order(NamedTuple):
    """Two settings of which the first may not exceed the second."""

    less: Path
    more: Path
    moot: Path  # the one without effect when they cross
    is_strict: bool = False  # not even equal
    applies: Callable[[Settings], bool] = lambda _: True


def _order(less: str, more: str, moot: str, **rest: Any) -> Order:
    return Order(
        tuple(less.split(".")), tuple(more.split(".")), moot=tuple(moot.split(".")), **rest
    )


def _in_use(*names: str) -> Callable[[Settings], bool]:
    """Whether all of these limits are set: 0 stands for none."""
    paths = [tuple(name.split(".")) for name in names]
    return lambda settings: all(value_at(settings, path) > 0 for path in paths)


def _by_value(settings: Settings) -> bool:
    return settings.revisit.policy == "value"


ORDERS: Final = (
    _order("politeness.min_delay", "politeness.max_delay", "politeness.max_delay"),
    _order(  # D7: the time limit of a request ends before its lease
        "fetch.total_timeout", "lease.seconds", "fetch.total_timeout", is_strict=True
    ),
    _order("fetch.connect_timeout", "fetch.total_timeout", "fetch.connect_timeout"),
    _order("fetch.read_timeout", "fetch.total_timeout", "fetch.read_timeout"),
    _order(
        "executor.min_slots",
        "executor.max_slots",
        "executor.min_slots",
        applies=_in_use("executor.min_slots", "executor.max_slots"),
    ),
    _order("executor.poll_min", "executor.poll_max", "executor.poll_max"),
    _order(
        "executor.workbench_per_queue", "executor.workbench_tasks", "executor.workbench_per_queue"
    ),
    _order("revisit.min_age", "revisit.max_age", "revisit.min_age"),
    _order("revisit.min_age", "revisit.every", "revisit.every", applies=_by_value),
    _order("revisit.every", "revisit.max_age", "revisit.every", applies=_by_value),
    _order("retry.base", "retry.cap", "retry.base"),
    _order("retry.blocked.base", "retry.blocked.cap", "retry.blocked.base"),
)
# Tables and lists in which users may name task types or origins of their own.
NAMES: Final[Mapping[Path, AbstractSet[str]]] = {
    ("scoring", "weights"): TASK_TYPES | {"default"},
    ("scoring", "bonuses"): ORIGINS | BONUSES.keys(),
    ("retry", "types"): TASK_TYPES,
    ("lanes", "acquisition"): TASK_TYPES,
}


def contradictions(settings: Settings, given: AbstractSet[Path]) -> Iterator[InvalidSetting]:
    """Yield the contradictions in these settings; `given` are the paths that some layer set."""
    for order in (*ORDERS, *_orders_of_types(settings.retry)):
        if order.moot in given and order.applies(settings):
            yield from _check_order(settings, order)
    yield from _delay_range(settings.politeness.delay, settings.politeness.delay_to, _DELAYS)
    yield from _idle_switches(settings, given)
    for path, known in NAMES.items():
        yield from _probable_typos(path, value_at(settings, path), known)
    yield from _typos_in_rules(settings)
    yield from _overrides(settings)


def given_paths(settings: Settings, usual: Settings) -> set[Path]:
    """Return the paths of a tree whose values are not the defaults."""
    return {path for path, value in leaves_of(settings) if value != value_at(usual, path)}


def near_miss(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a name is probably a typo of; None: it is known, or like none."""
    names = sorted(known)
    if name in names:
        return None
    close = get_close_matches(name, names, 1, _SIMILAR)
    swapped = [one for one in names if sorted(one) == sorted(name)]  # two letters of a short name
    return next(iter([*close, *swapped]), None)


# ---- orders


def _orders_of_types(retry: Retry) -> Iterator[Order]:
    """Yield the orders of the retry policies of task types."""
    for kind in retry.types:
        base, cap = (("retry", "types", kind, name) for name in ("base", "cap"))
        yield Order(base, cap, base)


def _check_order(settings: Settings, order: Order) -> Iterator[InvalidSetting]:
    less, more = value_at(settings, order.less), value_at(settings, order.more)
    if less > more or (order.is_strict and less == more):
        yield _order_error((order.less, less), (order.more, more), order)


def _order_error(
    less: tuple[Path, float], more: tuple[Path, float], order: Order
) -> InvalidSetting:
    """Return the error of the setting without effect, naming the other."""
    is_less = order.moot == order.less
    (path, value), (other, bound) = (less, more) if is_less else (more, less)
    relation = ("less" if is_less else "more") + " than"
    if not order.is_strict:
        relation = "at most" if is_less else "at least"
    verbs = ("lower", "raise") if is_less else ("raise", "lower")
    fix = f"{verbs[0]} {dotted_path(path)} or {verbs[1]} {dotted_path(other)}"
    problem = f"it must be {relation} {dotted_path(other)} = {short_repr(bound)}; {fix}"
    return InvalidSetting(path, value, problem, (other,))


_DELAYS: Final = (("politeness", "delay"), ("politeness", "delay_to"))


def _delay_range(
    delay: float, delay_to: float, paths: tuple[Path, Path]
) -> Iterator[InvalidSetting]:
    if delay_to >= 0 and not 0 <= delay <= delay_to:
        first, last = paths
        fix = f"{dotted_path(first)} = {short_repr(delay)} must be from 0 to it; change one of them"
        yield InvalidSetting(last, delay_to, fix, (first,))


# ---- switches without effect


def _idle_switches(settings: Settings, given: AbstractSet[Path]) -> Iterator[InvalidSetting]:
    focus, fetch = settings.focus, settings.fetch
    if focus.on and focus.classifier == "tokens" and not (focus.tokens or focus.lists):
        fix = "no page can match without words; give focus.tokens, focus.lists or focus.classifier"
        yield InvalidSetting(("focus", "on"), True, fix, (("focus", "tokens"), ("focus", "lists")))
    if ("fetch", "cache_bytes") in given and fetch.cache and not fetch.cache_bytes:
        cache = short_repr(fetch.cache)
        fix = f"fetch.cache = {cache} cannot keep anything; raise it, or unset the cache"
        yield InvalidSetting(("fetch", "cache_bytes"), 0, fix, (("fetch", "cache"),))
    if settings.crawl.stay_open and settings.crawl.pause_at_finish:
        fix = "crawl.stay_open = true never finishes; set one of them to false"
        yield InvalidSetting(("crawl", "pause_at_finish"), True, fix, (("crawl", "stay_open"),))


# ---- names


def _probable_typos(
    path: Path, names: Iterable[str], known: AbstractSet[str]
) -> Iterator[InvalidSetting]:
    """Yield names close to a known one that is not given beside them."""
    given = list(names)
    for place, name in enumerate(given):
        meant = near_miss(name, known)
        if meant is None or meant in given:
            continue
        is_list = path == ("lanes", "acquisition")
        where = (*path, str(place)) if is_list else (*path, name)
        right = short_repr(meant) if is_list else dotted_path((*path, meant))
        fix = f"no such name; did you mean {right}? (for a name of your own, give both)"
        value = name if is_list else msgspec.to_builtins(names[name])  # type: ignore[index]
        yield InvalidSetting(where, value, fix)


def _typos_in_rules(settings: Settings) -> Iterator[InvalidSetting]:
    """Yield types and places of rules that are close to a known one and used nowhere else."""
    rules, tables = settings.types.rules, [value_at(settings, path) for path in NAMES]
    own = {rule.type for rule in rules if rule.type in set().union(*tables)}
    for place, rule in enumerate(rules):
        known: tuple[tuple[str, Iterable[str], AbstractSet[str]], ...] = (
            ("type", [rule.type], TASK_TYPES | own),
            ("found", rule.found, PLACES),
            ("on", rule.on, TASK_TYPES | {one.type for one in rules}),
        )
        for name, words, usual in known:
            for word in words:
                meant = near_miss(word, usual)
                if meant is not None:
                    fix = f"no such name; did you mean {short_repr(meant)}?"
                    if name != "found":
                        fix += " (for a type of your own, name both in scoring.weights)"
                    yield InvalidSetting(("types", "rules", str(place), name), word, fix)


# ---- overrides by key


def _overrides(settings: Settings) -> Iterator[InvalidSetting]:
    """Yield contradictions by key, where the override itself gives the setting without effect."""
    for key, override in settings.keys.items():
        yield from override_errors(settings, key, override)


def override_errors(
    settings: Settings, key: str, override: Mapping[str, Any], at: Path | None = None
) -> Iterator[InvalidSetting]:
    """Yield the contradictions in an override for a key or suffix, with the settings it refines."""
    here = (KEYS, key) if at is None else at

    def found(name: str) -> tuple[Path, Any]:
        if override.get(name) is not None:
            return (*here, name), override[name]
        return _inherited_value(settings, key, name)

    if override.get("max_delay") is not None:
        less, more = found("min_delay"), found("max_delay")
        if less[1] > more[1]:
            yield _order_error(less, more, ORDERS[0])
    if override.get("delay_to") is not None:
        (first, delay), (last, delay_to) = found("delay"), found("delay_to")
        yield from _delay_range(delay, delay_to, (first, last))


def _inherited_value(settings: Settings, key: str, name: str) -> tuple[Path, Any]:
    """Return the value of a field from a wider key, or from the crawl."""
    names = suffixes(f"*{key}") if key.startswith(".") else (key, *suffixes(key))
    for wider in names:
        value = settings.keys.get(wider, {}).get(name)
        if value is not None:
            return (KEYS, wider, name), value
    return ("politeness", name), getattr(settings.politeness, name)
