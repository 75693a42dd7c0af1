import msgspec
import pytest

from outrider.core.policy.scope import Scope, compile_scope
from outrider.core.url import parse_url


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
    """Whatever it answers becomes a yes or a no."""
    assert admitted(Scope(), "http://a.org/", function=lambda url: url.host) is True


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
