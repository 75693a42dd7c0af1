"""The scorers beside the default one, as pure objects (F10)."""

from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.breakdown import Breakdown
from outrider.core.policy.learning import LearningScorer, Tallies
from outrider.core.policy.rules import QueueRules
from outrider.core.policy.scorers import (
    SCALE,
    SCORERS,
    BreadthFirstScorer,
    DepthFirstScorer,
    LargestSitesScorer,
    OpicScorer,
    cash_of,
    scorer_of,
)
from outrider.core.policy.url_groups import groups_of, lead_groups_of, place_of
from outrider.core.policy.weights import Scoring
from outrider.core.signals import Signals
from outrider.core.task import Lease, Link, PolitenessState
from outrider.core.url import Url, fingerprint
from outrider.testing.builders import task

BESIDE = ("fifo", "breadth-first", "depth-first", "opic", "largest-sites-first", "learning")

numbers = st.floats(-1e6, 1e6)
links = st.builds(
    lambda place, **fields: Link(f"https://h{place % 3}.example/{place}", **fields),
    st.integers(0, 40),
    depth=st.integers(0, 9),
    base_priority=st.none() | numbers,
    bias=numbers | st.just(0.0),
    meta=st.sampled_from([{}, {"tag_path": "ul>li>a"}, {"tag_path": 7}]),
)


def candidate(url, **fields):
    """A link on its way to a scorer."""
    link = url if isinstance(url, Link) else Link(url, **fields)
    host = link.url.split("/")[2]
    return link, Url(link.url, link.url, host), host, fingerprint(link.url)


def lease(url="https://a.example/", *, score=None, **fields):
    """A lent task, scored so."""
    if score is not None:
        fields |= {"priority": score.priority, "breakdown": score.breakdown}
    about = task(url, **fields)
    return Lease("s", 1, 1, about, 1, "w", 60.0, 0, 0, QueueRules(), PolitenessState())


def priorities(scorer, *asked, page=None):
    """What the scorer says of each, as numbers."""
    batch = [candidate(one) for one in asked]
    scores = scorer.score(batch) if page is None else scorer.score_page(batch, page)
    return [score.priority for score in scores]


@pytest.mark.parametrize("name", BESIDE)
@given(asked=st.lists(links, max_size=6))
def test_a_scorers_terms_sum_to_its_score_in_a_batch_or_alone(name, asked):
    """F2, F9: and who asks twice hears the same."""
    scorer = SCORERS[name](Scoring(), Signals())
    together = scorer.score([candidate(one) for one in asked])
    alone = [scorer.score([candidate(one)])[0] for one in asked]
    assert together == alone
    assert all(score.breakdown.total == score.priority for score in together)


@pytest.mark.parametrize("name", BESIDE)
def test_what_the_link_asks_is_honoured_by_every_scorer(name):
    """F8: `base_priority` takes the base's place, `bias` is added."""
    scorer = SCORERS[name](Scoring(exploration=0.0), Signals())
    given_, plain, biased = priorities(
        scorer,
        Link("https://a.example/", depth=2, base_priority=7.0, bias=0.5),
        Link("https://a.example/", depth=2),
        Link("https://a.example/", depth=2, bias=-3.0),
    )
    assert (given_, biased) == (7.5, plain - 3.0)


def test_type_alone_orders_under_the_scorer_of_types():
    """F10, 003: search and pagination 1, product 2, others as usual; what is given wins."""
    links = [
        Link("https://a.example/", type=kind, depth=depth, origin="sitemap")
        for kind in ("search", "pagination", "product", "article", "page")
        for depth in (0, 50)
    ]
    plain = SCORERS["type"](Scoring(scorer="type"), Signals())
    own = SCORERS["type"](Scoring(scorer="type", weights={"product": 0.5}), Signals())

    assert priorities(plain, *links) == [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 0.0, 0.0, 12.0, 12.0]
    assert priorities(own, *links[4:6]) == [0.5, 0.5]


