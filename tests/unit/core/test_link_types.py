"""Types of links that bring none: rules, a function, and the built-in set for news."""

from collections import Counter
from pathlib import Path
from tempfile import gettempdir

import pytest

from outrider.core.link_validation import found_error, is_ordinary, link_error
from outrider.core.policy.link_types import (
    MAX_RULES,
    LinkTypes,
    Referrer,
    TypedBy,
    TypeRule,
    Types,
    check_rules,
    describe_giver,
    link_types,
    places_of,
    reads_places,
)
from outrider.core.task import Link
from outrider.core.url import Url, UrlRules, parse_url
from outrider.fetch.document import Document
from outrider.fetch.extract import extract_rules
from outrider.fetch.reader import extract
from outrider.settings.worker_schema import FetchSettings

PAGE = "https://a.example/goods/tea?x=1"
REAL_URLS = Path(__file__).parents[3].parent / "shared" / "data" / "real_urls.txt"


def typed(types, url=PAGE, page=None, *, is_seed=False, function=None, **fields):
    """What gives a link its type."""
    parsed = parse_url(url, UrlRules())
    link = Link(parsed, **fields)
    return LinkTypes(types, function).type_of(link, parsed, page, is_seed=is_seed)


def by_rules(*rules, url=PAGE, page=None, **fields):
    """What these rules give a link."""
    return typed(Types(rules=rules), url, page, **fields)


# ---- rules


def test_without_settings_nothing_gives_types():
    """B1: no cost, and the default type."""
    assert link_types(Types()) is None
    assert link_types(Types(builtin="news")) is not None


def test_first_rule_that_fits_gives_the_type():
    """B1: in their order, whichever pattern is found earlier in the URL."""
    rules = (
        TypeRule("drink", pattern="/tea"),
        TypeRule("goods", pattern="/goods/"),
        TypeRule("other", pattern="^https:"),
    )

    assert by_rules(*rules) == TypedBy("drink", "types.rules.0")
    assert by_rules(*rules, url="https://a.example/goods/") == TypedBy("goods", "types.rules.1")
    assert by_rules(*rules, url="https://a.example/") == TypedBy("other", "types.rules.2")
    assert by_rules(*rules, url="http://a.example/") is None


def test_rule_without_pattern_comes_before_later_patterns():
    """B1: the order alone counts, not the kind of condition."""
    rules = (
        TypeRule("first", pattern="/none"),
        TypeRule("menu", found=("nav",)),
        TypeRule("goods", pattern="/goods/"),
    )

    assert by_rules(*rules, found="nav").type == "menu"
    assert by_rules(*rules).type == "goods"
    assert by_rules(*rules, url="https://a.example/none", found="nav").type == "first"


def test_rule_with_several_conditions_needs_all_of_them():
    """B1: the URL, one of the places, and one of the page's types."""
    rule = TypeRule("product", pattern="/goods/", found=("main", "feed"), on=("list", "search"))
    page = Referrer("https://a.example/", "list")

    assert by_rules(rule, page=page, found="article main").type == "product"
    assert by_rules(rule, page=page, origin="feed").type == "product"
    assert by_rules(rule, page=page, found="nav") is None
    assert by_rules(rule, page=Referrer("https://a.example/", "page"), found="main") is None
    assert by_rules(rule, page=None, found="main") is None
    assert by_rules(rule, page=page, found="main", url="https://a.example/x") is None


@pytest.mark.parametrize("origin", ["feed", "sitemap", "redirect", "robots"])
def test_origin_of_a_link_is_a_place_where_it_was_found(origin):
    """B1: pages of feeds and sitemaps need no reading for it."""
    assert by_rules(TypeRule("a", found=(origin,)), origin=origin).type == "a"
    assert not reads_places(Types(rules=(TypeRule("a", found=(origin,)),)))


def test_seed_is_a_place_of_links_without_a_page():
    """B1: places of a link are its own words, its origin and that."""
    assert places_of(Link(PAGE, found="nav header", origin="sitemap"), is_seed=True) == {
        *("nav", "header", "sitemap", "seed")
    }
    assert by_rules(TypeRule("hub-seed", found=("seed",)), is_seed=True).type == "hub-seed"
    assert by_rules(TypeRule("hub-seed", found=("seed",))) is None


def test_places_of_users_own_are_told_apart_however_many_there_are():
    """B1: what is remembered of combinations is bounded, and never wrong."""
    types = LinkTypes(Types(rules=(TypeRule("even", found=("last",)),)))
    url = parse_url(PAGE, UrlRules())
    answers = [
        types.type_of(Link(url, found=f"p{n}" + " last" * (n % 2)), url, None, is_seed=False)
        for n in range(10_000)
    ]

    assert [answer is not None for answer in answers] == [bool(n % 2) for n in range(10_000)]


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (TypeRule(pattern="a"), "gives no type"),
        (TypeRule("x" * 65, pattern="a"), "1 to 64"),
        (TypeRule("a"), "no condition"),
        (TypeRule("a", pattern="(?=a)"), "rule 0: pattern"),
        (TypeRule("a", found=("Nav",)), "lower-case"),
        (TypeRule("a", found=("nav header",)), "as a list"),
        (TypeRule("a", found=("",)), "1 to 8 words"),
        (TypeRule("a", on=("",)), "1 to 64"),
    ],
)
def test_rule_that_cannot_be_used_is_refused_with_its_number(rule, named):
    """N2: the rule, the field and the fix."""
    with pytest.raises(ValueError, match="rule 0: ") as caught:
        check_rules([rule])

    assert named in str(caught.value)


