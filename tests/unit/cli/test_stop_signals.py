"""Stop requests are counted and never lost, whatever the command is doing (J4)."""

import asyncio
import os
import signal

import pytest
import typer

from outrider.cli.stop_signals import SIGNALS, run_stoppable
from outrider.errors import StoreUnavailable


class Stops:
    """Counts how often an executor was told to stop."""

    count = 0

    def __call__(self):
        """Once more."""
        self.count += 1


@pytest.fixture(autouse=True)
def _restored():
    """What the signals did before."""
    before = {one: signal.getsignal(one) for one in SIGNALS}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


async def forever():
    """What is cut short only by a cancellation."""
    await asyncio.get_running_loop().create_future()


async def code_of(work):
    """The exit code of a command."""
    with pytest.raises(typer.Exit) as left:
        await run_stoppable(work)
    return left.value.exit_code


@pytest.mark.parametrize("number", SIGNALS)
async def test_signal_before_the_executor_is_there_cancels_the_command(number):
    """While a store is opened, connected to or taken over."""

    async def work(_signals):
        os.kill(os.getpid(), number)
        await forever()

    assert await code_of(work) == 130


async def test_request_after_the_end_of_a_stopped_command_does_not_kill_it():
    """Its exit code stays 130."""

    async def work(signals):
        signals.request()
        await forever()

    assert await code_of(work) == 130
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)


async def test_request_survives_a_swallowed_cancellation():
    """The executor hears of it as soon as it is there."""
    stop = Stops()

    async def work(signals):
        signals.request()
        try:
            await forever()
        except asyncio.CancelledError:
            signals.attach(stop)
        return "drained"

    assert (await run_stoppable(work), stop.count) == ("drained", 1)


async def test_executor_gets_each_request():
    """The first drains, the second ends it at once, a third ends the command."""
    stop = Stops()

    async def work(signals):
        signals.attach(stop)
        signals.request()
        signals.request()
        await asyncio.sleep(0)
        assert stop.count == 2
        signals.request()
        await forever()

    assert await code_of(work) == 130


async def test_first_request_after_the_run_leaves_the_report_alone():
    """A second one cuts it short."""

    async def work(signals):
        signals.attach(Stops())
        signals.mark_ended()
        signals.request()
        await asyncio.sleep(0)
        signals.request()
        await forever()

    assert await code_of(work) == 130


async def test_unavailable_store_at_a_requested_end_is_noted(capsys):
    """The exit code says that it was stopped, a line why nothing is told of the crawl."""

    async def work(signals):
        signals.attach(Stops())
        signals.request()
        raise StoreUnavailable("no answer came")

    assert await code_of(work) == 130
    assert "no answer came" in capsys.readouterr().err


async def test_without_a_request_everything_passes():
    """A cancellation from elsewhere, and an error, are not taken for a request."""

    async def fail(_signals):
        raise StoreUnavailable("no answer came")

    with pytest.raises(StoreUnavailable):
        await run_stoppable(fail)
    task = asyncio.create_task(run_stoppable(lambda _signals: forever()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
