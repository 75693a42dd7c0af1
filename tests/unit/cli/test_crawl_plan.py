"""`outrider crawl` before it opens its file: who holds it, and whether that is waited for (M3)."""

import pytest

from outrider.cli.crawl_plan import check_not_held, wait_for_command
from outrider.errors import InvalidInput
from outrider.store.embedded.lock import Lock
from outrider.testing import FakeClock


@pytest.fixture
def path(tmp_path):
    """A file of which only its name matters."""
    path = tmp_path / "x.outrider"
    path.touch()
    return path


@pytest.fixture
def hold(path):
    """Holds the file as a process does that declares a purpose."""
    locks = []

    def take(purpose):
        lock = Lock(path)
        assert lock.take()
        lock.declare(purpose)
        locks.append(lock)
        return lock

    yield take
    for lock in locks:
        lock.free()


class Naps(FakeClock):
    """A clock on which sleeping takes no time; the last sleep frees the file."""

    def __init__(self, lock, count=10**9):
        super().__init__()
        self.taken, self._lock, self._count = 0, lock, count

    async def sleep(self, seconds):
        """Let the time pass at once."""
        self.advance(seconds)
        self.taken += 1
        if self.taken == self._count:
            self._lock.free()


async def test_crawl_waits_until_a_command_has_closed_the_file(path, hold):
    """M3: a process that only reads, opens the file for one call; it is not told at once."""
    naps, told = Naps(hold("command"), 5), []
    await wait_for_command(str(path), naps, told.append)

    assert (naps.taken, told) == (5, [])
    check_not_held(str(path))


async def test_crawl_that_waits_for_a_second_says_so_once(path, hold):
    """M3: a command that adds a long list holds the file for longer."""
    naps, told = Naps(hold("command"), 50), []
    await wait_for_command(str(path), naps, told.append)

    assert naps.taken == 50
    (line,) = told
    assert line.startswith(f"{path} is in use by process ")
    assert line.endswith("; waiting until it is closed")


async def test_crawl_is_refused_when_a_command_does_not_end(path, hold):
    """M3: after ten seconds it is a holder as any other."""
    naps = Naps(hold("command"))
    await wait_for_command(str(path), naps, [].append)

    assert naps.taken == 100
    with pytest.raises(InvalidInput, match=f"{path} is in use by process "):
        check_not_held(str(path))


@pytest.mark.parametrize("purpose", ["work", ""])
async def test_crawl_does_not_wait_for_a_process_that_visits_pages(path, hold, purpose):
    """M3: it would wait for the end of the crawl."""
    naps = Naps(hold(purpose))
    await wait_for_command(str(path), naps, [].append)

    assert naps.taken == 0


async def test_crawl_does_not_wait_for_a_file_that_is_free_or_missing(path, hold):
    """M3: what the last holder declared says nothing of the next."""
    naps = Naps(None)
    hold("command").free()
    await wait_for_command(str(path), naps, [].append)
    await wait_for_command(f"{path}-missing", naps, [].append)

    assert naps.taken == 0


async def test_crawl_joins_a_worker_that_holds_its_file(path, hold):
    """M3: but to rename its files is refused."""
    hold("work")
    check_not_held(str(path), may_join=True)
    with pytest.raises(InvalidInput, match="or end it first"):
        check_not_held(str(path))


@pytest.mark.parametrize("purpose", ["command", ""])
async def test_crawl_beside_another_is_refused_with_what_to_run(path, hold, purpose):
    """M3: both would write the same output."""
    hold(purpose)
    with pytest.raises(InvalidInput, match=f"`outrider work {path}`, or end it first"):
        check_not_held(str(path), may_join=True)
