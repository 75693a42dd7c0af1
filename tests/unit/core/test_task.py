import msgspec
import pytest

from outrider.core.policy.rules import QueueRules
from outrider.core.task import (
    DEFAULT_BIAS,
    DEFAULT_DEPTH,
    DEFAULT_TYPE,
    Lease,
    LeaseId,
    Link,
    PolitenessState,
    Task,
)
from outrider.errors import InvalidInput

TASK = Task("c", b"f" * 16, "https://a.example/1", "a.example", "nav", 0, 2, 3, 4.5, 3)


class Holder:
    """Whoever leases are given back to."""

    def __init__(self):
        self.released = []

    async def release(self, leases):
        """Remember them."""
        self.released += leases
        return set(leases)


def lease(token=9, store="s", task=TASK, holder=None):
    """A lease of the task above."""
    return Lease(store, 7, token, task, 1, "w", 60.0, 0, 0, QueueRules(), PolitenessState(), holder)


def test_link_that_gives_a_default_value_differs_from_one_that_gives_none():
    """B3: a revisit keeps what its link leaves out; in all else the two are the same."""
    bare = Link("https://a.example/")
    said = Link("https://a.example/", type="page", depth=0, bias=0.0)

    assert bare == said
    assert repr(bare) == repr(said)
    assert (bare.type, bare.depth, bare.depth + 1, bare.bias) == ("page", 0, 1, 0.0)
    assert {0: "found"}[bare.depth] == "found"
    for one, is_said in ((bare, False), (said, True)):
        encoded = msgspec.msgpack.encode(one)
        again = msgspec.msgpack.decode(encoded, type=Link)
        moved = msgspec.structs.replace(again, known="revisit")
        unsaid = (
            moved.type is DEFAULT_TYPE,
            moved.depth is DEFAULT_DEPTH,
            moved.bias is DEFAULT_BIAS,
        )
        assert unsaid == (not is_said,) * 3
        assert again == one


def test_a_lease_tells_of_its_task():
    """What a worker asks for."""
    about = msgspec.structs.replace(TASK, via="v", tag="t", meta=b'{"x":1}')
    lent = lease(task=about)

    assert (lent.crawl, lent.url, lent.key) == ("c", "https://a.example/1", "a.example")
    assert (lent.type, lent.lane, lent.depth, lent.priority) == ("nav", 0, 2, 4.5)
    assert (lent.cost, lent.fingerprint, lent.origin) == (3, b"f" * 16, "opportunistic")
    assert (lent.via, lent.tag, lent.meta) == ("v", "t", {"x": 1})
    assert lent.id == LeaseId("c", 7, 9)


def test_meta_is_a_fresh_copy_at_every_reading():
    """Nobody changes what another reads."""
    lent = lease(task=msgspec.structs.replace(TASK, meta=b'{"x":[]}'))
    lent.meta["x"].append(1)

    assert lent.meta == {"x": []}
    assert lease().meta == {}


def test_leases_are_equal_if_store_task_and_token_are():
    """H1: and work in sets."""
    same = lease(holder=Holder())
    assert lease() == same
    assert (lease() != same) is False
    assert len({lease(), lease(), lease(token=8), lease(store="other")}) == 3
    assert lease() != lease().id


async def test_a_lease_gives_itself_back_when_the_block_fails():
    """Once, to whoever holds it."""
    holder = Holder()
    lent = lease(holder=holder)

    async def work():
        async with lent as same:
            assert same is lent
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await work()

    assert holder.released == [lent]


async def test_lease_is_not_released_when_the_block_succeeds():
    """Nobody is told anything."""
    holder = Holder()

    async with lease(holder=holder):
        pass

    assert holder.released == []


async def test_lease_without_holder_releases_nothing():
    """One that crossed a wire, say: the error is still the caller's."""
    with pytest.raises(RuntimeError):
        async with lease():
            raise RuntimeError


def test_a_link_takes_its_url_first_and_the_rest_by_name():
    """A stable name."""
    assert Link("https://a.example/") == Link(url="https://a.example/")
    with pytest.raises(TypeError):
        Link("https://a.example/", "key")


class BlockingHolder:
    """Whoever leases are given back to where nothing is awaited."""

    def __init__(self):
        self.released = []

    def release(self, leases):
        """Remember them."""
        self.released += leases
        return set(leases)


def test_a_lease_of_a_blocking_frontier_gives_itself_back():
    """R4: when the block fails, and only then."""
    holder = BlockingHolder()
    lent = lease(holder=holder)

    with lent as same:
        assert same is lent
    assert holder.released == []
    with pytest.raises(RuntimeError), lent:
        raise RuntimeError

    assert holder.released == [lent]


async def test_a_lease_of_a_blocking_frontier_may_be_used_on_a_loop():
    """R4: its holder answers at once."""
    holder = BlockingHolder()
    lent = lease(holder=holder)

    with pytest.raises(RuntimeError):
        async with lent:
            raise RuntimeError

    assert holder.released == [lent]


@pytest.mark.parametrize("holder", [None, Holder()])
def test_a_lease_of_an_async_frontier_wants_async_with(holder):
    """The caller's fault, said before the work begins."""
    with pytest.raises(InvalidInput, match="async with"), lease(holder=holder):
        pass