def test_rules_are_bounded_in_number_and_in_size_together():
    """Whoever writes them cannot make every link cost what they like."""
    with pytest.raises(ValueError, match=f"over {MAX_RULES}"):
        check_rules([TypeRule("a", pattern="a")] * (MAX_RULES + 1))
    with pytest.raises(ValueError, match="too large together"):
        check_rules([TypeRule("a", pattern="(?:ab){1000}[^/]{900}")] * 40)


def test_patterns_near_the_bounds_still_match():
    """A set of patterns must not run out of memory and find nothing."""
    big = tuple(TypeRule(f"t{n}", pattern=f"x{n}[^/]{{0,900}}y") for n in range(11))
    check_rules(big)

    answer = by_rules(*big, TypeRule("last", pattern="z$"), url=f"https://a.example/x7{'é' * 90}yz")
    assert answer.type == "t7"
    assert by_rules(*big, TypeRule("last", pattern="z$"), url="https://a.example/z").type == "last"


# ---- the function


def test_function_is_asked_after_rules_and_before_the_built_in_set():
    """B1: with the link, its URL and the page it is on; None leaves it to the built-in set."""
    asked = []

    def by_words(link, url, page):
        asked.append((link.found, url.text, page))
        return "goods" if "/goods/" in url.text else None

    types = Types(rules=(TypeRule("menu", found=("nav",)),), function=by_words, builtin="news")
    page = Referrer("https://a.example/", "hub")

    assert typed(types, function=by_words, found="nav") == TypedBy("menu", "types.rules.0")
    assert typed(types, page=page, function=by_words) == TypedBy("goods", "types.function")
    assert typed(types, "https://a.example/about", function=by_words).by == "news: a service page"
    assert asked == [(None, PAGE, page), (None, "https://a.example/about", None)]


@pytest.mark.parametrize("answer", [3, "", "x" * 65, b"page", True, "\ud800"])
def test_function_that_returns_no_type_is_an_error_that_names_it(answer):
    """B1: neither counted as a type nor ignored."""

    def odd(*_):
        return answer

    with pytest.raises(ValueError, match=r"types.function .*test_link_types:.*odd returned"):
        typed(Types(function=odd), function=odd)


# ---- what needs the places of anchors


@pytest.mark.parametrize(
    ("types", "wanted"),
    [
        (Types(), False),
        (Types(rules=(TypeRule("a", pattern="b"),)), False),
        (Types(rules=(TypeRule("a", found=("seed", "sitemap")),)), False),
        (Types(rules=(TypeRule("a", found=("nav",)),)), True),
        (Types(rules=(TypeRule("a", found=("own-word",)),)), True),
        (Types(function="m:f"), True),
        (Types(builtin="news"), True),
    ],
)
def test_pages_are_read_for_places_only_if_something_asks_for_them(types, wanted):
    """K3: other crawls do not pay for it."""
    assert reads_places(types) is wanted


# ---- links


@pytest.mark.parametrize("found", ["nav", "nav header", "search-results", "a b c d e f g h"])
def test_link_may_say_where_it_was_found(found):
    """B1: words of the author's own too."""
    assert is_ordinary(Link(PAGE, found=found))
    assert link_error(Link(PAGE, found=found)) is None


@pytest.mark.parametrize(
    "found",
    [
        *("", " nav", "nav  header", "Nav", "nav,header", "é", "a" * 33),
        *("a b c d e f g h i", "x" * 999),
        *(3, ("nav",), ["nav"], b"nav"),
    ],
)
def test_malformed_places_are_refused_with_the_fix(found):
    """B4: bounded, and one spelling of each."""
    assert not is_ordinary(Link(PAGE, found=found))
    assert "words with spaces between them" in link_error(Link(PAGE, found=found))
    assert found_error(found) == link_error(Link(PAGE, found=found))


# ---- explanations


def test_giver_is_described_with_the_rule_as_it_is_now():
    """O4: rules may have changed since the link was added."""
    types = Types(rules=(TypeRule("goods", pattern="/g/", found=("main",), on=("list",)),))

    assert describe_giver("types.rules.0", "goods", types) == (
        "types.rules.0, pattern '/g/', found in main, on list"
    )
    assert describe_giver("types.rules.0", "tea", types) == "types.rules.0 when it was added"
    assert describe_giver("types.rules.1", "goods", types) == "types.rules.1 when it was added"
    assert describe_giver("types.function", "goods", types) == "types.function"
    assert describe_giver("news: a seed", "hub-seed", types) == "news: a seed"
    assert describe_giver("", "page", types) == "the default"
    assert describe_giver("", "goods", types) == "its link, or a visit"
    for odd in ("types.rules.x", "types.rules.", "types.rules.-1", "types.rules.²"):
        assert describe_giver(odd, "goods", types) == odd


