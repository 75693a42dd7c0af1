"""Links to known tasks: which key they leave to admission (B3); the conformance suite has the rest.

A task that cannot be compared keeps its key, or leaves it to the URL that will be visited.
"""

import pytest

from outrider.core.breakdown import Breakdown
from outrider.core.known_link import complete_link
from outrider.core.policy.queue_key import host_key
from outrider.core.states import TaskState
from outrider.core.task import Link
from outrider.core.url import parse_url

OLD = "https://a.example/1"
NEW = "https://b.example/1"


class Known:
    """A task that is known, as its link described it."""

    def __init__(self, **fields):
        self.url, self.key, self.state, self.reason = OLD, "a.example", TaskState.DONE, None
        self.type, self.depth, self.origin, self.via, self.tag = "page", 0, "", None, None
        self.meta, self.text, self.breakdown = {}, "", Breakdown("base", ())
        self.__dict__.update(fields)


def key_of(link, function=host_key, **fields):
    """The key of the completed link; None: that of its URL."""
    return complete_link(link, Known(**fields), url=parse_url(link.url), key=function).key


def failing(_url):
    """A user's function."""
    raise RuntimeError("no idea")


@pytest.mark.parametrize("state", ["done", "dead", "dropped"])
def test_key_follows_the_url_that_a_revisit_brings(state):
    """A4, E1: politeness belongs to the key, so visits of a host have its key."""
    assert key_of(Link(NEW, known="revisit"), state=TaskState(state)) is None
    assert key_of(Link(OLD, known="revisit"), state=TaskState(state)) == "a.example"


@pytest.mark.parametrize("known", ["raise", "revisit"])
def test_key_follows_the_url_that_admits_a_forgotten_task(known):
    """C10."""
    fields = {"state": TaskState.DROPPED, "reason": "forgotten"}
    assert key_of(Link(NEW, known=known), **fields) is None


@pytest.mark.parametrize(
    ("known", "state"),
    [("raise", "pending"), ("raise", "done"), ("revisit", "pending"), ("revisit", "leased")],
)
def test_key_stays_if_the_task_keeps_its_url(known, state):
    """B3: on a cluster, another key would be another task."""
    assert key_of(Link(NEW, known=known), state=TaskState(state)) == "a.example"


def test_key_that_was_given_stays():
    """A4: it does not follow from the task's URL; one of the link itself wins."""
    assert key_of(Link(NEW, known="revisit"), key="mine") == "mine"
    assert key_of(Link(NEW, known="revisit", key="own")) == "own"


def test_key_of_a_url_that_cannot_be_read_any_more_stays():
    """A4: nothing says that it followed from the URL."""
    old = f"https://a.example/{'x' * 9000}"
    assert key_of(Link(NEW, known="revisit"), url=old) == "a.example"


def test_key_function_that_raises_leaves_the_key_to_admission():
    """B4: which refuses the link with what was raised, if it does so again."""
    assert key_of(Link(NEW, known="revisit"), failing) is None
