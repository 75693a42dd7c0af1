"""Upper bounds on what parsing an HTML page costs, in time and memory.

An HTML parser may build a tree far larger than the page. A formatting element (`<b>`, `<a>` …) that
is not closed is opened again, with all its attributes, in every paragraph that follows: 3 kB of
markup make gigabytes of tree. `may_be_costly` is asked of every page before it is parsed in this
process. It reads the page once and errs on the side of "costly".

Three things are bounded: the size and the number of tags (nesting takes quadratic time), the
attributes of one element (a duplicate is looked for among all of them), and the copies of
formatting elements. For the last, every formatting start tag must be *contained*: written plainly
and closed soon, with nothing in between that could keep its end tag from closing it. Of those that
are not, the copies are bounded by their weight times the tags of the page.
"""

from __future__ import annotations

import re
from typing import Final

from outrider.core.pattern import linear_byte_search

SMALL_PAGE: Final = 16 * 1024  # bytes: too few for a tag of harmful length
LARGE_PAGE: Final = 256 * 1024
MAX_START_TAGS: Final = 2000  # start tags, so also nested elements
MAX_TAGS: Final = 4000
MAX_ROOT_TAGS: Final = 8  # `<html>` and `<body>`: later ones add their attributes to the first
MAX_COPIED_BYTES: Final = 64 * 2**20  # bytes of copied elements

# Bytes of a tree, measured on selectolax 1.0 and rounded up.
_PER_TAG: Final = 100  # a start or an end tag
_PER_ELEMENT: Final = 2 * _PER_TAG
_PER_ATTRIBUTE: Final = 200
# An end tag that meets unclosed blocks copies its element and up to three inside it, eight times.
_ADOPTED: Final = 32

_SPACE: Final = rb"[ \t\n\r\f]"
_NAME_END: Final = rb"(?=[ \t\n\r\f/>])"
_FORMATTING: Final = (
    rb"(?:a|b(?:ig)?|code|em|font|i|nobr|s(?:mall|tr(?:ike|ong))?|tt|u)" + _NAME_END
)
# The rest of a plain tag. Every parser sees its end in the same place: nothing in it
# could be read as another tag, and quotes are only around values.
_NAME: Final = rb"[^ \t\n\r\f/>=<\"'`]"
_PLAIN_VALUE: Final = rb"=(?:\"[^\"<>]*+\"|'[^'<>]*+'|[^ \t\n\r\f\"'`=<>]++)"
_TAG_END: Final = rb"[ \t\n\r\f]*+/?+>"
_PLAIN: Final = rb"(?:[ \t\n\r\f]++" + _NAME + rb"++(?:" + _PLAIN_VALUE + rb")?+){0,64}+" + _TAG_END
# The same of an element that is contained: as it is copied a few times, an attribute takes at least
# five bytes, which bounds what a page can make of its size.
_SPARSE: Final = (
    rb"(?:[ \t\n\r\f]++(?:" + _NAME + rb"{2,}+" + _PLAIN_VALUE + rb"|" + _NAME + rb"{6,}+(?!=)))"
    rb"{0,24}+" + _TAG_END
)
# Elements that may be inside a contained one: none begins a new scope, table, or kind of text.
_PHRASE: Final = (
    rb"(?:span|img|w?br|su[bp]|cite|abbr|time|label|mark|q|var|kbd|samp|dfn|bd[io]|data|picture|"
    rb"source|ins|del|svg|path|use|g|circle|ellipse|rect|line|poly(?:gon|line)|"
    rb"a|b(?:ig)?|code|em|font|i|s(?:mall|tr(?:ike|ong))?|tt|u)" + _NAME_END
)
_BLOCK: Final = rb"(?:div|p|h[1-6]|fig(?:ure|caption))" + _NAME_END
_OTHER: Final = rb"(?!\1[ \t\n\r\f/>])"
# Any end tag may close something further out, so that the element is opened once more, and one end
# tag closes an element through seven unclosed blocks: so seven of both are allowed.
_STEP: Final = (
    rb"<(?:/" + _OTHER + rb"(?:" + _PHRASE + rb"|" + _BLOCK + rb")" + _SPACE + rb"*+>|"
    rb"" + _BLOCK + _PLAIN + rb")"
)


def _items(leaf: bytes) -> bytes:
    """Return a pattern of text, start tags of phrases, and elements that hold only text."""
    name = rb"(?P<" + leaf + rb">" + _PHRASE + rb"|" + _BLOCK + rb")"
    pair = name + _PLAIN + rb"[^<]*+</(?P=" + leaf + rb")>"
    return rb"(?:[^<]++|<" + _OTHER + rb"(?:" + pair + rb"|" + _PHRASE + _PLAIN + rb")){0,12}+"


