import math

import pytest

from outrider.core.admission import Admission
from outrider.core.link_validation import link_error
from outrider.core.policy.cost import unit_cost, wag_cost
from outrider.core.policy.focus import Focus, classifier_of
from outrider.core.policy.politeness import Politeness
from outrider.core.policy.queue_key import domain_key, host_key
from outrider.core.policy.rules import QueueRules
from outrider.core.policy.scope import Scope, compile_scope
from outrider.core.policy.score import DefaultScorer, breakdown_of, explicit
from outrider.core.policy.traps import Traps
from outrider.core.policy.weights import Scoring
from outrider.core.task import ACQUISITION, DISCOVERY, Added, Lease, Link, PolitenessState, Task
from outrider.core.url import UrlRules, fingerprint, parse_url

A = "https://a.example/"


def admission(**fields):
    """An admission by the defaults, but for what is given."""
    given = {
        "crawl": "c",
        "key": host_key,
        "cost": unit_cost,
        "scorer": DefaultScorer(Scoring()),
        "url_rules": UrlRules(),
        "traps": Traps(),
        "max_depth": 10,
        "acquisition": frozenset({"article"}),
    }
    return Admission(**{**given, **fields})


def bound_to(mode):
    """An admission bound to its seeds."""
    scope = Scope(mode=mode)
    return admission(admits=compile_scope(scope), root=scope.root)


def admitted(link, **fields):
    """What becomes of one link."""
    (answer,) = admission(**fields).admit([link])
    return answer


def lease(**about):
    """A lease of the seed https://a.example/."""
    given = {"type": "page", "lane": 0, "depth": 0, "precedence": 1, "priority": 0.0, "cost": 1}
    task = Task("c", b"f" * 16, A, "a.example", **{**given, **about})
    rules = QueueRules(politeness=Politeness())
    return Lease("s", 1, 1, task, 1, "w", 60.0, 0, 0, rules, PolitenessState())


def test_text_becomes_a_task():
    """B1: keyed, rescored and scored, by the defaults of a link."""
    task = admitted(A + "?b=2&a=1")

    assert isinstance(task, Task)
    assert (task.crawl, task.url, task.key) == ("c", A + "?b=2&a=1", "a.example")
    assert task.fingerprint == fingerprint(A + "?a=1&b=2")
    assert (task.type, task.lane, task.depth, task.cost) == ("page", DISCOVERY, 0, 1)
    assert (task.precedence, task.priority, task.delay, task.roll) == (1, 12.0, 0.0, 0)
    assert (task.origin, task.via, task.tag, task.meta) == ("opportunistic", None, None, b"")


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize(
    ("link", "text", "kept"),
    [
        (A, "", ""),
        ("HTTPS://a.example", "", "HTTPS://a.example"),
        (" https://a.example/\n", "", " https://a.example/\n"),
        (parse_url("HTTPS://a.example"), "", ""),
        (Link("HTTPS://a.example", text="é" * 4096), "é" * 4096, "é" * 4096),
        (Link(A, text=A), "", ""),
        (Link("HTTPS://a.example", text=A), "", ""),
        (Link("HTTPS://a.example", text=""), "", ""),
    ],
)
def test_text_is_kept_beside_the_url_if_it_is_another(link, text, kept, keeps):
    """B1: the text of the link, or with `url.keep_text` the URL as it was given."""
    task = admitted(link, keeps_text=keeps)

    assert task.url == A
    assert task.text == (kept if keeps else text)


def test_a_parsed_url_is_not_read_again():
    """Parse once at the edge."""
    url = parse_url(A)

    assert admitted(url) == admitted(A) == admitted(Link(url)) == admitted(Link(A))


def test_a_subclass_of_text_is_text():
    """A URL read from somewhere that marks its strings."""

    class Marked(str):
        __slots__ = ()

    assert admitted(Marked(A)).url == A


