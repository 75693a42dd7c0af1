"""Scope: whether a URL belongs to the crawl (A5). An exclusion always wins; the default admits all.

A scope may be bound to its seeds. Each seed, and each redirect target of a seed, adds a root; a
URL is inside when it has one of these roots. The caller says which links are seeds.

A user's function may give the reason for which it refuses a URL. Reasons are counted by name, so
their length, their number and their names are limited.
"""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from outrider.core.pattern import Pattern, compile_any
from outrider.core.policy.focus import OFF_FOCUS
from outrider.core.policy.queue_key import registrable_domain, surt_key
from outrider.core.policy.traps import CALENDAR, MANY_PARAMETERS, PATH_DEPTH, REPEATED_SEGMENT
from outrider.core.policy.user_function import function_name, name_failures
from outrider.core.url import REASONS, Refusal, Url
from outrider.errors import InvalidInput

Mode: TypeAlias = Literal["all", "host", "domain", "surt"]
Admits: TypeAlias = Callable[[Url, AbstractSet[str]], bool | Refusal]  # False: `OFF_SCOPE`
ScopeFunction: TypeAlias = Callable[[Url], bool | str]

OFF_SCOPE: Final = "off-scope"
BAD_LINK: Final = "bad-link"
MAX_REASON: Final = 64  # characters, as names in the totals of workers
MAX_REASONS: Final = 32  # of one function; a worker's totals have room for twice as many
# Reasons of refused links and dropped tasks: from a function they would be counted as these.
RESERVED_REASONS: Final = REASONS | {
    *(PATH_DEPTH, REPEATED_SEGMENT, MANY_PARAMETERS, CALENDAR, OFF_FOCUS, BAD_LINK, "max-depth"),
    *("duplicate", "queue-full", "cancelled", "known", "admissible", "other"),
    *("robots", "type", "size", "redirect", "redirects", "operator"),
}


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


def compile_scope(scope: Scope, function: ScopeFunction | None = None) -> Admits | None:
    """Return a function of (url, roots), or None if everything is admitted.

    A user's `function` is called last, for URLs that everything else admits; its exceptions
    propagate as a FunctionError that names it.
    """
    _check_mode(scope.mode)
    questions = tuple(_questions(scope, function))
    if not questions:
        return None
    return questions[0] if len(questions) == 1 else _all_of(questions)


def _all_of(questions: Sequence[Admits]) -> Admits:
    """Return a function that gives the first answer that is not True."""

    def admits(url: Url, roots: AbstractSet[str]) -> bool | Refusal:
        for question in questions:
            answer = question(url, roots)
            if answer is not True:
                return answer
        return True

    return admits


def _questions(scope: Scope, function: ScopeFunction | None) -> Iterator[Admits]:
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


def _asking(function: ScopeFunction) -> Admits:
    """Return a function that asks the user's, and checks its answers."""
    ask = name_failures("scope.function", function)
    known: set[str] = set()  # its reasons so far

    def admits(url: Url, _: AbstractSet[str]) -> bool | Refusal:
        answer: Any = ask(url)
        if answer is True or answer is False:
            return answer
        fault = _reason_fault(answer)
        if fault is not None:
            return Refusal(
                BAD_LINK, f"scope.function {function_name(function)} returned {fault}"[:300]
            )
        if answer not in known and len(known) >= MAX_REASONS:
            counted = f"counted as {OFF_SCOPE}: over {MAX_REASONS} different reasons"
            return Refusal(OFF_SCOPE, f"{answer} ({counted})")
        known.add(answer)
        return Refusal(answer, f"scope.function {function_name(function)} refused it"[:300])

    return admits


def _reason_fault(answer: object) -> str | None:
    """Return what is wrong with an answer that is neither True nor False; None: a fine reason."""
    if not isinstance(answer, str):
        return f"{_short_repr(answer)}; return True, False, or a reason as text"
    is_fine = 0 < len(answer) <= MAX_REASON and answer.isprintable() and answer == answer.strip()
    if not is_fine:
        return f"{_short_repr(answer)}; a reason has 1 to {MAX_REASON} printable characters"
    if answer.casefold() in RESERVED_REASONS:
        return f"{answer!r}, which is a reason of Outrider's own; give it another name"
    return None


def _short_repr(value: object) -> str:
    try:
        text = ascii(value)
    except Exception:  # noqa: BLE001 - a user's repr, or a number too long to write
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}… ({type(value).__name__})"


def _compile(field: str, patterns: Sequence[str]) -> Pattern:
    try:
        return compile_any(patterns)
    except InvalidInput as error:
        raise ValueError(f"scope {field} {error}") from error


def _check_mode(mode: str) -> None:
    if mode not in get_args(Mode):
        raise ValueError(f"unknown scope {mode!r}: not one of {', '.join(get_args(Mode))}")
