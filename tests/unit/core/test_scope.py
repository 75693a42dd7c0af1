import msgspec
import pytest

from outrider.core.policy.scope import MAX_REASONS, RESERVED_REASONS, Scope, compile_scope
from outrider.core.url import Refusal, parse_url


def admitted(scope, text, seeds=(), function=None):
    """What the scope says of a text after these seeds."""
    roots = frozenset(scope.root(parse_url(seed)) for seed in seeds)
    return compile_scope(scope, function)(parse_url(text), roots)


def test_default_scope_admits_everything_and_is_none():
    """No answerer, no cost."""
    assert compile_scope(Scope()) is None
    assert not Scope().root(parse_url("http://example.org/"))


@pytest.mark.parametrize(
    ("mode", "text", "inside"),
    [
        ("host", "https://www.example.org:81/other", True),
        ("host", "http://example.org/", False),
        ("domain", "http://example.org/", True),
        ("domain", "http://a.b.example.org/", True),
        ("domain", "http://example.com/", False),
        ("surt", "https://www.example.org/blog/", True),
        ("surt", "http://www.example.org/blog/2025/x?y=/z", True),
        ("surt", "http://www.example.org/%62log/x", True),
        ("surt", "http://www.example.org/blog", False),
        ("surt", "http://www.example.org/blogs/x", False),
        ("surt", "http://www.example.org/", False),
        ("surt", "http://www.example.org:81/blog/", False),
        ("surt", "http://a.www.example.org/blog/", False),
    ],
)
def test_a_scope_bound_to_its_seeds_admits_what_shares_their_root(mode, text, inside):
    """Same host, same registrable domain, or same authority and directory."""
    seeds = ["http://other.net/", "http://www.example.org/blog/index.html?a=/b"]

    assert admitted(Scope(mode=mode), text, seeds) is inside


@pytest.mark.parametrize("mode", ["host", "domain", "surt"])
def test_without_seeds_a_bound_scope_admits_nothing(mode):
    """The caller adds the root of a seed before asking."""
    assert admitted(Scope(mode=mode), "http://example.org/") is False


@pytest.mark.parametrize("mode", ["host", "domain", "surt"])
def test_a_seed_is_inside_its_own_scope(mode):
    """With a query, a port, an address or no path at all."""
    for seed in ("http://a.org", "http://a.org:81/b/c?d=/e", "http://192.0.2.1/x/", "http://b/"):
        assert admitted(Scope(mode=mode), seed, [seed]) is True


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("http://example.org/news/1", True),
        ("http://example.org/NEWS/1", False),
        ("http://example.org/Blog/1", True),
        ("http://example.org/news/1.pdf", False),
        ("http://example.org/about", False),
    ],
)
def test_one_inclusion_must_match_and_no_exclusion_may(text, inside):
    """Exclusions win; patterns are searched anywhere and keep their own flags."""
    scope = Scope(include=("/news/", "(?i)/blog/"), exclude=(r"\.pdf$",))

    assert admitted(scope, text) is inside


def test_exclusions_alone_admit_the_rest():
    """No inclusion means every inclusion."""
    scope = Scope(exclude=("private", "secret"))

    assert admitted(scope, "http://example.org/a") is True
    assert admitted(scope, "http://example.org/secret") is False


def test_a_function_has_the_last_word_on_what_is_left():
    """It is asked only of URLs that the rest admits, and its answer is read as yes or no."""
    asked = []
    scope = Scope(mode="host", exclude=("x",))

    def function(url):
        asked.append(url.text)
        return "b" in url.text

    answers = [
        admitted(scope, text, ["http://a.org/"], function)
        for text in ("http://a.org/b", "http://a.org/c", "http://a.org/bx", "http://d.org/b")
    ]

    assert answers == [True, False, False, False]
    assert asked == ["http://a.org/b", "http://a.org/c"]


def test_a_function_alone_is_a_scope():
    """It is asked with the parsed URL."""
    assert admitted(Scope(), "http://a.org/", function=lambda url: url.host == "a.org") is True


