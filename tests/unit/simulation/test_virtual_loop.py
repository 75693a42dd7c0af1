import pytest

from outrider.simulation.virtual_loop import Stage


async def sleeper(stage, log, name, *naps):
    """Sleeps, and says when it woke."""
    for nap in naps:
        await stage.sleep(nap)
        log.append((name, stage.elapsed()))


def test_sleepers_wake_in_the_order_of_their_instants():
    """Whoever is due first acts first, at exactly that instant."""
    stage, log = Stage(), []
    stage.enter(sleeper(stage, log, "a", 3.0, 3.0))
    stage.enter(sleeper(stage, log, "b", 2.0, 3.0))

    assert stage.play(until=100.0)
    assert log == [("b", 2.0), ("a", 3.0), ("b", 5.0), ("a", 6.0)]


def test_equal_instants_keep_the_order_of_asking():
    """So that a seed always repeats itself."""
    stage, log = Stage(), []
    for name in "abc":
        stage.enter(sleeper(stage, log, name, 1.0))
    stage.play(until=1.0)

    assert [name for name, _ in log] == ["a", "b", "c"]


def test_a_play_that_takes_too_long_is_stopped():
    """It says so, and nobody acts after the end."""
    stage, log = Stage(), []
    stage.enter(sleeper(stage, log, "a", 1.0, 60.0))

    assert not stage.play(until=30.0)
    assert log == [("a", 1.0)]
    stage.close()


def test_an_actor_may_bring_another():
    """It begins at the same instant."""
    stage, log = Stage(), []

    async def parent():
        await stage.sleep(5.0)
        stage.enter(sleeper(stage, log, "child", 0.0, 1.0))

    stage.enter(parent())
    stage.play(until=10.0)

    assert log == [("child", 5.0), ("child", 6.0)]


def test_what_an_actor_raises_is_heard():
    """A broken promise ends the play."""
    stage = Stage()

    async def breaker():
        await stage.sleep(1.0)
        raise ValueError("broken")

    stage.enter(breaker())
    with pytest.raises(ValueError, match="broken"):
        stage.play(until=10.0)
