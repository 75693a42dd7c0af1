import pytest

from outrider.simulation.virtual_loop import VirtualLoop


async def sleeper(loop, log, name, *naps):
    """Sleeps, and says when it woke."""
    for nap in naps:
        await loop.sleep(nap)
        log.append((name, loop.elapsed()))


def test_sleepers_wake_in_the_order_of_their_instants():
    """Whoever is due first acts first, at exactly that instant."""
    loop, log = VirtualLoop(), []
    loop.start(sleeper(loop, log, "a", 3.0, 3.0))
    loop.start(sleeper(loop, log, "b", 2.0, 3.0))

    assert loop.run(until=100.0)
    assert log == [("b", 2.0), ("a", 3.0), ("b", 5.0), ("a", 6.0)]


def test_equal_instants_keep_the_order_of_asking():
    """So that a seed always repeats itself."""
    loop, log = VirtualLoop(), []
    for name in "abc":
        loop.start(sleeper(loop, log, name, 1.0))
    loop.run(until=1.0)

    assert [name for name, _ in log] == ["a", "b", "c"]


def test_a_play_that_takes_too_long_is_stopped():
    """It says so, and nobody acts after the end."""
    loop, log = VirtualLoop(), []
    loop.start(sleeper(loop, log, "a", 1.0, 60.0))

    assert not loop.run(until=30.0)
    assert log == [("a", 1.0)]
    loop.close()


def test_an_actor_may_bring_another():
    """It begins at the same instant."""
    loop, log = VirtualLoop(), []

    async def parent():
        await loop.sleep(5.0)
        loop.start(sleeper(loop, log, "child", 0.0, 1.0))

    loop.start(parent())
    loop.run(until=10.0)

    assert log == [("child", 5.0), ("child", 6.0)]


def test_what_an_actor_raises_is_heard():
    """A broken promise ends the play."""
    loop = VirtualLoop()

    async def breaker():
        await loop.sleep(1.0)
        raise ValueError("broken")

    loop.start(breaker())
    with pytest.raises(ValueError, match="broken"):
        loop.run(until=10.0)
