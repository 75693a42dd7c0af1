"""Scope: whether a URL belongs to the crawl (A5). An exclusion always wins; the default admits all.

A scope may be bound to its seeds. Each seed, and each redirect target of a seed, adds a root; a
URL is inside when it has one of these roots. The caller says which links are seeds.
"""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from outrider.core.pattern import Pattern, compile_any
from outrider.core.policy.queue_key import registrable_domain, surt_key
from outrider.core.url import Url
from outrider.errors import InvalidInput

Mode: TypeAlias = Literal["all", "host", "domain", "surt"]
Admits: TypeAlias = Callable[[Url, AbstractSet[str]], bool]


class Scope(msgspec.Struct, frozen=True):
    """Settings of the scope; `compile_scope` makes a function of them.

    `surt` is the seed's authority and directory, whatever the scheme: the seed
    `https://example.org/blog/a` admits `http://example.org/blog/2025/b` but no other host.
    """

    mode: Mode = "all"  # what a URL must share with a seed
    include: tuple[str, ...] = ()  # if any: one of these must be found in the URL's text
    exclude: tuple[str, ...] = ()  # none of these may be found in it

    def root(self, url: Url) -> str:
        """Return the root that a seed adds; mode `all` never uses it."""
        return _ROOTS[self.mode](url)


def compile_scope(scope: Scope, function: Callable[[Url], bool] | None = None) -> Admits | None:
    """Return a function of (url, roots), or None if everything is admitted.

    A user's `function` is called last, for URLs that everything else admits; its exceptions
    propagate.
    """
    _check_mode(scope.mode)
    questions = tuple(_questions(scope, function))
    if not questions:
        return None
    if len(questions) == 1:
        return questions[0]
    return lambda url, roots: all(admits(url, roots) for admits in questions)


def _questions(scope: Scope, function: Callable[[Url], bool] | None) -> Iterator[Admits]:
    if scope.mode != "all":
        yield _INSIDE[scope.mode]
    if scope.exclude:
        yield _without(_compile("exclude", scope.exclude))
    if scope.include:
        yield _within(_compile("include", scope.include))
    if function is not None:
        yield _asking(function)


def _on_root_host(url: Url, roots: AbstractSet[str]) -> bool:
    return url.host in roots


def _on_root_domain(url: Url, roots: AbstractSet[str]) -> bool:
    return registrable_domain(url.host) in roots


def _below_root(url: Url, roots: AbstractSet[str]) -> bool:
    # One look-up a directory, so a million seeds cost what one does.
    return any(prefix in roots for prefix in _surt_directories(url))


def _surt_directories(url: Url) -> Iterator[str]:
    path = url.identity.split("/", 3)[3].partition("?")[0]
    prefix = surt_key(url) + ")/"
    yield prefix
    for segment in path.split("/")[:-1]:
        prefix += segment + "/"
        yield prefix


def _surt_root(url: Url) -> str:
    *_, deepest = _surt_directories(url)
    return deepest


_ROOTS: Final[dict[str, Callable[[Url], str]]] = {
    "all": lambda _: "",
    "host": lambda url: url.host,
    "domain": lambda url: registrable_domain(url.host),
    "surt": _surt_root,
}
_INSIDE: Final[dict[str, Admits]] = {
    "host": _on_root_host,
    "domain": _on_root_domain,
    "surt": _below_root,
}


def _within(pattern: Pattern) -> Admits:
    return lambda url, _: pattern.search(url.text)


def _without(pattern: Pattern) -> Admits:
    return lambda url, _: not pattern.search(url.text)


def _asking(function: Callable[[Url], bool]) -> Admits:
    return lambda url, _: bool(function(url))


def _compile(field: str, patterns: Sequence[str]) -> Pattern:
    try:
        return compile_any(patterns)
    except InvalidInput as error:
        raise ValueError(f"scope {field} {error}") from error


def _check_mode(mode: str) -> None:
    if mode not in get_args(Mode):
        raise ValueError(f"unknown scope {mode!r}: not one of {', '.join(get_args(Mode))}")
