import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.policy.score import DefaultScorer, FifoScorer, Scoring, scorer_of
from outrider.core.task import Link
from outrider.core.url import parse_url

A = "https://a.example/"
URL = parse_url(A)

numbers = st.floats(-1e12, 1e12)
links = st.builds(
    lambda **fields: Link(A, **fields),
    type=st.sampled_from(["article", "nav", "page", "refresh", "anything"]),
    depth=st.integers(0, 100),
    base_priority=st.none() | numbers,
    bias=numbers | st.just(0.0),
)


def scores(scorer, *asked):
    """One score per link."""
    return scorer.score([(link, URL) for link in asked])


@given(st.lists(links))
def test_every_breakdown_sums_to_its_score(asked):
    """F2: whatever the scorer and the link."""
    for scorer in (DefaultScorer({}), DefaultScorer({"nav": -7.5}), FifoScorer()):
        for score in scores(scorer, *asked):
            assert score.breakdown.total == score.priority


@given(st.lists(links, max_size=8))
def test_a_score_does_not_depend_on_its_batch(asked):
    """F9: alone, in a batch, or asked for the second time."""
    scorer = DefaultScorer({})
    together = scores(scorer, *asked)

    assert together == [scores(DefaultScorer({}), link)[0] for link in asked]
    assert together == scores(scorer, *asked)


def test_what_a_scorer_remembers_is_bounded():
    """Types are the caller's text: any number of them gives the right answer."""
    scorer = DefaultScorer({})
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