def test_answers_are_in_order():
    """A2: one per link."""
    answers = admission().admit([A, "nonsense", Link(A + "2", depth=11), parse_url(A)])

    kinds = [type(answer) for answer in answers]
    assert kinds == [Task, Added, Added, Task]
    assert [answer.url for answer in answers] == [A, "nonsense", A + "2", A]


def test_no_links_have_no_answers():
    """And nobody is asked to score nothing."""
    assert admission(scorer=None).admit([]) == []


@pytest.mark.parametrize(
    ("fields", "precedence"),
    [({"cost": lambda *_: 7}, 7), ({"cost": lambda *_: 0}, 1), ({"cost": unit_cost}, 1)],
)
def test_the_precedence_is_the_cost(fields, precedence):
    """C2: ≥ 1; 0 is forced."""
    assert admitted(A, **fields).precedence == precedence
    assert admitted(Link(A, forced=True), **fields).precedence == 0


def test_cost_function_gets_the_referrer():
    """E4: wag: 3 for what only varies its referrer's query."""
    assert admitted(Link(A + "?a=1", via=A), cost=wag_cost).cost == 3


def test_a_key_may_have_a_cost_policy_of_its_own():
    """A4: asked by the key, of the URL."""
    costs = {"a.example": lambda *_: 5}

    answers = admission(cost_of=lambda key: costs.get(key, unit_cost)).admit([A, "http://b.test"])

    assert [task.cost for task in answers] == [5, 1]


def test_a_link_may_bring_its_own_key():
    """A4: and its cost is that of this key."""
    task = admitted(Link(A, key="mine"), cost_of=lambda key: lambda *_: len(key))

    assert (task.key, task.cost) == ("mine", 4)


def test_other_key_function_is_called():
    """A4."""
    assert admitted("https://www.shop.co.uk/", key=domain_key).key == "shop.co.uk"


def test_shuffled_tasks_are_rolled_one_by_one():
    """C2: the caller's dice."""
    rolls = iter([3, 1, 2])

    tasks = admission(roll=lambda: next(rolls)).admit([A + "1", A + "2", A + "3"])

    assert [task.roll for task in tasks] == [3, 1, 2]


def test_explicit_priorities_never_reach_the_scorer():
    """F8: mixed with others, each gets its own."""
    asked = []

    class Scorer(DefaultScorer):
        def score(self, batch):
            asked.extend(link.url for link, *_ in batch)
            return super().score(batch)

    links = [Link(A + "1"), Link(A + "2", priority=5), Link(A + "3", depth=1)]
    tasks = admission(scorer=Scorer(Scoring())).admit([*links, Link(A + "4", priority="low")])

    assert [task.priority for task in tasks] == [12.0, 5.0, 13.0, 100.0]
    assert asked == [A + "1", A + "3"]


def test_links_with_explicit_priorities_alone_need_no_scorer():
    """F8."""
    assert admitted(Link(A, priority=5), scorer=None).priority == 5.0


@pytest.mark.parametrize(
    ("fields", "source"),
    [({}, "base"), ({"priority": 5}, "explicit"), ({"forced": True}, "forced")],
)
def test_every_priority_has_a_breakdown(fields, source):
    """F2: the source, and terms that sum to the score."""
    task = admitted(Link(A, **fields))
    breakdown = breakdown_of(task)

    assert (breakdown.source, breakdown.total) == (source, task.priority)


def test_minus_zero_is_zero():
    """C2."""
    assert math.copysign(1.0, admitted(Link(A, priority=-0.0)).priority) == 1.0


@pytest.mark.parametrize(("kind", "lane"), [("article", ACQUISITION), ("page", DISCOVERY)])
def test_the_type_decides_the_lane(kind, lane):
    """C4."""
    assert admitted(Link(A, type=kind)).lane == lane


def test_found_links_inherit():
    """B1: via and tag of their page, unless they bring their own."""
    page = lease(tag="word")
    links = [A + "1", Link(A + "2", via="v", tag="t")]

    one, other = admission().admit(links, are_seeds=False, found_on=page)

    assert (one.via, one.tag) == (A, "word")
    assert (other.via, other.tag) == ("v", "t")


