"""Links to known URLs: fields that the link leaves out are filled in from the task (B1, B3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from msgspec.structs import replace

from outrider.core.breakdown import Breakdown
from outrider.core.policy.queue_key import KeyFunction
from outrider.core.states import FORGOTTEN, TaskState
from outrider.core.task import DEFAULT_BIAS, DEFAULT_DEPTH, DEFAULT_TYPE, Link
from outrider.core.url import Url, UrlRules, parse_url

REFERRING: Final = ("revisit", "raise")  # rules of links that are about a known task
_ENDED: Final = (TaskState.DONE, TaskState.DEAD, TaskState.DROPPED)
_ANY_ADDRESS: Final = UrlRules(allow_private=True)  # of a task, which was admitted


class KnownTask(Protocol):
    """The fields that are read of the known task."""

    @property
    def url(self) -> str: ...  # noqa: D102
    @property
    def state(self) -> TaskState: ...  # noqa: D102
    @property
    def reason(self) -> str | None: ...  # noqa: D102
    @property
    def key(self) -> str: ...  # noqa: D102
    @property
    def type(self) -> str: ...  # noqa: D102
    @property
    def depth(self) -> int: ...  # noqa: D102
    @property
    def origin(self) -> str: ...  # noqa: D102
    @property
    def via(self) -> str | None: ...  # noqa: D102
    @property
    def tag(self) -> str | None: ...  # noqa: D102
    @property
    def meta(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def text(self) -> str: ...  # noqa: D102
    @property
    def breakdown(self) -> Breakdown: ...  # noqa: D102


def complete_link(
    link: Link, task: KnownTask, *, url: Url, key: KeyFunction, keeps_text: bool = False
) -> Link:
    """Fill in from the task what the link leaves out.

    `url` is the link's; `key` gives a URL its queue. `keeps_text`: the crawl keeps URLs as they
    were given, also those that are what is visited.

    An explicit priority, base or bias of the task stays, unless the link has one. `forced`, `delay`
    and `known` belong to one visit: they are taken from the link. A task without a URL says nothing
    of the page: the link stays as it is.
    """
    if not task.url:
        return link
    return replace(
        link,
        key=_key_of(link, task, url, key) if link.key is None else link.key,
        type=_type_of(task) if link.type is DEFAULT_TYPE else link.type,
        depth=task.depth if link.depth is DEFAULT_DEPTH else link.depth,
        origin=task.origin if link.origin is None else link.origin,
        via=task.via if link.via is None else link.via,
        tag=task.tag if link.tag is None else link.tag,
        meta=link.meta or dict(task.meta),
        text=(task.text or (task.url if keeps_text else None)) if link.text is None else link.text,
        **_priority(link, task.breakdown),
    )


def _key_of(link: Link, task: KnownTask, url: Url, key: KeyFunction) -> str | None:
    """Return the task's key; None if it follows from a URL that the link replaces (A4, E1).

    A link with an identity of its own may have a URL of another host, whose visits belong into the
    queue of that host. A key that was given stays, and so does that of a task which the link leaves
    as it is.
    """
    if task.url == url.text or not _replaces(link, task):
        return task.key
    before = parse_url(task.url, _ANY_ADDRESS)
    if not isinstance(before, Url):
        return task.key
    try:
        return None if key(before) == task.key else task.key
    except Exception:  # noqa: BLE001 - queue.key may be a user's
        return None


def _replaces(link: Link, task: KnownTask) -> bool:
    """Tell whether the link makes the task what it describes, its URL too (B3, C10)."""
    if task.state is TaskState.DROPPED and task.reason == FORGOTTEN:
        return True
    return link.known == "revisit" and task.state in _ENDED


def _type_of(task: KnownTask) -> str:
    """Return the task's type as one that was given: it is not to be decided again."""
    return "page" if task.type is DEFAULT_TYPE else task.type


def _priority(link: Link, breakdown: Breakdown) -> dict[str, Any]:
    """Return the explicit priority, base and bias of the task's own link (F8)."""
    terms = dict(breakdown.terms)
    if link.priority is not None:
        return {}
    is_silent = link.base_priority is None and link.bias is DEFAULT_BIAS
    if is_silent and "explicit" in terms:
        return {"priority": terms["explicit"]}
    base = terms.get("base_priority") if link.base_priority is None else link.base_priority
    bias = terms.get("bias", 0.0) if link.bias is DEFAULT_BIAS else link.bias
    return {"base_priority": base, "bias": bias}
