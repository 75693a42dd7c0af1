from math import isfinite

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from outrider.core.admission import candidate_of
from outrider.core.policy.score import DefaultScorer, FifoScorer
from outrider.core.policy.scorers import scorer_of
from outrider.core.policy.weights import BONUSES, TYPE_WEIGHTS, Scoring, setting_of
from outrider.core.signals import Cluster, Prediction, Signals
from outrider.core.task import Link, Task
from outrider.core.url import fingerprint, parse_url

A = "https://a.example/news/1"
URL = parse_url(A)
MARK = fingerprint(URL.identity)
NOW = 1_000_000_000

numbers = st.floats(-1e9, 1e9)
weights = st.floats(0, 1e6)
metas = st.fixed_dictionaries(
    {},
    optional={
        "knowledge_reuse": st.floats() | st.integers() | st.text() | st.none(),
        "estimated_cost_ms": st.floats() | st.integers(-1000, 1000) | st.booleans(),
    },
)
origins = st.sampled_from([None, "sitemap", "hub-seed", "validated-hub", "link-discovery", "x"])
links = st.builds(
    lambda **fields: Link(A, **fields),
    type=st.sampled_from([*TYPE_WEIGHTS, "page", "anything"]),
    depth=st.integers(0, 100),
    base_priority=st.none() | numbers,
    bias=numbers | st.just(0.0),
    origin=origins,
    meta=metas,
)
scorings = st.builds(
    Scoring,
    weights=st.dictionaries(st.sampled_from([*TYPE_WEIGHTS]), numbers, max_size=3),
    bonuses=st.dictionaries(st.sampled_from([*BONUSES]), weights, max_size=5),
    base_weight=weights,
    gap_weight=weights,
    reuse_weight=weights,
    boost_factor=weights,
    boost_most=weights,
    gap_driven=st.booleans(),
    reuse=st.booleans(),
    clustering=st.booleans(),
    cost_aware=st.booleans(),
)


def signals_of(predicted=(0.9, 0.5), problems=8, target="a.example", how=None):
    """A prediction for the page, and a cluster of so many problems."""
    signals = Signals(how)
    if predicted:
        signals.set_prediction(MARK, Prediction(A, *predicted))
    if problems:
        cluster = Cluster("missing-hub", "", target, ((NOW, problems),))
        signals.set_cluster("one", cluster, NOW)
    return signals


def candidate(link):
    """As admission asks."""
    return link, URL, "a.example", MARK


def scores(scorer, *asked):
    """One score per link."""
    return scorer.score([candidate(link) for link in asked])


def scored(link, scoring=None, signals=None):
    """One score."""
    return scores(DefaultScorer(scoring or Scoring(), signals), link)[0]


def terms(score):
    """What it is made of."""
    return dict(score.breakdown.terms)