def test_only_seeds_leave_roots():
    """A5: no referrer, no depth, and handed in, not found."""
    scope = bound_to("host")

    seeds = scope.admit([A, Link("https://b.example/", depth=1), Link("https://c.example/", via=A)])
    found = scope.admit(["https://d.example/", A + "1"], are_seeds=False)

    assert [type(answer) for answer in seeds] == [Task, Added, Added]
    assert [type(answer) for answer in found] == [Added, Task]
    assert scope.roots == {"a.example"}


@pytest.mark.parametrize(
    ("page", "origin", "joins"),
    [
        (lease(), "redirect", True),
        (lease(), "link", False),
        (lease(depth=1), "redirect", False),
        (lease(via="https://z.example/"), "redirect", False),
    ],
)
def test_a_seeds_redirect_target_joins_the_scope(page, origin, joins):
    """A5: a seed's, and a redirect's, and no other."""
    scope = bound_to("host")
    target = Link("https://b.example/", origin=origin)

    (answer,) = scope.admit([target], are_seeds=False, found_on=page)

    assert isinstance(answer, Task) is joins


def test_a_task_that_comes_back_is_scored_as_its_new_type():
    """G3: refresh 25 + depth."""
    score = admission().score_again(lease(depth=3), "refresh")

    assert (score.priority, score.breakdown.total) == (28.0, 28.0)


def test_valid_link_has_no_error():
    """Whatever the types allow, at the edges too."""
    links = [
        Link(A),
        Link(A, key="k" * 255, type="t" * 64, depth=999_999, priority=-1e308, bias=1e300),
        Link(A, base_priority=3, delay=86_400.0, known="raise", meta={"a": [None, True, 1.5, "é"]}),
        Link(A, via="v" * 8192, origin="o" * 255, tag="t" * 255, identity="i" * 65_536),
        Link(A, via="ü", tag="日本", key="ключ", type="тип"),
        Link(A, priority=True, delay=5, bias=-1),
    ]

    assert [link_error(link) for link in links] == [None] * len(links)


def test_a_million_is_as_deep_as_it_may_be():
    """The detail of a refusal promises: from 0 to 1,000,000."""
    assert link_error(Link(A, depth=1_000_000)) is None
    assert "1,000,000" in link_error(Link(A, depth=1_000_001))


@pytest.mark.parametrize("digits", [60, 400, 5000])
def test_a_huge_number_is_not_spelt_out(digits):
    """A detail is for people."""
    assert len(link_error(Link(A, depth=10**digits))) < 200
    assert len(link_error(Link(A, depth=-(10**digits)))) < 200


class Pages(DefaultScorer):
    """Scores links of a page by how many there are, and lets them gather."""

    gathers = True

    def score_page(self, batch, page):
        """As many parts as there are links."""
        return [explicit(-page.priority / len(batch)) for _ in batch]


def test_links_of_a_page_may_be_scored_by_their_page():
    """F10: and then add to what is known of theirs, unless the link says otherwise."""
    page = lease(priority=-6.0)
    asked = [Link(A + "1"), Link(A + "2", known="raise"), Link(A + "3", priority=5.0)]

    tasks = admission(scorer=Pages(Scoring())).admit(asked, are_seeds=False, found_on=page)

    assert [task.priority for task in tasks] == [3.0, 3.0, 5.0]
    assert [task.known for task in tasks] == ["gather", "raise", "keep"]
    assert admitted(Link(A), scorer=Pages(Scoring())).known == "keep"


def _about_news(link, url):
    return "focus" if "news" in url.text else "related" if "world" in url.text else "other"


def test_a_focused_crawl_refuses_all_else():
    """C9: explicit priorities too are put into their band."""
    asked = [Link(A + "news"), Link(A + "world", priority=5.0), Link(A + "golf")]

    focus, related, refused = admission(classify=_about_news).admit(asked)

    assert (focus.priority, related.priority) == (-5988.0, -3995.0)
    assert (refused.added, refused.reason) == (False, "off-focus")
    assert breakdown_of(related).terms == (("explicit", 5.0), ("focus", -4000.0))