def test_an_unknown_scorer_is_refused_with_the_known_ones():
    """The message names what can be named."""
    with pytest.raises(ValueError, match=r"breadth-first.*learning"):
        scorer_of(Scoring("deepest"))


def test_breadth_first_and_depth_first_are_each_others_reverse():
    """Nearer to the seed is sooner, or later."""
    asked = [Link("https://a.example/", depth=depth) for depth in (0, 1, 5)]
    assert priorities(BreadthFirstScorer(), *asked) == [0, 1, 5]
    assert priorities(DepthFirstScorer(), *asked) == [0, -1, -5]


class TestOpic:
    """Cash goes from pages to their links."""

    def test_a_seed_has_one_and_what_comes_without_a_page_nothing(self):
        """A page that comes back gathers anew."""
        asked = [Link("https://a.example/"), Link("https://a.example/b", depth=2)]
        assert priorities(OpicScorer(), *asked) == [-SCALE, 0.0]

    def test_a_page_shares_its_cash_equally_among_its_links(self):
        """All of it, with a little of its own, and none to itself."""
        (seed,) = OpicScorer().score([candidate("https://a.example/")])
        page = lease(score=seed)
        found = [f"https://a.example/{name}" for name in ("", "b", "c", "d", "e")]
        shares = priorities(OpicScorer(), *map(Link, found), page=page)
        assert shares == pytest.approx([0.0] + [-1.01 * SCALE / 4] * 4)

    def test_a_page_that_only_links_to_itself_gives_nothing(self):
        """And divides by nothing."""
        page = lease(score=OpicScorer().score([candidate("https://a.example/")])[0])
        assert priorities(OpicScorer(), Link("https://a.example/"), page=page) == [0.0]

    def test_what_was_gathered_is_shared_too_and_a_bias_is_not(self):
        """The store added to the priority; the breakdown tells what is cash."""
        (score,) = OpicScorer().score([candidate(Link("https://a.example/", bias=-40.0))])
        about = lease(score=score).about
        richer = msgspec.structs.replace(about, priority=score.priority - 0.5 * SCALE)
        assert (cash_of(about), cash_of(richer)) == (1.0, pytest.approx(1.5))

    def test_explicit_priority_counts_as_cash_of_a_seed(self):
        """Explicit ones and those of another scorer are worth a seed's."""
        explicit = lease(priority=-1000.0).about
        foreign = lease(priority=13.0, breakdown=Breakdown("base", (("type", 13.0),))).about
        assert cash_of(explicit) == cash_of(foreign) == 1.0

    def test_cash_is_never_below_zero(self):
        """Whatever was made of the priority since."""
        (score,) = OpicScorer().score([candidate("https://a.example/")])
        about = msgspec.structs.replace(lease(score=score).about, priority=50.0)
        assert cash_of(about) == 0.0


class TestLargestSites:
    """Queues to which many links lead are sooner."""

    def test_the_more_links_of_a_site_were_found_the_sooner_it_is(self):
        """By doublings; links that were only asked about do not count."""
        scorer = LargestSitesScorer()
        many = [Link(f"https://big.example/{number}") for number in range(9)]
        few = [Link("https://small.example/")]
        assert priorities(scorer, *many, *few) == [0] * 10
        assert priorities(scorer, *many, *few, page=lease()) == [-4] * 9 + [-1]
        assert priorities(scorer, *many, *few) == [-4] * 9 + [-1]

    def test_only_so_many_sites_are_remembered(self):
        """The one whose links came last longest ago is forgotten."""
        scorer = LargestSitesScorer(most=2)
        for host in ("a", "b", "a", "c"):
            priorities(scorer, Link(f"https://{host}.example/"), page=lease())
        asked = [Link(f"https://{host}.example/") for host in "abc"]
        assert priorities(scorer, *asked) == [-2, 0, -1]


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("", "/"),
        ("about", "/*"),
        ("tag/python", "/tag/*"),
        ("library/asyncio-task.html", "/library/*.html"),
        ("p77", "/#"),
        ("deadbeefcafe.json", "/#.json"),
        ("news/2024/05/17/what-came-of-it.HTML", "/news/#/#/#/*.html"),
        ("shop/item-17/view.php?id=3&ref=a&id=4", "/shop/item-#/*.php?id&ref"),
        ("x/550e8400-e29b-41d4-a716-446655440000/y/z/", "/x/#/*/*/"),
        ("DEADBEEFCAFE/9", "/#/#"),
        ("how-to-bake-a-cake/comments/", "/*/comments/"),
        ("averyveryveryverylongsegment/a", "/*/*"),
        (".htaccess/.php", "/.htaccess/.php"),
        ("a/b/c/d/e/f/g/h/i", "/a/b/*/*/*/*/*"),
    ],
)
def test_the_shape_of_a_url_forgets_what_is_only_one_pages(path, shape):
    """Numbers, dates, identifiers and titles go; leading folders, extensions and names stay."""
    assert place_of(f"https://a.example/{path}") == ("a.example", shape)