class TestByHand:
    """Examples that can be checked with a pencil (seed 000)."""

    @pytest.mark.parametrize(
        ("kind", "depth", "expected"),
        [
            ("article", 0, 0.0),
            ("article", 3, 3.0),
            ("hub-seed", 1, 5.0),
            ("history", 0, 6.0),
            ("nav", 2, 12.0),
            ("refresh", 0, 25.0),
            ("page", 0, 12.0),
        ],
    )
    def test_the_base_is_type_weight_and_depth(self, kind, depth, expected):
        """F1: nothing of the clock is in it."""
        score = scored(Link(A, type=kind, depth=depth))

        assert (score.priority, score.breakdown.source) == (expected, "base")

    @pytest.mark.parametrize(
        ("origin", "bonus"),
        [
            ("intelligent-seed", 20),
            ("adaptive-seed", 20),
            ("hub-seed", 20),
            ("sitemap", 10),
            ("validated-hub", 8),
            ("link-discovery", 0),
            ("never heard of", 0),
            (None, 0),
        ],
    )
    def test_discovery_subtracts(self, origin, bonus):
        """F3: so a page from a sitemap comes sooner."""
        score = scored(Link(A, type="nav", origin=origin))

        assert score.priority == 10 - bonus
        assert score.breakdown.source == ("discovery" if bonus else "base")

    def test_everything_at_once(self):
        """F2: (12 + 2 + 1)·1 − 10 − min(9 + 2.5, 15) − log2(8)·2.5 − 0.5·8 = −18, and a tenth."""
        link = Link(
            A,
            depth=2,
            bias=1.0,
            origin="sitemap",
            meta={"knowledge_reuse": 0.5, "estimated_cost_ms": 50},
        )

        score = scored(link, Scoring(cost_aware=True), signals_of())

        assert terms(score) == {
            "type": 12.0,
            "depth": 2.0,
            "bias": 1.0,
            "discovery": -10.0,
            "gap": -11.5,
            "cluster": -7.5,
            "reuse": -4.0,
            "cost": pytest.approx(-1.8),
        }
        assert score.priority == pytest.approx(-19.8)
        assert score.breakdown.source == "cluster"

    def test_a_dear_visit_waits_longer_below_zero_too(self):
        """F7: of the magnitude; the seed's own formula would make it sooner."""
        dear = Link(A, bias=-112.0, meta={"estimated_cost_ms": 501})

        assert scored(dear, Scoring(cost_aware=True)).priority == pytest.approx(-90.0)
        assert scored(dear).priority == -100.0

    @pytest.mark.parametrize("cost", [100, 250, 500])
    def test_a_visit_of_usual_cost_is_left_alone(self, cost):
        """F7: below 100 and above 500, not at them."""
        link = Link(A, meta={"estimated_cost_ms": cost})

        assert scored(link, Scoring(cost_aware=True)).priority == 12.0

    def test_a_gap_is_capped_and_then_weighed(self):
        """F4: at most 15, times the weight."""
        sure = signals_of(predicted=(1.0, 1.0), problems=0)
        most = Scoring(bonuses={"gap-prediction": 6.0}, gap_weight=2.0)

        assert scored(Link(A), None, sure).priority == 12 - 15
        assert scored(Link(A), most, sure).priority == 12 - 12

    def test_the_boost_is_logarithmic_and_capped(self):
        """F5."""
        for count, boost in ((1, 0.0), (2, 2.5), (8, 7.5), (64, 15.0), (1000, 20.0)):
            signals = signals_of(predicted=None, problems=count)
            assert scored(Link(A), None, signals).priority == 12 - boost

    def test_configured_weights_are_used(self):
        """F1: the seed ignored them."""
        how = Scoring(weights={"nav": 1.0, "default": 3.0}, base_weight=2.0)

        assert scored(Link(A, type="nav", depth=4), how).priority == 10.0
        assert scored(Link(A, depth=4), how).priority == 14.0

    def test_a_base_of_ones_own_replaces_type_and_depth(self):
        """F8: bonuses go on top."""
        link = Link(A, base_priority=5.0, depth=9, bias=0.5, origin="sitemap")

        assert terms(scored(link)) == {"base_priority": 5.0, "bias": 0.5, "discovery": -10.0}

    @pytest.mark.parametrize("switch", ["gap_driven", "clustering", "reuse"])
    def test_a_switch_turns_its_term_off(self, switch):
        """N4."""
        link = Link(A, meta={"knowledge_reuse": 1.0})
        on = terms(scored(link, None, signals_of()))
        off = terms(scored(link, Scoring(**{switch: False}), signals_of()))

        gone = {"gap_driven": "gap", "clustering": "cluster", "reuse": "reuse"}[switch]
        assert on.keys() - off.keys() == {gone}


class TestProperties:
    """Whatever the weights, the signals and the link."""

    @given(st.lists(links), scorings)
    def test_every_breakdown_sums_to_its_score(self, asked, how):
        """F2."""
        for scorer in (DefaultScorer(how, signals_of(how=how.problems)), FifoScorer()):
            for score in scores(scorer, *asked):
                assert score.breakdown.total == score.priority
                assert isfinite(score.priority)

    @given(st.lists(links, max_size=8), scorings)
    def test_a_score_does_not_depend_on_its_batch(self, asked, how):
        """F9: alone, in a batch, or asked for the second time."""
        scorer = DefaultScorer(how, signals_of(how=how.problems))
        together = scores(scorer, *asked)

        assert together == [scored(link, how, signals_of(how=how.problems)) for link in asked]
        assert together == scores(scorer, *asked)

    @given(links, scorings)
    def test_a_signal_never_makes_a_task_wait(self, link, how):
        """F2: with a prediction, with problems, with both; for any sign of the score."""
        plain = scored(link, how, Signals(how.problems)).priority
        for predicted, problems in (((0.7, 0.1), 0), (None, 9), ((0.7, 0.1), 9)):
            signals = signals_of(predicted, problems, how=how.problems)
            assert scored(link, how, signals).priority <= plain

    @given(links, scorings)
    def test_a_discovery_never_makes_a_task_wait(self, link, how):
        """F3: longer than it would without any bonus."""
        without = replace(how, bonuses=dict.fromkeys(BONUSES, 0.0))

        assert scored(link, how).priority <= scored(link, without).priority

    @given(links, scorings, st.floats(0, 1))
    def test_reuse_never_makes_a_task_wait(self, link, how, reused):
        """F6."""
        fields = {name: getattr(link, name) for name in link.__struct_fields__}
        meta = {name: value for name, value in link.meta.items() if name != "knowledge_reuse"}
        without = Link(**{**fields, "meta": meta})
        with_it = Link(**{**fields, "meta": {**meta, "knowledge_reuse": reused}})

        assert scored(with_it, how).priority <= scored(without, how).priority

    @given(links, scorings)
    def test_a_larger_bonus_never_makes_a_task_wait(self, link, how):
        """F2: weights ≥ 0 only ever help."""
        more = Scoring(
            **{
                name: getattr(how, name)
                for name in how.__struct_fields__
                if name not in ("bonuses", "gap_weight", "reuse_weight", "boost_factor")
            },
            bonuses={name: how.bonuses.get(name, BONUSES[name]) * 2 for name in BONUSES},
            gap_weight=how.gap_weight * 2,
            reuse_weight=how.reuse_weight * 2,
            boost_factor=how.boost_factor * 2,
        )
        now, then = signals_of(how=how.problems), signals_of(how=more.problems)

        assert scored(link, more, then).priority <= scored(link, how, now).priority