# ---- the built-in set


def news(url, **fields):
    """The type that the built-in set gives, or the default."""
    answer = typed(Types(builtin="news"), url, **fields)
    return "page" if answer is None else answer.type


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://a.example/", "hub-seed"),
        ("https://a.example/world", "hub-seed"),
        ("https://a.example/about", "hub-seed"),
        ("https://a.example/2024/05/31/a-story.html", "article"),
    ],
)
def test_seed_is_a_hub_seed_unless_it_is_plainly_an_article(url, kind):
    """F1: what a person gives is where a crawl begins, but a list of articles is one too."""
    assert news(url, is_seed=True) == kind


def rates(rows):
    """Precision and recall of each type, of rows (wanted, given)."""
    right = Counter(wanted for wanted, given in rows if wanted == given)
    wanted, given = Counter(row[0] for row in rows), Counter(row[1] for row in rows)
    return {
        kind: (right[kind] / max(1, given[kind]), right[kind] / wanted[kind]) for kind in wanted
    }


def labelled_links():
    """The links of news sites and documentation that were labelled by hand."""
    lines = (Path(__file__).parent / "labelled_links.tsv").read_text("utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def found_fields(found):
    """The fields of a link that was found there."""
    return {} if found == "-" else {"origin": "feed"} if found == "feed" else {"found": found}


def test_built_in_set_is_precise_on_news_sites_and_documentation():
    """F1: the figures of the how-to page: of what it calls an article, 95 % is one, and so on."""
    links = labelled_links()
    found = rates([(kind, news(url, **found_fields(place))) for kind, place, url in links])

    assert len(links) > 250
    assert round(found["article"][0], 2) >= 0.95
    assert round(found["hub"][0], 2) >= 0.98
    assert round(found["nav"][0], 2) >= 0.98
    assert round(found["history"][0], 2) >= 0.99
    assert min(found[kind][1] for kind in ("article", "hub", "nav", "history")) >= 0.95


def documentation():
    """The folder of Python's documentation, if it is installed or was fetched for benchmarks."""
    fetched = Path(gettempdir()) / "outrider-docs"
    indexes = [
        *Path("/usr/share/doc").glob("python3*-doc/html/library/index.html"),
        *fetched.glob("*/usr/share/doc/*/html/library/index.html"),
    ]
    return indexes[0].parents[1] if indexes else None


def kind_of_documentation(name):
    """What a page of that documentation is, by its name."""
    words = ("search", "about", "bugs", "copyright", "license", "download", "py-modindex")
    stem = name.rpartition("/")[2].removesuffix(".html")
    if stem in ("index", "contents"):
        return "hub"
    return "nav" if stem in words or stem.startswith("genindex") else "article"


def test_built_in_set_is_precise_on_a_real_set_of_documentation():
    """F1: every link of Python's documentation as a crawl finds it, where it is installed."""
    folder, root = documentation(), "https://docs.example/3/"
    if folder is None:
        pytest.skip("Python's documentation is not installed: see benchmarks/scorers.py")
    rules = extract_rules(FetchSettings(), UrlRules(), places=True)
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.html")}
    found = {}
    for name, path in sorted(names.items()):
        document = Document(root + name, (("Content-Type", "text/html"),), path.read_bytes())
        for link in extract(document, rules).links:
            found.setdefault(link.url.text.removeprefix(root), link)
    pages = {name: link for name, link in found.items() if name in names}
    shares = rates(
        [
            (kind_of_documentation(name), news(link.url.text, found=link.found))
            for name, link in pages.items()
        ]
    )

    assert len(pages) > 400
    assert shares["article"][0] >= 0.995
    assert min(shares["hub"]) >= 0.99
    assert shares["nav"][0] >= 0.94
    assert min(recall for _, recall in shares.values()) >= 0.99


def test_built_in_set_is_precise_on_real_urls_it_was_not_made_for():
    """F1: a random sample of real URLs, where their list lies beside the repository."""
    if not REAL_URLS.exists():
        pytest.skip("the list of real URLs is not beside the repository")
    urls = REAL_URLS.read_text("utf-8", errors="replace").splitlines()
    lines = (Path(__file__).parent / "labelled_lines.tsv").read_text("utf-8").splitlines()
    labels = [line.split("\t") for line in lines if not line.startswith("#")]
    for part, precision, recall in (("tuning", 0.95, 0.88), ("held-out", 0.98, 0.9)):
        rows = [(kind, urls[int(n)]) for where, kind, n in labels if where == part]
        parsed = [(kind, url) for kind, url in rows if isinstance(parse_url(url, UrlRules()), Url)]
        found = rates([(kind, news(url)) for kind, url in parsed])

        assert len(parsed) > 140
        assert found["article"][0] >= precision
        assert found["article"][1] >= recall
        assert found["hub"][0] >= 0.98
