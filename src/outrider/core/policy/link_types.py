"""Types of links that bring none: by ordered rules, a user's function, or a built-in set (B1, F1).

Only a link without a type is asked about: one that was given, also `page`, stays. A rule looks at
the URL, at where on its page the link was found, and at the type of that page. All patterns are
searched in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from outrider.core.link_validation import found_error, short_repr, type_error
from outrider.core.pattern import compile_pattern, compile_set
from outrider.core.policy.code_field import CODE
from outrider.core.policy.user_function import (
    MAX_DETAIL,
    FunctionError,
    function_name,
    link_with_url,
    name_failures,
)
from outrider.core.task import DEFAULT_TYPE, Link
from outrider.core.url import Url
from outrider.errors import InvalidInput

# ---- where links are found

SEED: Final = "seed"  # added, not found: depth 0 and no referrer
ELEMENTS: Final = ("main", "article", "nav", "header", "footer", "aside", "search")
RELATIONS: Final = (
    *("canonical", "next", "prev", "alternate", "tag", "author", "bookmark", "help", "license"),
    *("terms-of-service", "privacy-policy"),
)
FRAME: Final = "frame"
ORIGINS: Final = ("feed", "sitemap", "redirect", "robots")  # also origins of links
PLACES: Final = frozenset({SEED, *ELEMENTS, *RELATIONS, FRAME, *ORIGINS})
_NO_READING: Final = frozenset({SEED, *ORIGINS})  # known without reading the page again

MAX_RULES: Final = 200
_RULES: Final = "types.rules."  # what gave a type, before the number of the rule
_MAX_REMEMBERED: Final = 4096  # combinations of places and type of page


class Referrer(NamedTuple):
    """The page that a link is on."""

    url: str
    type: str  # "": not known


class TypedBy(NamedTuple):
    """The type of a link, and what gave it: a setting, or a rule of a built-in set."""

    type: str
    by: str


TypeFunction: TypeAlias = Callable[[Link, Url, Referrer | None], str | None]
Typing: TypeAlias = Callable[[Link, Url, Referrer | None], TypedBy | None]


# ---- settings


# The mark of a list that may be given as its only item.
ONE_OR_SEVERAL: Final[Mapping[str, Any]] = {"one_or_several": True}


class TypeRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule: the type of links that fulfil all of its conditions."""

    type: Annotated[str, Meta(description="the type that the rule gives")] = ""
    pattern: Annotated[
        str, Meta(description="regular expression that is found in the URL. Empty: any URL")
    ] = ""
    found: Annotated[
        tuple[str, ...],
        Meta(
            extra={**ONE_OR_SEVERAL},
            description="a place, or several of which one must hold: where its page has the link."
            " Empty: anywhere",
        ),
    ] = ()
    on: Annotated[
        tuple[str, ...],
        Meta(
            extra={**ONE_OR_SEVERAL},
            description="a type, or several: that of the page which has the link. Empty: any",
        ),
    ] = ()