@given(st.text(max_size=300), st.text(), st.text() | st.none() | st.integers())
def test_group_names_are_short_and_can_be_written(rest, origin, tag_path):
    """They are kept as notes: bounded, without NUL or lone surrogates but for the URL's own."""
    url = "https://a.example/" + rest.encode("ascii", "ignore").decode().replace("\0", "")
    for name in (*groups_of(url, origin, tag_path), *lead_groups_of(url)):
        assert len(name) <= 1024
        assert "\0" not in name
        name.encode()


class TestLearning:
    """Groups that brought rewards are sooner."""

    GOOD = "https://a.example/news/{}.html"
    BAD = "https://a.example/tags/{}.html"

    @staticmethod
    def scorer(exploration=0.0, **fields):
        """One that explores nothing, unless told."""
        return LearningScorer(Scoring(exploration=exploration), **fields)

    def teach(self, scorer, visits=10, **fields):
        """News are rewarded, tags are not."""
        for number in range(visits):
            scorer.reward(lease(self.GOOD.format(number), **fields), 1.0)
            scorer.reward(lease(self.BAD.format(number), **fields), 0.0)

    def test_what_is_like_rewarded_pages_is_sooner(self):
        """Of pages nobody saw: the good, then the unknown, then the bad."""
        scorer = self.scorer()
        self.teach(scorer)
        good, unknown, bad = priorities(
            scorer,
            Link(self.GOOD.format(77)),
            Link("https://b.example/shop/a.php"),
            Link(self.BAD.format(77)),
        )
        assert good < unknown < bad
        assert good < -0.9
        assert bad > -0.1

    def test_before_any_reward_all_are_equal_and_as_good_as_can_be(self):
        """So the tie decides: breadth first."""
        asked = [Link(self.GOOD.format(1)), Link("https://b.example/")]
        assert priorities(self.scorer(), *asked) == [-1.0, -1.0]

    def test_what_was_learnt_of_a_shape_helps_on_another_host(self):
        """Coarse groups speak where fine ones are silent."""
        scorer = self.scorer()
        self.teach(scorer)
        good, bad = priorities(
            scorer, Link("https://b.example/news/1.html"), Link("https://b.example/tags/1.html")
        )
        assert good < bad

    def test_the_place_of_the_anchor_tells_pages_of_one_shape_apart(self):
        """The tag path, when links carry it."""
        scorer, url = self.scorer(), "https://a.example/p/{}"
        for number in range(10):
            for path, value in (("main>a", 1.0), ("footer>a", 0.0)):
                meta = msgspec.json.encode({"tag_path": path})
                scorer.reward(lease(url.format(number), meta=meta), value)
        main, footer, none = priorities(
            scorer,
            Link(url.format(99), meta={"tag_path": "main>a"}),
            Link(url.format(99), meta={"tag_path": "footer>a"}),
            Link(url.format(99)),
        )
        assert main < none < footer

    def test_pages_that_lead_to_rewards_are_worth_half_of_them(self):
        """A listing brings nothing itself."""
        scorer = self.scorer()
        for number in range(20):
            scorer.reward(lease(f"https://a.example/list/?page={number}"), 0.0)
            scorer.reward(lease(f"https://a.example/other/?page={number}"), 0.0)
            page = f"https://a.example/list/?page={number}"
            scorer.reward(lease(self.GOOD.format(number), via=page), 1.0)
        item, listing, other = priorities(
            scorer,
            Link(self.GOOD.format(77)),
            Link("https://a.example/list/?page=77"),
            Link("https://a.example/other/?page=77"),
        )
        assert item < listing < other
        assert listing == pytest.approx(-0.5, abs=0.05)

    def test_a_share_of_links_is_tried_whatever_was_learnt(self):
        """Chosen by fingerprint: as good as the best, and always the same ones."""
        scorer = self.scorer(exploration=0.07)
        self.teach(scorer)
        batch = [candidate(self.BAD.format(number)) for number in range(4000)]
        tried = [dict(score.breakdown.terms).get("exploration") for score in scorer.score(batch)]
        best = [score.priority for score in scorer.score(batch) if score.priority == -1.0]
        assert len(best) == len(tried) - tried.count(None)
        assert 0.05 < len(best) / len(batch) < 0.09

    def test_errors_of_scores_make_it_stale_until_rescored(self):
        """Tasks that wait with a score of the first minute show how wrong such scores are."""
        scorer = self.scorer()
        (first,) = scorer.score([candidate(self.BAD.format(0))])
        seen = []
        for number in range(10):
            seen.append(scorer.is_stale)
            scorer.reward(lease(self.BAD.format(number), score=first), 0.0)
        assert (seen[0], scorer.is_stale) == (False, True)
        scorer.rescored()
        (now,) = scorer.score([candidate(self.BAD.format(0))])
        for number in range(10):
            scorer.reward(lease(self.BAD.format(number), score=now), 0.0)
        assert not scorer.is_stale

    def test_workers_who_hear_each_other_score_alike(self):
        """What one told and the others heard, with what was not told yet on top."""
        one, other = self.scorer(), self.scorer()
        self.teach(one)
        told = one.told()
        assert one.told() == {}
        other.reward(lease(self.GOOD.format(1)), 1.0)
        for group, (visits, reward) in told.items():
            other.hear(group, visits, reward)
            one.hear(group, visits, reward)
        one.reward(lease(self.GOOD.format(1)), 1.0)
        asked = [Link(self.GOOD.format(77)), Link(self.BAD.format(77))]
        assert priorities(one, *asked) == pytest.approx(priorities(other, *asked))

    @pytest.mark.parametrize(
        ("visits", "reward"), [(float("nan"), 1.0), (2.0, float("inf")), (0.0, 1.0), (-1.0, 1.0)]
    )
    def test_invalid_group_counts_are_ignored(self, visits, reward):
        """Notes are written by others."""
        scorer = self.scorer()
        scorer.hear("all", visits, reward)
        assert priorities(scorer, Link(self.GOOD.format(1))) == [-1.0]

    def test_rewards_of_any_size_give_finite_scores(self):
        """They are the user's."""
        scorer, dice = self.scorer(), Random(1)
        for number in range(50):
            scorer.reward(lease(self.GOOD.format(number)), dice.choice([1.7e308, -1.7e308]))
        (priority,) = priorities(scorer, Link(self.GOOD.format(77)))
        assert abs(priority) <= 1e12

    def test_punished_groups_are_later_than_unknown_ones(self):
        """A reward below zero is one too."""
        scorer = self.scorer()
        scorer.reward(lease(self.BAD.format(1)), -1.0)
        unknown, bad = priorities(scorer, Link("https://b.example/"), Link(self.BAD.format(2)))
        assert unknown < bad

    def test_only_so_many_groups_are_remembered(self):
        """The one that was met longest ago is forgotten."""
        tallies = Tallies(2)
        for group in ("a", "b", "a", "c"):
            tallies.add(group, 1.0, 0.5)
        assert [tallies.of(group) for group in "abc"] == [(2.0, 1.0), (0.0, 0.0), (1.0, 0.5)]