_CONTENT: Final = _items(b"one") + rb"(?:" + _STEP + _items(b"two") + rb"){0,7}+"
_CONTAINED: Final = _SPARSE + rb"[^<]*+(?:</\1>|" + _CONTENT + rb"</\1" + _SPACE + rb"*+>)"
# Each start tag that is not harmless: of a formatting element that is not contained, or of `<html>`
# or `<body>`.
_suspects = re.compile(
    rb"<(?=[a-z])(?:(?=[abcefinstu])(" + _FORMATTING + rb")(?!" + _CONTAINED + rb")|"
    rb"(?P<root>body|html))"
).finditer
_plain_rest = re.compile(_PLAIN).match
_formatting_tags = re.compile(rb"</?+" + _FORMATTING).findall
# A tag that is not short and plain: a thousand bytes or more, or a quote that is not around
# a value after a name and `=`, or `<` or `>` within one, so that its end may lie elsewhere.
_VALUE: Final = rb"(?:\"[^\"<>]*\"|'[^'<>]*'|[^ \t\n\r\f\"'=<>]+)"
_doubtful_tag = linear_byte_search(
    rb"<[a-z](?:[^<>]{1000}|(?:[^<>\"'=]*[^<>\"'= \t\n\r\f/]=" + _VALUE + rb")*[^<>\"'=]*"
    rb"(?:[<\"']|[ \t\n\r\f/]=|=(?:[ \t\n\r\f=<>]|\"[^\"<>]*[<>]|'[^'<>]*[<>])))"
)
# A tag of 200 attributes, tokenised as browsers do: a `>` within quotes does not end it. A very
# long name or bare value counts as several, so that with MOST_TAGS places to begin at this takes
# a tenth of a second at most.
_crowded_tag = re.compile(
    rb"<[a-z](?:[ \t\n\r\f/]*+(?:=[^ \t\n\r\f/>=]{0,64}+|[^ \t\n\r\f/>=]{1,64}+)"
    rb"(?:[ \t\n\r\f]*+=[ \t\n\r\f]*+"
    rb"(?:\"[^\"]*+\"|'[^']*+'|[^ \t\n\r\f>\"'][^ \t\n\r\f>]{0,64}+)?+)?+){200}+"
).search


def may_be_costly(source: bytes) -> bool:
    """Whether parsing a page's UTF-8 source may take harmful time or memory; cheap to compute."""
    if len(source) > LARGE_PAGE or _has_many_tags(source):
        return True
    copies = copied_bytes(source.lower())
    return copies is None or copies > MAX_COPIED_BYTES


def _has_many_tags(source: bytes) -> bool:
    tags = source.count(b"<")
    return tags > MAX_START_TAGS and (
        tags > MAX_TAGS or tags - source.count(b"</") > MAX_START_TAGS
    )


def copied_bytes(source: bytes) -> int | None:
    """Return an upper bound of the bytes of copied elements that are not contained.

    `source` is in lower case. None: an element may have too many attributes to tell.
    """
    if _has_crowded_tag(source):
        return None
    weights: list[int] = []
    roots = 0
    for found in _suspects(source):
        if found["root"]:
            roots += 1
        elif (rest := _plain_rest(source, found.end())) is not None:
            weights.append(_weight(rest[0]))
        else:
            return None
    if roots > MAX_ROOT_TAGS:
        return None
    return _copies(weights, source) if weights else 0


def _has_crowded_tag(source: bytes) -> bool:
    is_doubtful = len(source) > SMALL_PAGE and _doubtful_tag(source) is not None
    return is_doubtful and _crowded_tag(source) is not None


def _copies(weights: list[int], source: bytes) -> int:
    tags = source.count(b"<")
    most = (sum(weights) + _ADOPTED * max(weights)) * tags
    if most <= MAX_COPIED_BYTES:  # almost always: a few words of a script look like tags
        return most
    return sum(weights) * tags + _ADOPTED * max(weights) * len(_formatting_tags(source))


def _weight(rest: bytes) -> int:
    """Return the bytes of an element, by the rest of its plain start tag."""
    return _PER_ELEMENT + _PER_ATTRIBUTE * len(rest.split()) + len(rest)


def tree_bytes(serialised: str) -> int:
    """Return about how much memory a tree takes, by its HTML."""
    tags, attributes = serialised.count("<"), serialised.count('="')
    return _PER_TAG * tags + _PER_ATTRIBUTE * attributes + len(serialised)
