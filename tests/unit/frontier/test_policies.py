import contextlib
import math

import pytest

from outrider import Done, Frontier, Link, OutriderError, SettingsError
from outrider.core import admission
from outrider.core.breakdown import Breakdown
from outrider.core.policy import focus, link_types
from outrider.core.policy.score import Score
from outrider.core.url import parse_url
from outrider.frontier import policies

A = "https://a.example/"


async def only(frontier, link):
    """The one answer for one link."""
    report = await frontier.add([link])
    (answer,) = report.answers
    return answer


# ---- policies of the user


@pytest.mark.parametrize(
    ("name", "url", "key"),
    [
        ("host", "https://www.a.example:8080/", "www.a.example"),
        ("domain", "https://www.shop.co.uk/", "shop.co.uk"),
        ("surt", "https://www.a.example:8080/", "example,a,www:8080"),
    ],
)
async def test_a_queue_is_keyed_as_the_settings_say(opened, name, url, key):
    """A4: host without port, registrable domain, or SURT authority."""
    frontier = await opened({"queue": {"key": name}})
    await frontier.add([url])

    assert [view.key async for view in frontier.queues()] == [key]


async def test_buckets_are_as_many_as_asked_for(opened):
    """A4: n fixed buckets; one host is always in the same."""
    frontier = await opened({"queue": {"key": "buckets:3"}})
    await frontier.add([f"https://h{n}.example/{page}" for n in range(60) for page in range(2)])

    views = [view async for view in frontier.queues()]

    assert len(views) == 3
    assert all(view.pending % 2 == 0 for view in views)


async def test_a_function_may_give_the_key(opened):
    """A4: and a link may bring its own, which wins."""
    frontier = await opened({"queue": {"key": lambda url: url.host[0]}})

    await frontier.add([A, Link("https://b.example/", key="mine")])

    assert {view.key async for view in frontier.queues()} == {"a", "mine"}


@pytest.mark.parametrize("answer", [None, "", "x" * 256, 5, "a\nb"])
async def test_a_function_that_gives_no_key_refuses_the_link(opened, answer):
    """B4: an invalid link; the detail names the function at fault."""
    frontier = await opened(
        {"queue": {"key": lambda url: answer if url.host == "a.example" else url.host}}
    )

    report = await frontier.add([A, "https://b.example/"])

    assert [one.reason for one in report.answers] == ["bad-link", None]
    assert "queue.key" in report.answers[0].detail


@pytest.mark.parametrize("answer", [-1, 65_536, 1.5, "1", None, math.nan, True])
async def test_a_function_that_gives_no_cost_refuses_the_link(opened, answer):
    """E4: integers 0–65,535."""
    frontier = await opened(
        {"budget": {"cost": lambda url, _: answer if url.host == "a.example" else 1}}
    )

    report = await frontier.add([A, "https://b.example/"])

    assert [one.reason for one in report.answers] == ["bad-link", None]
    assert "budget.cost" in report.answers[0].detail


async def test_a_function_may_give_the_cost(opened):
    """E4: it is charged, and is the precedence: dearer URLs wait behind cheaper ones."""
    frontier = await opened(
        {
            "budget": {"cost": lambda url, _: 7 if "dear" in url.text else 2},
            "politeness": {"delay": 0.0, "max_in_flight": 9},
        }
    )
    await frontier.add([A + "dear", A + "cheap"])

    leases = await frontier.claim(2)

    assert [lease.url for lease in leases] == [A + "cheap", A + "dear"]
    assert (await frontier.queue("a.example").view()).spent == 9


async def test_key_may_have_its_own_cost_policy(opened):
    """A4: overrides by exact key or suffix."""
    frontier = await opened({"keys": {"a.example": {"cost": "zero"}, ".org": {"cost": "wag"}}})
    await frontier.add([A, "https://b.org/?x=1", "https://c.com/?x=1"])

    costs = {lease.key: lease.cost for lease in await frontier.claim(3)}

    assert costs == {"a.example": 0, "b.org": 2, "c.com": 1}