class Types(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What gives a link its type if it brings none; the first answer counts."""

    rules: Annotated[
        tuple[TypeRule, ...],
        Meta(description="tables with `type`, and `pattern`, `found` or `on`; the first counts"),
    ] = ()
    function: Annotated[
        str | Any,
        Meta(
            extra=CODE,
            description="module:function | a function, asked after `rules`: link, URL, page it is"
            " on → type, or None",
        ),
    ] = None
    builtin: Annotated[
        Literal["none", "news"], Meta(description="set of rules that are tried last")
    ] = "none"


def check_rules(rules: Sequence[TypeRule]) -> None:
    """Raise ValueError, with the rule and the fix, if a rule cannot be used."""
    if len(rules) > MAX_RULES:
        raise ValueError(f"{len(rules)} rules, over {MAX_RULES}; join patterns with |")
    for place, rule in enumerate(rules):
        fault = _rule_fault(rule)
        if fault is not None:
            raise ValueError(f"rule {place}: {fault}")
    try:
        compile_set([rule.pattern for rule in rules if rule.pattern])
    except InvalidInput as error:
        raise ValueError(str(error)) from error


def _rule_fault(rule: TypeRule) -> str | None:
    if not rule.type:
        return 'it gives no type; add type = "…"'
    fault = type_error(rule.type) or next(filter(None, map(type_error, rule.on)), None)
    if fault is not None:
        return fault
    if not (rule.pattern or rule.found or rule.on):
        return "it has no condition, so no later rule would count; give pattern, found or on"
    fault = next(filter(None, map(found_error, rule.found)), None)
    if fault is None and any(" " in place for place in rule.found):
        return f"found = {short_repr(list(rule.found))}: write several places as a list of them"
    return fault or _pattern_fault(rule.pattern)


def _pattern_fault(pattern: str) -> str | None:
    try:
        compile_pattern(pattern)
    except InvalidInput as error:
        return str(error)
    return None


def reads_places(types: Types) -> bool:
    """Tell whether page readers must find out where on its page each link is."""
    if types.function is not None or types.builtin != "none":
        return True
    return any(not _NO_READING.issuperset(rule.found) for rule in types.rules)


def places_of(link: Link, *, is_seed: bool = False) -> frozenset[str]:
    """Return all places of a link: those it brings, its origin, and whether it is a seed."""
    words = link.found.split() if link.found else []
    if link.origin in ORIGINS:
        words.append(link.origin)
    return frozenset((*words, SEED) if is_seed else words)


# ---- rules


class _Rules:
    """Compiled rules: the type of the first that a link fulfils."""

    def __init__(self, rules: Iterable[tuple[TypeRule, str]]) -> None:
        pairs = tuple(rules)
        self._rules = tuple(rule for rule, _ in pairs)
        # By number of the rule; behind the last is the answer if none fits.
        self._answers = (*(TypedBy(rule.type, by) for rule, by in pairs), None)
        self._numbers = [number for number, rule in enumerate(self._rules) if rule.pattern]
        self._find = compile_set([rule.pattern for rule in self._rules if rule.pattern]).matches
        self._suitable: dict[tuple[object, ...], tuple[list[int] | None, int]] = {}

    def answer(self, link: Link, url: Url, page_type: str | None, is_seed: bool) -> TypedBy | None:
        """Return the answer of the first rule that fits; None: none does. A measured hot path."""
        key = (link.found, link.origin, page_type, is_seed)
        numbers, first = self._suitable.get(key) or self._remember(link, page_type, is_seed)
        if numbers is not None:
            for found in self._find(url.text):
                number = numbers[found]
                if number < first:  # noqa: PLR1730 - `min` takes three times as long
                    first = number
        return self._answers[first]

    def _remember(
        self, link: Link, page_type: str | None, is_seed: bool
    ) -> tuple[list[int] | None, int]:
        """Return the rules that may fit such links: by pattern, and the first without one.

        A rule that does not fit, or comes too late, has the number behind the last.
        """
        places = places_of(link, is_seed=is_seed)
        fitting = {
            number
            for number, rule in enumerate(self._rules)
            if (not rule.found or not places.isdisjoint(rule.found))
            and (not rule.on or page_type in rule.on)
        }
        none = len(self._rules)
        first = min((one for one in fitting if not self._rules[one].pattern), default=none)
        numbers = [one if one in fitting and one < first else none for one in self._numbers]
        found = (numbers if any(one < none for one in numbers) else None), first
        if len(self._suitable) >= _MAX_REMEMBERED:
            self._suitable.clear()
        self._suitable[link.found, link.origin, page_type, is_seed] = found
        return found


class LinkTypes:
    """Gives a type to a link that brings none: own rules, then the function, then the built-in."""

    def __init__(self, types: Types, function: TypeFunction | None = None) -> None:
        own = [(rule, f"{_RULES}{place}") for place, rule in enumerate(types.rules)]
        builtin = [(rule, f"{types.builtin}: {why}") for rule, why in BUILTINS[types.builtin]]
        self._ask = None if function is None else _asking(function)
        self._before = _Rules(own if function is not None else [*own, *builtin])
        self._after = _Rules(builtin) if function is not None else None

    def type_of(
        self, link: Link, url: Url, page: Referrer | None, *, is_seed: bool
    ) -> TypedBy | None:
        """Return the type and what gave it; None: the default type.

        FunctionError: the user's function raised, or returned something else than a type.
        """
        page_type = None if page is None else page.type
        found = self._before.answer(link, url, page_type, is_seed)
        if found is not None or self._ask is None or self._after is None:
            return found
        given = self._ask(link, url, page)
        if given is None:
            return self._after.answer(link, url, page_type, is_seed)
        return TypedBy(given, "types.function")


def _asking(function: TypeFunction) -> TypeFunction:
    """Return a function that asks the user's, and checks its answers."""
    ask = name_failures("types.function", function)

    def type_of(link: Link, url: Url, page: Referrer | None) -> str | None:
        given: Any = ask(link_with_url(link, url), url, page)
        if given is None or type_error(given) is None:
            return given  # type: ignore[no-any-return]
        fault = f"returned {short_repr(given)}; return a type, as text 1 to 64 long, or None"
        raise FunctionError(f"types.function {function_name(function)} {fault}"[:MAX_DETAIL])

    return type_of


def link_types(types: Types, function: TypeFunction | None = None) -> LinkTypes | None:
    """Return what gives types to links; None: nothing does, so all have the default."""
    if types == Types():
        return None
    return LinkTypes(types, function)


def describe_giver(by: str, kind: str, types: Types) -> str:
    """Return in words what gave a task this type, with the rule as the settings have it now."""
    if not by:
        return "the default" if kind == DEFAULT_TYPE else "its link, or a visit"
    place = by.removeprefix(_RULES)
    if place != by and place.isascii() and place.isdecimal():
        rule = types.rules[int(place)] if int(place) < len(types.rules) else TypeRule()
        return f"{by}, {_conditions(rule)}" if rule.type == kind else f"{by} when it was added"
    return by


def _conditions(rule: TypeRule) -> str:
    conditions = [f"pattern {rule.pattern!r}"] if rule.pattern else []
    conditions += [f"found in {', '.join(rule.found)}"] if rule.found else []
    conditions += [f"on {', '.join(rule.on)}"] if rule.on else []
    return ", ".join(conditions)


# ---- the built-in set for news and documentation

_END: Final = r"/?(?:[?#].*)?$"
_PLAIN_END: Final = r"/?(?:#.*)?$"
_HOST: Final = r"^[a-z]+://[^/?#]+"
_FILE: Final = r"(?:\.[a-z]{2,5})?"
_MONTH: Final = r"(?:0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sept?|oct|nov|dec)[a-z]{0,6}"
_DAY: Final = r"(?:0?[1-9]|[12]\d|3[01])"
_YEAR: Final = r"(?:19|20)\d\d"
_DATE: Final = rf"{_YEAR}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
_WORD: Final = r"[a-z][a-z0-9]*"

_LANGUAGE: Final = (
    "(?:ar|at|au|br|ca|ch|cs|da|de|el|en|es|fi|fr|he|hu|id|in|it|ja|ko|mx|nl|no|pl|pt|ro|ru|sv|th"
    "|tr|uk|us|vi|zh)(?:-[a-z]{2})?"
)
_SERVICE: Final = (
    "about(?:[-_]?us)?|contacts?(?:[-_]?us)?|kontakt|team|staff|masthead|impressum|imprint"
    "|log[-_]?in|log[-_]?out|sign[-_]?(?:in|up|out)|register|registration|anmelden|account|my"
    "|subscribe|subscriptions?|newsletters?|abo|donate|membership|members?|shop|store|cart"
    "|privacy(?:[-_]?policy)?|datenschutz|terms(?:[-_](?:of|and)[-_a-z]+)?|tos|agb|legal"
    "|cookies?(?:[-_]?policy)?|copyright|licen[cs]es?|disclaimer|accessibility|bugs"
    "|help|faqs?|support|feedback|site[-_]?map|search|suche|find|preferences|settings"
    "|jobs|careers?|advertis(?:e|ing)|media[-_]?kit|press|apps?|mobile|podcasts?|rss|feeds?"
    "|tags?|schlagwort|authors?|users?|profiles?|people|download"
    "|(?:book|gen|mod|py-mod)index(?:-[^/?]*)?"
)
_SECTION: Final = (
    "news|latest|world|international|national|local|regional|us|uk|europe|asia|africa"
    "|politics?|politik|economy|business|wirtschaft|finance|markets|money|technology|tech"
    "|digital|science|wissen|health|gesundheit|environment|climate|education|culture|kultur"
    "|arts?|entertainment|music|movies|film|books|sports?|football|lifestyle|style|travel"
    "|reise|food|opinions?|comment|commentisfree|editorials?|analysis|features?|investigations?"
    "|weather|video|videos|photos|pictures|live|magazine|weekend|society|panorama|blogs?"
)


def _rule(kind: str, why: str, *patterns: str, found: tuple[str, ...] = ()) -> tuple[TypeRule, str]:
    """Return a rule of the built-in set; a URL must have one of the patterns, if there are any."""
    pattern = f"(?i){'|'.join(patterns)}" if patterns else ""
    return TypeRule(kind, pattern, found), why


NEWS: Final = (
    _rule(
        "nav",
        "a copy or an action",
        r"[?&](?:share|replytocom|print|printable|reply|action|redirect(?:_to|_url)?"
        r"|return(?:_?to|_?url)?|login|q|s|query|search)=",
        rf"/(?:print(?:able)?|email|share|amp|trackback|embed|comments?|feed){_FILE}{_END}",
        r"/comment-page-\d+",
    ),
    _rule(
        "history",
        "an older page",
        rf"/(?:page|seite|p)[/-]?\d{{1,5}}{_END}",
        r"[?&](?:page|paged|pg|pagenum|start|offset|seite)=\d",
        r"[?&]p=\d{1,2}(?:[&#].*)?$",
    ),
    _rule(
        "history",
        "an archive",
        rf"/{_YEAR}(?:[/-]{_MONTH}(?:[/-]{_DAY})?)?(?:\.html?|/index\.html?)?{_END}",
        rf"/{_YEAR}\d{{4}}(?:\.html?)?{_END}",
        r"[?&](?:m|year|month|date)=\d",
        rf"/(?:archives?|archiv|calendar){_FILE}{_END}",
    ),
    _rule(
        "article",
        "a date in the path",
        rf"/{_YEAR}[/-]{_MONTH}(?:[/-]{_DAY})?[/-][^?#]*[a-z]",
        rf"/{_YEAR}/(?:[^/?#]*[a-z][^/?#]*/){{1,3}}{_MONTH}/{_DAY}/[^?#]*[a-z]",
        rf"/{_DATE}/[^?#]*[a-z]",
        rf"[a-z][-_](?:{_DATE}|{_YEAR}-{_MONTH}-{_DAY})(?:\.s?html?)?{_END}",
    ),
    _rule(
        "nav",
        "an author, a user or a tag",
        r"/(?:tags?|schlagwort|authors?|autor|byline)/",
        r"/~[^/?#]+/?$",
        rf"{_HOST}/(?:(?:users?|profiles?|people|members?)/|users?\?)",
    ),
    _rule(
        "article",
        "a number in the name",
        rf"/(?:[^/?#]*[a-z][^/?#]*[-_.,])?\d{{5,}}(?:[-_.,][^/?#]*)?{_END}",
        rf"/[^/?#]*[a-z][-_][a-z]?\d{{5,}}(?:\.[a-z]+)?{_END}",
        r"/\d{5,}/[^?#]*[a-z]",
        rf"/[a-z]{{1,3}}\d{{5,}}(?:\([^/?#]*\))?{_FILE}{_END}",
        r"[?&](?:p=\d{3}|(?:id|story_?id|article_?id|news_?id|aid|sid)=\d)",
        rf"/(?:articles?|story|node)/(?:[a-z0-9]*\d[a-z0-9]*{_END}|\d+/)",
    ),
    _rule("article", "an item of a feed", found=("feed",)),
    _rule("hub-seed", "a seed", found=(SEED,)),
    _rule(
        "nav",
        "a service page",
        rf"/(?:{_SERVICE}){_FILE}{_END}",
        rf"{_HOST}/(?:about|account|help|legal|_?login|my|support|jobs|careers?|search"
        r"|advertis(?:e|ing)|newsletters?|privacy|terms|subscribe)(?:[-_][a-z]+)?/",
    ),
    _rule(
        "hub",
        "a front page",
        rf"{_HOST}(?:/(?:{_LANGUAGE}|v?\d+(?:\.\d+){{0,2}}|latest|stable|current"
        rf"|docs?|documentation|manual|guides?|book))*{_PLAIN_END}",
        rf"{_HOST}(?:/[^/?#]+){{0,3}}/(?:index|home|default|front|welcome|main|contents?|toc)"
        rf"(?:\.(?:html?|php|aspx?|jsp|cfm))?{_PLAIN_END}",
    ),
    _rule(
        "hub",
        "a section or topic",
        r"/(?:category|categories|cat|topics?|thema|tema|sections?|rubrik|ressort|channels?"
        rf"|subjects?|collections?|series|columns?)(?:/[^/?#]+){{1,2}}{_END}",
        rf"{_HOST}(?:/{_LANGUAGE})?/(?:{_SECTION})(?:/{_WORD}(?:-{_WORD})?)?"
        rf"(?:\.html?|/index\.html?)?{_END}",
    ),
    _rule(
        "article",
        "a title in the name",
        rf"/[^/?#]*[a-z0-9]{{2,}}(?:[-_][^-_/?#]+){{3,}}(?:\.[a-z]{{2,5}})?{_END}",
    ),
    _rule(
        "article",
        "a story path",
        r"/(?:articles?|artikel|story|stories|posts?|blog|news|press-release)/[^?#]*[a-z]-[^?#]*$",
        r"/[^/?#]+/[^/?#]+\.(?:s?html?|stm)(?:[?#].*)?$",
    ),
    _rule(
        "article",
        "a documentation path",
        r"/(?:docs?|documentation|manual|guides?|reference|tutorials?|wiki)/[^?#]*[a-z]",
        rf"^[a-z]+://(?:docs?\.|[^/?#]*\.readthedocs\.)[^/?#]+(?:/[^/?#]+){{3,}}{_END}",
    ),
    _rule("history", "a link to the next or previous page", found=("next", "prev")),
    _rule("nav", "a link about the site", found=("license", "author", "tag", "help")),
    _rule("nav", "a link in the footer", found=("footer",)),
    _rule(
        "hub",
        "a short path in the navigation",
        rf"{_HOST}(?:/{_WORD}(?:-{_WORD})?){{1,2}}{_PLAIN_END}",
        found=("nav", "header"),
    ),
    _rule("hub", "one word", rf"{_HOST}/{_WORD}(?:-{_WORD})?{_PLAIN_END}"),
)
BUILTINS: Final[Mapping[str, tuple[tuple[TypeRule, str], ...]]] = {"none": (), "news": NEWS}
