import asyncio
import threading

import pytest

from outrider import Done, Failed, Frontier
from outrider.errors import InvalidInput
from outrider.executor.handlers import Handlers
from outrider.executor.visit import Visit


@pytest.fixture
async def visit():
    """A visit of a real lease."""
    async with Frontier.open("memory://") as frontier:
        await frontier.add(["https://a.example/"])
        (lease,) = await frontier.claim(1)
        yield Visit(lease)


async def fetched(visit):
    """A handler as it should be."""
    return Done(200)


async def test_an_async_handler_is_awaited(visit):
    """J1."""
    assert await Handlers(fetched).outcome_of(visit) == Done(200)


async def test_a_plain_function_runs_beside_the_loop(visit):
    """J1: in a thread, so that it may block."""
    threads = []

    def handle(visit):
        threads.append(threading.current_thread())
        return Done(204)

    handlers = Handlers(handle)

    assert await handlers.outcome_of(visit) == Done(204)
    assert threads[0] is not threading.main_thread()
    handlers.close()


async def test_an_object_with_an_async_call_is_a_handler(visit):
    """A fetcher is one."""

    class Fetcher:
        async def __call__(self, visit):
            return Done(201)

    assert await Handlers(Fetcher()).outcome_of(visit) == Done(201)


async def test_the_type_chooses_the_handler(visit):
    """J1: by type, `*` for the rest; a type nobody handles fails with its name."""

    async def other(visit):
        return Done(299)

    assert await Handlers({"page": fetched, "*": other}).outcome_of(visit) == Done(200)
    assert await Handlers({"article": fetched, "*": other}).outcome_of(visit) == Done(299)
    outcome = await Handlers({"article": fetched}).outcome_of(visit)
    assert outcome == Failed("handler: none for type 'page'")


@pytest.mark.parametrize("rubbish", [None, 200, "done", Done, (Done(200), []), Done(status="x")])
async def test_rubbish_is_a_failure(visit, rubbish):
    """J6: what is no outcome becomes one."""

    async def handle(visit):
        return rubbish

    outcome = await Handlers(handle).outcome_of(visit)

    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("handler: ")


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration(), KeyError("x"), SystemExit(3)])
async def test_raising_in_a_thread_is_a_failure(visit, error):
    """J6: even leaving does not leave; the thread is used again."""

    def handle(visit):
        raise error

    handlers = Handlers(handle)
    if isinstance(error, SystemExit):
        with pytest.raises(SystemExit):  # the person's wish to end is passed on
            await handlers.outcome_of(visit)
    else:
        assert isinstance(await handlers.outcome_of(visit), Failed)
    handlers.close()


async def test_raising_in_a_coroutine_is_a_failure(visit):
    """J6."""

    async def handle(visit):
        raise ValueError("no")

    assert await Handlers(handle).outcome_of(visit) == Failed("handler: ValueError: no")


async def test_a_hung_thread_is_given_up_and_others_go_on(visit):
    """J6: a cancelled call leaves its thread behind; the next one gets another."""
    gate = threading.Event()
    handlers = Handlers({"page": lambda visit: gate.wait() and Done(200)})
    hung = asyncio.ensure_future(handlers.outcome_of(visit))
    await asyncio.sleep(0)
    hung.cancel()

    with pytest.raises(asyncio.CancelledError):
        await hung
    assert handlers._threads.abandoned == 1

    gate.set()
    assert await handlers.outcome_of(visit) == Done(200)
    handlers.close()


async def test_stages_stand_around_every_handler_outermost_first(visit):
    """J1: a stage may look, change, or end the visit itself."""
    seen = []

    def stage(name, end=None):
        async def through(visit, following):
            seen.append(name)
            return end or await following(visit)

        return through

    assert await Handlers(fetched, [stage("a"), stage("b")]).outcome_of(visit) == Done(200)
    assert seen == ["a", "b"]
    assert await Handlers(fetched, [stage("c", Done(304)), stage("d")]).outcome_of(visit) == Done(
        304
    )
    assert seen == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("handlers", "stages"), [({"page": 3}, []), ({3: fetched}, []), (fetched, [lambda v, n: None])]
)
def test_what_cannot_be_called_is_refused_at_once(handlers, stages):
    """The registry is complete before the first visit."""
    with pytest.raises(InvalidInput):
        Handlers(handlers, stages)
