"""Functions that users name in settings: what they are given, and what is said if they fail (A2).

Nothing here runs for a crawl whose settings name no function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from msgspec.structs import replace

from outrider.core.task import Link
from outrider.core.url import Url

MAX_DETAIL: Final = 300
_Answer = TypeVar("_Answer")


class FunctionError(ValueError):
    """A user's function raised or gave a wrong answer; the text has setting, function and cause."""


def name_failures(setting: str, function: Callable[..., _Answer]) -> Callable[..., _Answer]:
    """Return a function that answers as this one; if it raises, a FunctionError names it."""

    def ask(*args: object) -> _Answer:
        try:
            return function(*args)
        except Exception as error:
            fault = f"{setting} {function_name(function)} raised {describe_error(error)}"
            raise FunctionError(fault[:MAX_DETAIL]) from error

    return ask


def link_with_url(link: Link, url: Url) -> Link:
    """Return the link with the text of the URL that is visited.

    Admission shares one link among plain URLs, and links of pages hold the parsed URL.
    """
    return replace(link, url=url.text)


def describe_failure(error: Exception) -> str:
    """Return the detail of a link that is refused since a function failed."""
    if isinstance(error, FunctionError):
        return str(error)
    return f"a policy raised {describe_error(error)}"[:MAX_DETAIL]


def describe_error(error: Exception) -> str:
    """Return class and text of an error; a user's error may have no text."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - a user's `__str__`
        return type(error).__name__


def function_name(function: Callable[..., object]) -> str:
    """Return `module:name` of a user's function, as settings would name it."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or '?'}:{name}"