@pytest.mark.parametrize(
    "settings",
    [
        {"scope": {"function": lambda url: bool(1 / (url.host != "a.example"))}},
        {"queue": {"key": lambda url: str(1 / (url.host != "a.example"))}},
        {"budget": {"cost": lambda url, _: int(1 / (url.host != "a.example"))}},
        {"queue": {"max_depth": 0, "bypass_depth": lambda link: bool(1 / ("a." not in link.url))}},
    ],
)
async def test_a_policy_that_raises_refuses_its_link_alone(opened, settings):
    """A2: an invalid link does not affect the others; the detail has what was raised."""
    frontier = await opened(settings)

    report = await frontier.add([Link(A, depth=1), Link("https://b.example/", depth=1)])

    assert [answer.added for answer in report.answers] == [False, True]
    assert report.answers[0].reason == "bad-link"
    assert "ZeroDivisionError" in report.answers[0].detail


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (lambda f: {"scope": {"function": f}}, "scope.function"),
        (lambda f: {"queue": {"key": f}}, "queue.key"),
        (lambda f: {"budget": {"cost": f}}, "budget.cost"),
        (lambda f: {"keys": {"a.example": {"cost": f}}}, "keys.a.example.cost"),
        (lambda f: {"queue": {"max_depth": 0, "bypass_depth": f}}, "queue.bypass_depth"),
        (lambda f: {"types": {"function": f}}, "types.function"),
        (lambda f: {"focus": {"on": True, "classifier": f}}, "focus.classifier"),
    ],
)
async def test_function_that_raises_is_named_in_the_detail(opened, settings, name):
    """B4: the setting, the function and what it raised, also if that has no text."""

    class Unspeakable(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def mine(*_):
        raise TypeError("no idea") if len(raised) == 0 else raised[0]

    raised = []
    frontier = await opened(settings(mine))
    answer = await only(frontier, Link(A, depth=1))
    raised.append(Unspeakable())
    mute = await only(frontier, Link(A, depth=1))

    function = f"{__name__}:{mine.__qualname__}"
    assert (answer.reason, mute.reason) == ("bad-link", "bad-link")
    assert answer.detail == f"{name} {function} raised TypeError: no idea"[:300]
    assert mute.detail == f"{name} {function} raised Unspeakable"


class Witness:
    """Functions of the user's that keep the URL of every link they are given."""

    features = ("mine",)

    def __init__(self):
        self.seen = []

    def score(self, batch):
        """Score all alike."""
        self.seen += [("scorer", link.url) for link, *_ in batch]
        return [Score(1.0, Breakdown("mine", (("x", 1.0),))) for _ in batch]

    def answer(self, name, answer):
        """A function of a link, perhaps its URL, and more."""

        def function(link, *_):
            self.seen.append((name, link.url))
            return answer

        return function

    def settings(self):
        """Settings that name all of them."""
        return {
            "scoring": {"scorer": self},
            "queue": {"max_depth": 0, "bypass_depth": self.answer("bypass_depth", True)},
            "types": {"function": self.answer("types", None)},
            "focus": {"on": True, "classifier": self.answer("classifier", "focus")},
        }

    def take(self):
        """What was seen since the last call: names by URL."""
        seen, self.seen = self.seen, []
        return {(name, url) for name, url in seen}


async def test_functions_are_given_links_with_the_text_of_their_url(opened):
    """A1, B4: the URL that is visited, whether a link is text, a Link, or read from a page."""
    witness = Witness()
    frontier = await opened({**witness.settings(), "politeness": {"delay": 0.0}})
    every = ("scorer", "types", "classifier")

    await frontier.add(["HTTPS://A.example/#top"])
    assert witness.take() == {(name, A) for name in every}

    await frontier.add([Link("HTTPS://A.example/1#top", depth=1)])
    assert witness.take() == {(name, A + "1") for name in (*every, "bypass_depth")}

    await frontier.score([A + "2", Link(A + "3#x", depth=1)])
    assert {("types", A + "2"), ("scorer", A + "3"), ("bypass_depth", A + "3")} <= witness.take()

    (lease,) = await frontier.claim()
    read = parse_url("HTTPS://A.example/5")
    found = [A + "4#x", Link(read, depth=1), read]
    await frontier.finish(lease, Done(200), links=found)
    assert {url for _, url in witness.take()} == {A + "4", A + "5"}

    await frontier.rescore()
    assert {type(url) for _, url in witness.take()} == {str}


async def test_crawl_without_functions_builds_no_links(opened, monkeypatch):
    """F9: admission is a measured hot path, so a Link is only made for a function that asks."""

    def never(*_):
        raise AssertionError("built for nobody")

    for module in (policies, admission, focus, link_types):
        monkeypatch.setattr(module, "link_with_url", never)
    settings = {"focus": {"on": True, "tokens": ["news"]}, "types": {"builtin": "news"}}
    frontier = await opened(settings)

    report = await frontier.add([A + "news", Link(A + "news/1", depth=11)])

    assert [one.reason for one in report.answers] == [None, "max-depth"]


async def test_bad_links_of_pages_are_logged_once_by_detail(opened, caplog):
    """B4: nothing else tells a crawl which function refuses its links; escaped and bounded."""

    def bad(url):
        if url.text == A:
            return True
        raise TypeError("seen \x1b[31m" + url.text.rpartition("/")[2][:2])

    frontier = await opened({"scope": {"function": bad}})
    await frontier.add([A])
    (lease,) = await frontier.claim()
    await frontier.finish(lease, Done(200), links=[f"{A}{n:04}" for n in range(5000)])

    warned = [one.getMessage() for one in caplog.records if "bad-link" in one.getMessage()]
    assert len(warned) == 10
    assert warned[0].startswith(f"link of a page refused as bad-link: {A}0000: scope.function ")
    assert warned[0].endswith("raised TypeError: seen \\x1b[31m00")


class Scorer:
    """A scorer of the user's, of which every link is an example."""

    features = ("mine",)

    def __init__(self, answer):
        self._answer = answer

    def score(self, batch):
        """Whatever the test wants for each."""
        return [self._answer(link, url) for link, url, *_ in batch]


async def test_a_scorer_may_be_the_users(opened):
    """F10: its features are reported."""

    def answer(_, url):
        size = float(len(url.text))
        return Score(size, Breakdown("mine", (("length", size),)))

    frontier = await opened({"scoring": {"scorer": Scorer(answer)}})
    report = await frontier.add([A, A + "long"])

    assert [one.priority for one in report.answers] == [18.0, 22.0]
    assert list(report.scoring.features) == ["mine"]


async def test_a_scorer_that_answers_nonsense_refuses_its_link_alone(opened):
    """B4: `bad-link` for a NaN priority, from the link or from the scorer."""

    def answer(_, url):
        size = math.nan if "bad" in url.text else 1.0
        return Score(size, Breakdown("mine", (("x", size),)))

    frontier = await opened({"scoring": {"scorer": Scorer(answer)}})
    report = await frontier.add([A, A + "bad", A + "good"])

    assert [one.reason for one in report.answers] == [None, "bad-link", None]


def raising(_batch):
    """A scorer's bug."""
    raise ZeroDivisionError("mine")


@pytest.mark.parametrize("score", [raising, lambda _: [], lambda _: None, lambda _: ["soon"]])
async def test_error_of_a_scorer_does_not_affect_the_batch(opened, score):
    """A2, F10: one that raises, or answers too little or nonsense, refuses what it was asked."""
    scorer = Scorer(None)
    scorer.score = score
    frontier = await opened({"scoring": {"scorer": scorer}})

    report = await frontier.add([A, Link(A + "2", priority=1.0), "nonsense"])

    assert [answer.reason for answer in report.answers] == ["bad-link", None, "bad-url"]


async def test_a_revisit_is_never_scored_as_no_number(opened):
    """C2, G3: NaN is refused, or replaced; no store could put it in line."""

    def answer(link, _):
        worth = math.nan if link.type == "refresh" else 1.0
        return Score(worth, Breakdown("mine", (("worth", worth),)))

    frontier = await opened({"scoring": {"scorer": Scorer(answer)}})
    await frontier.add([A])
    (lease,) = await frontier.claim()

    with contextlib.suppress(OutriderError):
        await frontier.finish(lease, Done(200, revisit_in=10.0))

    assert math.isfinite((await frontier.explain(A)).task.priority)


async def test_an_unknown_policy_is_refused_at_opening():
    """N2: with its path, before anything is opened."""
    with pytest.raises(SettingsError, match=r"queue\.key"):
        Frontier.open(settings={"queue": {"key": "hosts"}})


# ---- priorities


@pytest.mark.parametrize(
    ("kind", "depth", "priority"),
    [
        ("article", 0, 0.0),
        ("hub-seed", 1, 5.0),
        ("history", 0, 6.0),
        ("nav", 2, 12.0),
        ("refresh", 0, 25.0),
        ("page", 3, 15.0),
        ("anything", 0, 12.0),
    ],
)
async def test_the_base_is_type_weight_and_depth(frontier, kind, depth, priority):
    """F1."""
    assert (await only(frontier, Link(A, type=kind, depth=depth))).priority == priority


@pytest.mark.parametrize(
    ("fields", "priority", "source"),
    [
        ({"bias": -2.5}, 9.5, "base"),
        ({"bias": 3, "depth": 4}, 19.0, "base"),
        ({"base_priority": 100}, 100.0, "base"),
        ({"base_priority": 100, "bias": 1, "depth": 5, "type": "nav"}, 101.0, "base"),
        ({"priority": 7}, 7.0, "explicit"),
        ({"priority": -3.5, "depth": 5, "type": "nav"}, -3.5, "explicit"),
        ({"priority": "critical"}, -1000.0, "explicit"),
        ({"priority": "high"}, -100.0, "explicit"),
        ({"priority": "normal"}, 0.0, "explicit"),
        ({"priority": "low"}, 100.0, "explicit"),
        ({"priority": -0.0}, 0.0, "explicit"),
        ({"priority": 1e308}, 1e308, "explicit"),
        ({"forced": True}, 12.0, "forced"),
        ({"forced": True, "priority": 5}, 5.0, "forced"),
    ],
)
async def test_a_link_may_say_how_soon_it_is_wanted(frontier, fields, priority, source):
    """F8: and the breakdown sums to the priority, whatever its source."""
    answer = await only(frontier, Link(A, **fields))
    breakdown = (await frontier.explain(A)).breakdown

    assert answer.priority == priority
    assert math.copysign(1.0, answer.priority) == math.copysign(1.0, priority or 1.0)
    assert breakdown.source == source
    assert math.isclose(sum(value for _, value in breakdown.terms), priority, abs_tol=1e-12)
    assert breakdown.total == priority


async def test_terms_that_sum_beyond_all_floats_are_refused(frontier):
    """C2: infinities are refused, also those that arise."""
    answer = await only(frontier, Link(A, base_priority=1.7e308, bias=1.7e308))

    assert answer.reason == "bad-link"


async def test_forced_goes_before_everything_in_its_queue(rude):
    """F8: before a critical one; elsewhere it only competes as its queue's top."""
    await rude.add([Link(A + "critical", priority="critical"), Link(A + "forced", forced=True)])

    assert [lease.url for lease in await rude.claim(2)] == [A + "forced", A + "critical"]


async def test_configured_weights_are_used(opened):
    """F1: by type, and for all other types."""
    frontier = await opened({"scoring": {"weights": {"nav": 1.5, "default": 40}}})

    report = await frontier.add([Link(A + "1", type="nav"), A + "2", Link(A + "3", type="article")])

    assert [answer.priority for answer in report.answers] == [1.5, 40.0, 0.0]


async def test_the_fifo_scorer_holds_all_equal(opened):
    """F10: but for what the link itself asks."""
    frontier = await opened({"scoring": {"scorer": "fifo"}})

    report = await frontier.add(
        [
            Link(A + "1", depth=4),
            Link(A + "2", bias=2),
            Link(A + "3", base_priority=5),
            Link(A + "4", priority=9),
        ]
    )

    assert [answer.priority for answer in report.answers] == [0.0, 2.0, 5.0, 9.0]
