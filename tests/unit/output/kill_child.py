"""Workers that write and are killed, one after the other: `kill_child.py FOLDER SEED KILLS FORMAT`.

Each opens the same embedded file and the same output, recovers, claims, writes, finishes, settles;
some leases are lost on the way. Half of them are killed from outside at any moment, the others kill
themselves at a call of the system. Exits with 0 if at the end every finished visit stands in the
output once and whole, and nothing else does.
"""

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path

from conftest import SETTINGS, FakeVisit, Mortal, finish, lines_of, responded
from warcio.archiveiterator import ArchiveIterator

from outrider import Frontier
from outrider.core.states import TaskState
from outrider.output import append_files, journal
from outrider.output.jsonl import jsonl_sink
from outrider.output.sink import recover
from outrider.output.warc import warc_sink
from outrider.store.protocol import TaskFilter

HOSTS = 40
PAGES = 400  # more for each life
BATCHES = 60


class Suicide(Mortal):
    """Kills the process at a call of the system, really; a torn write is half done before."""

    def step(self):
        """Not a call."""

    def _call(self, function, *args):
        if self.is_over():
            if self._torn and function in (os.write, os.pwrite):
                function(args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args)


def sink_of(folder, form):
    """The same output for all."""
    if form == "warc":
        return warc_sink(folder / "news", info={"software": "x"}, max_bytes=20_000)
    return jsonl_sink(folder / "news")


def visit_of(lease, form, dice):
    """A page of any size."""
    if form == "warc":
        sent = f"GET {lease.url} HTTP/1.1\r\nHost: h\r\n\r\n".encode()
        return responded(lease, dice.randbytes(dice.choice((10, 500, 5000))), request=sent)
    items = [{"of": lease.url}] * has_items(lease.url)
    return FakeVisit(lease, items=items, title="x" * dice.choice((1, 100, 9000)))


def has_items(url):
    """Every second page does."""
    return int(url.rpartition("/")[2]) % 2


async def work(folder, form, life, dice):
    """One life; it may well end before its end."""
    async with Frontier.open(folder / "crawl.outrider", settings=SETTINGS) as frontier:
        sink = sink_of(folder, form)
        await recover(sink, frontier.store)
        numbers = range(life * PAGES, (life + 1) * PAGES)
        await frontier.add([f"https://h{n % HOSTS}.test/{n}" for n in numbers])
        for _ in range(BATCHES):
            leases = await frontier.claim(dice.randint(1, 8))
            visits = [visit_of(lease, form, dice) for lease in leases]
            sink.write(visits)
            await frontier.release([lease for lease in leases if dice.random() < 0.1])
            sink.settle(await finish(frontier, visits))
        sink.close()


def live(folder, form, life, dice):
    """In a process of its own."""
    if life % 2:
        mortal = Suicide(dice.randint(1, 150), torn=dice.random() < 0.5)
        for module in (journal, append_files):
            module.os = mortal
    asyncio.run(work(folder, form, life, dice))
    os._exit(0)


def kill_one(folder, form, life, dice):
    """Whether it was killed before it came to its end."""
    seed, delay = dice.random(), dice.uniform(0.005, 0.12)
    child = os.fork()
    if not child:
        with suppress(BaseException):
            live(folder, form, life, random.Random(seed))
        os._exit(3)
    if life % 2 == 0:
        signal.setitimer(signal.ITIMER_REAL, delay)
        with suppress(InterruptedError):
            signal.sigwait({signal.SIGALRM})
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"life {life} broke off by itself")
    return os.WIFSIGNALED(status)


async def check(folder, form):
    """What stands there is what was finished."""
    async with Frontier.open(folder / "crawl.outrider", settings=SETTINGS) as frontier:
        sink = sink_of(folder, form)
        await recover(sink, frontier.store)
        sink.close()
        page = await frontier.store.tasks("default", TaskFilter(state=TaskState.DONE), limit=10**6)
        done = sorted(view.url for view in page.items)
    urls = (
        archived(folder) if form == "warc" else [x["url"] for x in lines_of(folder / "news.jsonl")]
    )
    assert sorted(urls) == done, f"{len(urls)} records of {len(set(urls))} pages, {len(done)} done"
    if (folder / "news.items.jsonl").exists():
        items = [item["of"] for item in lines_of(folder / "news.items.jsonl")]
        assert sorted(items) == [url for url in done if has_items(url)]
    return len(done)


def archived(folder):
    """URLs of all responses, each record whole, and each with the record of its request."""
    found, partners, requests = [], [], []
    for path in folder.glob("*.warc.gz"):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                record.content_stream().read()
                if record.rec_type == "response":
                    found.append(record.rec_headers.get_header("WARC-Target-URI"))
                    partners.append(record.rec_headers.get_header("WARC-Concurrent-To"))
                elif record.rec_type == "request":
                    requests.append(record.rec_headers.get_header("WARC-Record-ID"))
    assert sorted(partners) == sorted(requests)
    return found


def main(folder, seed, kills, form):
    """Kill, and look."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    dice, killed = random.Random(seed), 0
    for life in range(kills):
        killed += kill_one(folder, form, life, dice)
        if life % 10 == 9:
            asyncio.run(check(folder, form))
    done = asyncio.run(check(folder, form))
    print(f"{killed} killed, {done} done")  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