@given(st.lists(links, max_size=6), scorings, st.sampled_from(["a.example", "/news", "x.example"]))
def test_what_is_thought_again_quickly_is_what_is_thought_at_length(asked, how, target):
    """C8: of tasks as they were added, whatever they brought along and whatever concerns them."""
    read = msgspec.json.decode
    asked = [replace(link, meta=read(msgspec.json.encode(link.meta))) for link in asked]
    scorer = DefaultScorer(how, signals_of(target=target, how=how.problems))
    tasks = [_task(link, score) for link, score in zip(asked, scores(scorer, *asked), strict=True)]
    at_length = scorer.score([candidate_of(task) for task in tasks])

    for _ in range(2):  # the second time it remembers
        for quick, long in zip(scorer.score_plain(tasks), at_length, strict=True):
            assert quick in (None, long)
    assert at_length == scores(scorer, *asked)


def _task(link, score):
    given = {"type": link.type, "lane": 0, "depth": link.depth, "precedence": 1, "cost": 1}
    meta = msgspec.json.encode(link.meta) if link.meta else b""
    origin = link.origin or "opportunistic"
    return Task(
        "c", MARK, A, "a.example", **given, priority=score.priority, breakdown=score.breakdown,
        origin=origin, meta=meta,
    )  # fmt: skip


def test_what_a_scorer_remembers_is_bounded():
    """Types are the caller's text: any number of them gives the right answer."""
    scorer = DefaultScorer(Scoring())
    asked = [Link(A, type=f"type {n}", depth=n % 5) for n in range(10_000)]

    assert [score.priority for score in scores(scorer, *asked)] == [
        12.0 + n % 5 for n in range(10_000)
    ]
    assert len(scorer._plain) <= 4096


def test_a_scorer_is_found_by_name():
    """Or is the object it is."""
    mine = FifoScorer()

    assert isinstance(scorer_of(Scoring()), DefaultScorer)
    assert isinstance(scorer_of(Scoring("fifo")), FifoScorer)
    assert scorer_of(Scoring(mine)) is mine


def test_an_unknown_name_is_refused_with_the_known_ones():
    """The caller's fault."""
    with pytest.raises(ValueError, match=r"'lifo'.*default, fifo"):
        scorer_of(Scoring("lifo"))


def test_every_term_knows_its_setting():
    """O4: where a weight came from can be looked up."""
    own = Scoring(weights={"strange": 1.0}, bonuses={"tip": 3.0, "hub-seed": 4.0})

    assert setting_of("type", "nav", "", Scoring()) == "scoring.weights.nav"
    assert setting_of("type", "strange", "", Scoring()) == "scoring.weights.default"
    assert setting_of("type", "strange", "", own) == "scoring.weights.strange"
    assert setting_of("discovery", "", "hub-seed", Scoring()) == "scoring.bonuses.adaptive-seed"
    assert setting_of("discovery", "", "hub-seed", own) == "scoring.bonuses.hub-seed"
    assert setting_of("discovery", "", "tip", own) == "scoring.bonuses.tip"
    assert setting_of("gap", "nav", "", own) == "scoring.gap_weight"
    assert setting_of("bias", "nav", "", own) is None


def test_origin_with_a_bonus_of_its_own_earns_it():
    """F3: user-defined origins; the cap of predictions is no origin's bonus."""
    scorer = DefaultScorer(Scoring(bonuses={"tip": 3.0, "gap-prediction": 9.0}))
    tip, gap, other = scores(
        scorer,
        Link("https://a.example/1", origin="tip"),
        Link("https://a.example/2", origin="gap-prediction"),
        Link("https://a.example/3", origin="rumour"),
    )

    assert [tip.priority, gap.priority, other.priority] == [9.0, 12.0, 12.0]
