r"""Patterns of users: regular expressions searched in time linear in the text.

They come from settings, commands and stores, and run on the event loop: with the standard
library's engine, one like `(x+x+)+y` would stop a crawl for hours. The engine here is RE2. Its
syntax is that of `re` without what needs backtracking: no lookaround, no back-references. `\d`,
`\w`, `\s` and `\b` match ASCII only, as URLs do. Sizes are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import re2  # type: ignore[import-untyped]  # it ships no types

from outrider.errors import InvalidInput

MAX_LENGTH: Final = 10_000  # characters of one pattern
MAX_PROGRAM: Final = 20_000  # instructions of one pattern
MAX_TOGETHER: Final = 100_000  # instructions of all patterns of a list
_MAX_MEMORY: Final = 8 * 2**20  # bytes of a pattern's program and of what its searches remember
_MAX_MEMORY_TOGETHER: Final = 64 * 2**20  # the same of a list

_TWO_LISTS: Final = "to leave out part of what a pattern matches, use scope.exclude beside it"
_NO_LOOKING: Final = f"looks ahead or behind, which takes more than linear time; {_TWO_LISTS}"
_NO_REFERENCE: Final = "refers back to a group, which takes exponential time; spell the text out"
_REASONS: Final = (
    (r"invalid perl operator: (?=", _NO_LOOKING),
    (r"invalid perl operator: (?!", _NO_LOOKING),
    (r"invalid perl operator: (?<", _NO_LOOKING),
    (r"invalid perl operator: (?P", _NO_REFERENCE),
    (r"invalid perl operator: (?(", _NO_REFERENCE),
    *((rf"invalid escape sequence: \{digit}", _NO_REFERENCE) for digit in "123456789"),
    (r"invalid perl operator: (?>", "is atomic, which nothing here needs; write (?: … )"),
    (r"bad repetition operator: ", "repeats a repetition; write it once, without a second + * ?"),
    (r"invalid repetition size: ", "repeats too often: at most 1000 times, all levels multiplied"),
    (r"pattern too large", "is too large; write it shorter, or split it"),
)

_escapes = re.compile(r"\\(.)", re.DOTALL).sub
# A set of characters, the name of a group, or a repetition that RE2 takes for plain text: without
# its lower bound, or with a number beyond all bounds. Run only over what RE2 accepted.
_tokens = re.compile(
    r"(?P<plain>\\(?:.|\Z)|\[\^?+\]?+(?:\[:\^?+[a-z]++:\]|\\(?:.|\Z)|[^\]\\])*+(?:\]|\Z))"
    r"|(?P<group>\(\?P?+<\w++>)|"
    r"(?P<odd>\{(?:,[0-9]++|[0-9]{5,}+(?:,[0-9]*+)?+|[0-9]*+,[0-9]{5,}+)\})",
    re.DOTALL,
).finditer


class Pattern:
    """One or several compiled patterns; `search` tells whether any is found in a text."""

    __slots__ = ("_search",)

    def __init__(self, compiled: re2._Regexp) -> None:
        self._search = compiled.search

    def search(self, text: str) -> bool:
        """Whether it is found anywhere in the text."""
        return self._search(text.encode("utf-8", "replace")) is not None


class PatternSet:
    """Several compiled patterns; `matches` tells which of them are found in a text, in one pass."""

    __slots__ = ("_match",)

    def __init__(self, compiled: re2.Set) -> None:
        self._match = compiled.Match

    def matches(self, text: str) -> Sequence[int]:
        """Return the places of all that are found anywhere in the text, in no certain order."""
        data = text.encode() if text.isascii() else text.encode("utf-8", "replace")
        return self._match(data) or ()


@lru_cache(maxsize=16)
def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern; raise InvalidInput if it is not valid."""
    return Pattern(_compile(pattern, _translate(pattern)))