def test_a_focused_crawl_may_park_all_else():
    """C9."""
    assert admitted(Link(A + "golf"), classify=_about_news, parks=True).priority == 5_000_000.0


def _broken(link, url):
    raise RuntimeError("no idea")


@pytest.mark.parametrize(
    ("classify", "fault"),
    [
        (_broken, "raised RuntimeError: no idea"),
        (lambda link, url: "Focus", "returned 'Focus'; return focus, related or other"),
        (lambda link, url: ["focus"], "returned ['focus']; return focus, related or other"),
    ],
)
@pytest.mark.parametrize("parks", [False, True])
def test_classifier_that_fails_refuses_its_link(classify, fault, parks):
    """C9, B4: `bad-link` with its name, so that an error does not look like a page off focus."""
    named = classifier_of(Focus(on=True), classify)

    (answer,) = admission(classify=named, parks=parks).admit([A])

    assert (answer.reason, answer.url) == ("bad-link", A)
    assert answer.detail.startswith("focus.classifier ")
    assert fault in answer.detail


def test_classifier_that_fails_leaves_pending_tasks_as_they_are():
    """C8, C9: as a scorer that fails; parking all tasks for an error would undo the order."""
    batch = [(Link(A), parse_url(A), "a.example", b"x" * 16)]

    assert admission(classify=_broken).rescore(batch) == [None]


def test_prices_are_thought_again_as_they_were_found():
    """C8: what is explicit stays so, unless the crawl is focused now."""
    plain, given = Link(A + "news", depth=2), Link(A + "news", priority=3.0)
    batch = [(link, parse_url(link.url), "a.example", b"x" * 16) for link in (plain, given)]

    now = admission().rescore(batch)
    focused = admission(classify=_about_news).rescore(batch)

    assert [one and one.priority for one in now] == [14.0, None]
    assert [one.priority for one in focused] == [-5986.0, -5997.0]


def test_a_scorer_that_breaks_prices_nothing():
    """C8: what waits keeps the priority it has."""

    class Broken:
        features = ()

        def score(self, batch):
            raise RuntimeError("no idea")

    batch = [(Link(A), parse_url(A), "a.example", b"x" * 16)]
    assert admission(scorer=Broken()).rescore(batch) == [None]


@pytest.mark.parametrize("known_by", [{"identity": "item 1"}, {"fingerprint": bytes(range(16))}])
def test_identity_without_a_url_is_known_as_done(known_by):
    """B3: under a key that no host has; no policy is about it."""
    (task,) = bound_to("host").admit([Link("", done=True, tag="t", meta={"a": 1}, **known_by)])

    assert isinstance(task, Task)
    assert task.fingerprint == known_by.get("fingerprint", fingerprint("item 1"))
    assert (task.url, task.key, task.done, task.tag) == ("", "(no-url)", True, "t")


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"url": "", "done": True}, "needs an identity or a fingerprint"),
        ({"url": A, "fingerprint": b"short"}, "must be 16 bytes"),
        ({"url": A, "fingerprint": "x" * 16}, "must be 16 bytes"),
        ({"url": A, "done": True, "known": "revisit"}, "keep or set"),
        ({"url": A, "done": 1}, "true or false"),
    ],
)
def test_link_that_cannot_be_known_so_is_refused(fields, fault):
    """B3: with the field and the fix."""
    (answer,) = admission().admit([Link(**fields)])

    assert (answer.added, answer.reason) == (False, "bad-link")
    assert fault in answer.detail


def test_link_without_a_url_is_refused_unless_it_is_done():
    """A2: as any text that is no URL."""
    (answer,) = admission().admit([Link("", identity="item 1")])

    assert answer.reason == "bad-url"


def test_link_may_bring_its_fingerprint():
    """A3: instead of that of its identity."""
    (task,) = admission().admit([Link(A, fingerprint=bytes(16), identity="x", done=True)])

    assert (task.fingerprint, task.url, task.done) == (bytes(16), A, True)