@pytest.mark.parametrize(
    ("field", "pattern", "complaint"),
    [
        ("include", "a(b", r"scope include pattern 'a\(b': no regular expression: missing \)"),
        ("exclude", "*", r"scope exclude pattern '\*': .*no argument for repetition"),
        ("exclude", "a{99999999999999999999}", r"scope exclude pattern .*: "),
    ],
)
def test_a_bad_pattern_is_named_with_its_position(field, pattern, complaint):
    """It is refused when the scope is made, not at the first URL."""
    with pytest.raises(ValueError, match=complaint):
        compile_scope(Scope(**{field: ("ok", pattern)}))


def test_an_unknown_mode_is_refused():
    """By the scope's maker, and by settings that are read into one."""
    with pytest.raises(ValueError, match=r"unknown scope 'site': not one of all, host, domain"):
        compile_scope(Scope(mode="site"))
    with pytest.raises(msgspec.ValidationError, match="mode"):
        msgspec.convert({"mode": "site"}, Scope)


# ---- the reasons of a user's function

PAGE = "https://example.org/a"


def answer_of(returned):
    """What the scope answers when the user's function returns this."""
    return admitted(Scope(), PAGE, function=lambda _: returned)


@pytest.mark.parametrize("reason", ["paywall", "too old", "Verlag: geschützt", "x" * 64])
def test_function_that_returns_text_refuses_with_that_reason(reason):
    """A5: a reason is counted by its own name; the detail says whose it is."""
    answer = answer_of(reason)

    assert isinstance(answer, Refusal)
    assert answer.reason == reason
    assert "test_scope:answer_of" in answer.detail


def test_reason_of_function_is_given_only_for_what_everything_else_admits():
    """A5: the function is asked last, so an excluded URL is off scope."""
    scope = Scope(exclude=("/a",))

    assert admitted(scope, PAGE, function=lambda _: "paywall") is False
    other = admitted(scope, "https://example.org/b", function=lambda _: "paywall")
    assert other.reason == "paywall"


@pytest.mark.parametrize("returned", [True, False])
def test_truth_values_of_function_stay_what_they_are(returned):
    """A5: True admits, False is off scope."""
    assert answer_of(returned) is returned


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        (None, "None"),
        (3, "3"),
        (0, "0"),
        (b"paywall", "b'paywall'"),
        ("", "1 to 64"),
        ("x" * 65, "1 to 64"),
        pytest.param("x" * 1_000_000, "1 to 64", id="huge"),
        (" paywall", "1 to 64"),
        ("pay\nwall", "1 to 64"),
        ("\x1b[31mred", "1 to 64"),
        ("a\u202eb", "1 to 64"),
        ("\ud800", "1 to 64"),
        pytest.param(10**5000, "a int", id="long"),
        *((one, "Outrider's own") for one in ("duplicate", "Max-Depth", "off-focus", "known")),
    ],
)
def test_unusable_answer_of_function_is_an_error_that_names_it(returned, named):
    """A5: the link is bad, never admitted; the detail has the function and the fix, bounded."""
    answer = answer_of(returned)

    assert answer.reason == "bad-link"
    assert "scope.function" in answer.detail
    assert "test_scope:answer_of" in answer.detail
    assert named in answer.detail
    assert len(answer.detail) <= 300
    assert answer.detail.isprintable()


def test_function_that_gives_a_reason_per_url_is_counted_as_off_scope_from_a_bound_on():
    """A5: reasons are names of counters, so there are few; the detail still has the reason."""
    admits = compile_scope(Scope(), lambda url: f"why {url.text}")
    urls = [parse_url(f"https://example.org/{n}") for n in range(MAX_REASONS + 1)]

    *named, last = (admits(url, frozenset()) for url in urls)

    assert len({one.reason for one in named}) == MAX_REASONS
    assert (last.reason, admits(urls[0], frozenset())) == ("off-scope", named[0])
    assert f"why https://example.org/{MAX_REASONS}" in last.detail


def test_reasons_of_every_other_check_are_reserved():
    """B4: what is counted under these names is what the documentation says of them."""
    reasons = {"duplicate", "queue-full", "cancelled", "max-depth", "bad-url", "path-depth"}

    assert reasons < RESERVED_REASONS
    assert "off-scope" not in RESERVED_REASONS