def compile_any(patterns: Sequence[str]) -> Pattern:
    """Compile patterns into one that finds any of them; each is validated by itself."""
    joined = "|".join(f"(?:{_without_names(source)})" for source in _valid_sources(patterns))
    return Pattern(re2.compile(joined.encode(), _options(_MAX_MEMORY_TOGETHER)))


def compile_set(patterns: Sequence[str]) -> PatternSet:
    """Compile patterns into one set that tells which are found; each is validated by itself."""
    # A set answers "none" if its automaton does not fit into its memory: the bounds on its size
    # leave room for hundreds of states.
    compiled = re2.Set.SearchSet(_options(_MAX_MEMORY_TOGETHER))
    for source in _valid_sources(patterns):
        compiled.Add(source.encode())
    compiled.Compile()
    return PatternSet(compiled)


def _valid_sources(patterns: Sequence[str]) -> list[str]:
    """Return patterns in RE2's syntax; raise InvalidInput for the first that is not valid."""
    sources = [_translate(pattern) for pattern in patterns]
    size = 0
    for pattern, source in zip(patterns, sources, strict=True):
        size += _compile(pattern, source).programsize
        if size > MAX_TOGETHER:
            raise InvalidInput(
                f"{len(patterns)} patterns are too large together, from {_short_repr(pattern)} on; "
                "give fewer or shorter ones, or a function"
            )
    return sources


def linear_byte_search(pattern: bytes) -> Callable[[bytes], object | None]:
    """Return the search function of a built-in pattern over bytes of any encoding."""
    options = _options()
    options.encoding = re2.Options.Encoding.LATIN1
    search: Callable[[bytes], object | None] = re2.compile(pattern, options).search
    return search


def _translate(pattern: object) -> str:
    """Translate the pattern to RE2's syntax."""
    if not isinstance(pattern, str):
        raise InvalidInput(f"pattern {pattern!r:.100}: give a regular expression as text")
    if len(pattern) > MAX_LENGTH:
        raise InvalidInput(
            f"pattern {_short_repr(pattern)} has {len(pattern):,} characters, "
            f"over {MAX_LENGTH:,}; split it"
        )
    return _escapes(lambda found: _escape(pattern, found), pattern)


def _escape(pattern: str, found: re.Match[str]) -> str:
    match found[1]:
        case "Z":  # the end of the text
            return r"\z"
        case "Q" | "E" | "C":  # RE2 only, and their effect would leave one pattern of a list
            raise InvalidInput(f"pattern {_short_repr(pattern)}: {found[0]} is unknown")
        case _:
            return found[0]


def _compile(pattern: str, source: str) -> re2._Regexp:
    try:
        compiled = re2.compile(source.encode(), _options())
    except UnicodeEncodeError as error:
        raise InvalidInput(f"pattern {_short_repr(pattern)} is no text: {error.reason}") from error
    except re2.error as error:
        raise InvalidInput(f"pattern {_short_repr(pattern)}: {_explain(error)}") from error
    if compiled.programsize > MAX_PROGRAM:
        raise InvalidInput(
            f"pattern {_short_repr(pattern)} is too large; write it shorter, or split it"
        )
    if odd := _odd_repetition(source):
        raise InvalidInput(
            f"pattern {_short_repr(pattern)}: {odd:.20} is no repetition; "
            "write both bounds, at most 1000, as in {0,3}"
        )
    return compiled


def _options(memory: int = _MAX_MEMORY) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = memory
    return options


def _explain(error: re2.error) -> str:
    detail = error.args[0]
    message = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
    for beginning, reason in _REASONS:
        if message.startswith(beginning):
            return f"{message.rpartition(': ')[2]} {reason}"
    return f"no regular expression: {message}"


def _odd_repetition(source: str) -> str | None:
    return next((token["odd"] for token in _tokens(source) if token["odd"]), None)


def _without_names(source: str) -> str:
    """Remove the names of groups, which may occur in several patterns of a list."""
    for token in reversed([token for token in _tokens(source) if token["group"]]):
        source = f"{source[: token.start()]}({source[token.end() :]}"
    return source


def _short_repr(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 100 else pattern[:100] + "…")
