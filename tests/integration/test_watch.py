"""`outrider watch` on a real file, beside the process that crawls it: the screen, and the keys."""

import asyncio
import json
import os
import pty
import subprocess
import sys
import termios
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

import pytest

from outrider import Done, Failed, Frontier, Link
from outrider.cli.watch_app import WatchApp
from outrider.core.histogram import Histogram, Window
from outrider.core.worker_totals import ScalingDecision, WorkerTotals
from outrider.errors import StoreUnavailable
from outrider.monitoring.connection import CrawlConnection, Presence
from outrider.monitoring.monitor import CrawlMonitor
from outrider.monitoring.sampler import Sampler
from outrider.store.factory import peek_file
from outrider.store.protocol import Heartbeat

A, B, C = (f"https://{name}.example/" for name in "abc")
MANNERS = {"politeness": {"min_delay": 2.0}, "retry": {"max_retries": 0}}
MAIN = "from outrider.cli import main; main()"
CRAWL = """
import asyncio, sys
from outrider import Done, Frontier

async def main(path, last):
    rude = {"politeness": {"delay": 0.0}}
    async with Frontier.open(path, settings=rude) as frontier:
        await frontier.add([f"https://h{n}.example/" for n in range(last)])
        print("crawling", flush=True)
        while (claim := await frontier.claim(1)) or claim.status == "running":
            for lease in claim:
                await asyncio.sleep(0.02)
                await frontier.finish(lease, Done(200, bytes=1000))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.fixture
def path(tmp_path):
    """Where the file is."""
    return str(tmp_path / "crawl.outrider")


@pytest.fixture
async def crawl(path):
    """The frontier that crawls, in this process, as the holder of the file."""
    async with Frontier.open(path, settings=MANNERS) as frontier:
        await frontier.add([A, A + "1", A + "2", B, B + "1", C])
        yield frontier


@asynccontextmanager
async def watched(path, *, size=(80, 24), every=0.1, grace=0.0):
    """The view of the file, and the one who presses its keys."""
    watch = CrawlMonitor(CrawlConnection(path, "default", grace=grace))
    try:
        app = WatchApp(watch, await watch.start(), every=every)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            yield app, pilot
    finally:
        await watch.connection.close()


def screen(app):
    """What is on the screen, line by line."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


async def until(pilot, holds):
    """Wait for something to hold, and see that it does."""
    for _ in range(3000):
        if await _answer(holds):
            return
        await pilot.pause(0.02)
    pytest.fail("it never came to hold; on the screen:\n" + "\n".join(screen(pilot.app)))


async def _answer(holds):
    answer = holds()
    return await answer if asyncio.iscoroutine(answer) else answer


def says(app, text):
    """Whether it is on the screen."""
    return lambda: text in "\n".join(screen(app))


async def choose(app, pilot, key):
    """Put the cursor on a host."""
    rows = app._layout.rows("hosts")
    await until(pilot, lambda: key in rows.keys)
    await pilot.press("down")
    while rows.selected != key:
        await pilot.press("down" if rows.cursor_row < rows.keys.index(key) else "up")


# ---- what is seen


async def test_workers_tab_shows_workers_and_metrics(path, crawl):
    """J2, J3, O1: with the last scaling decision; text of a worker is no markup."""
    decided = (ScalingDecision(5.0, 4, 7, "[bold]ready work[/]"),)
    totals = WorkerTotals(
        {"done": 4},
        latency={"fetch": Histogram({40: 4}, 3.0, 1.0)},
        decisions=decided,
        windows={"fetch": Window({40: 4}, 1.0, 9.0)},
        slots={"busy": 2, "idle": 5},
    )
    async with watched(path, size=(100, 50)) as (app, pilot):
        await pilot.press("k")
        await until(pilot, says(app, "no worker has sent a heartbeat"))
        beat = Heartbeat("north-1", "busy", "north", 7, 7, 2, 4, totals=totals)
        await crawl.store.heartbeat("default", beat)
        await until(pilot, says(app, "north-1"))
        for text in (
            "2 busy, 5 idle, 4 visits",
            "slots 4 → 7: [bold]ready work[/]",
            "fetch                 4    0.939",
            "visits/s",
        ):
            await until(pilot, says(app, text))


async def test_a_small_terminal_shows_it_all(path, crawl):
    """80 by 24: status, counters, rates, queues by state, hosts, and the keys."""
    async with watched(path) as (app, pilot):
        await until(pilot, says(app, "visits/s"))
        lines = screen(app)

        assert len(lines) == 24
        assert lines[0].startswith(" default ")
        assert "● running for" in lines[0]
        assert lines[1].split() == [
            *("known", "pending", "leased", "done", "dead", "dropped", "held")
        ]
        assert lines[2].split() == ["6", "6", "0", "0", "0", "0", "0"]
        assert "3 queues  3 ready" in "\n".join(lines)
        assert [line.split()[:3] for line in lines if ".example" in line] == [
            *(["a.example", "ready", "3"], ["b.example", "ready", "2"], ["c.example", "ready", "1"])
        ]
        assert lines[-1].rstrip().endswith("q quit")


async def test_a_large_one_shows_more_beside_it(path, crawl):
    """The busiest, the slowest, and the host under the cursor; all goes with the size."""
    async with watched(path, size=(120, 40)) as (app, pilot):
        await choose(app, pilot, "b.example")
        await until(pilot, says(app, "balance"))
        assert says(app, "slowest")()
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: not says(app, "slowest")())
        assert len(screen(app)) == 24
        await pilot.resize_terminal(160, 50)
        await until(pilot, says(app, "busiest"))
        await pilot.resize_terminal(20, 6)
        await pilot.pause()

        assert {len(line) for line in screen(app)} == {20}


async def test_numbers_follow_the_crawl(path, crawl):
    """Done, dead, rates."""
    async with watched(path) as (app, pilot):
        leases = await crawl.claim(3)
        await crawl.finish_many(
            [(leases[0], Failed("cut")), *((one, Done(200)) for one in leases[1:])]
        )
        await until(pilot, lambda: screen(app)[2].split() == ["6", "3", "0", "2", "1", "0", "0"])
        await until(pilot, says(app, "visits/s"))
        await until(pilot, says(app, "dead letters 1"))


async def test_end_of_the_crawl_is_shown_and_the_view_stays(path, crawl):
    """Until the user quits."""
    async with watched(path) as (app, pilot):
        await crawl.drop(pattern="")
        await crawl.claim()
        await until(pilot, says(app, "the crawl is finished; q quits"))
        assert "✔ finished" in screen(app)[0]
        assert app.is_running
        await pilot.press("q")
        await pilot.pause()

        assert not app.is_running


async def test_dead_letters_are_grouped_and_listed(path, crawl):
    """By reason, the latest first; enter shows every attempt."""
    leases = await crawl.claim(3)
    reasons = ("cut", "cut", "late")
    await crawl.finish_many(
        [(lease, Failed(why)) for lease, why in zip(leases, reasons, strict=True)]
    )
    async with watched(path) as (app, pilot):
        await pilot.press("d")
        await until(pilot, says(app, "2 cut"))
        assert says(app, "1 late")()
        await pilot.press("down", "enter")
        await until(pilot, says(app, "attempt 1"))
        await pilot.press("escape", "m")
        await until(pilot, says(app, "3 pending"))
        assert says(app, "opportunistic")()
        await pilot.press("h")
        await until(pilot, says(app, "busiest first"))


async def test_others_text_is_shown_and_never_obeyed(path, crawl):
    """Keys, URLs and reasons with markup look as they were written, wherever they are shown."""
    hostile = "[bold red]x[/][@click=app.quit]y"
    links = [
        Link("https://d.example/[/bold][link=file:///x]", key=hostile),
        Link("https://e.example/", key="[/]"),
    ]
    await crawl.drop(pattern="")
    await crawl.add(links)
    async with watched(path, size=(130, 40)) as (app, pilot):
        await choose(app, pilot, hostile)
        await pilot.press("p")
        await until(pilot, says(app, f"{hostile}: paused"))
        await pilot.press("enter")
        await until(pilot, says(app, "in flight"))
        assert sum(line.count(hostile) for line in screen(app)) >= 2
        await pilot.press("escape", "r")
        await until(pilot, says(app, f"Retire {hostile}?"))
        await pilot.press("n", "p")
        await until(pilot, says(app, "resumed"))
        for lease in await crawl.claim(2):
            await crawl.finish(lease, Failed("[bold]cut[/bold][/]"))
        await pilot.press("d")
        await until(pilot, says(app, "2 [bold]cut[/bold][/]"))
        await pilot.press("down", "enter")
        await until(pilot, says(app, "attempt 1"))
        await pilot.press("escape", "slash", *"[/]")
        await pilot.press("enter")
        await until(pilot, says(app, "/[/]"))


# ---- what keys do


ACTS = [
    ("p", "paused", "b.example: paused"),
    ("p", "ready", "b.example: resumed, ready"),
    ("z", "snoozed", "b.example: snoozed for 10.0 min"),
    ("w", "ready", "b.example: woken, ready"),
    ("s", "ready", "b.example: 4.0 s between visits"),
    ("s", "ready", "b.example: 8.0 s between visits"),
    ("f", "ready", "b.example: 4.0 s between visits"),
    ("f", "ready", "b.example: back to the delay"),
    ("rn", "ready", "b.example: back to the delay"),
    ("ry", "retired", "b.example: retired (operator); 2 tasks held"),
    ("R", "ready", "b.example: revived, ready"),
]


async def test_keys_act_on_the_host_under_the_cursor(path, crawl):
    """On it alone, in the store of the process that crawls, and the answer is shown."""
    async with watched(path) as (app, pilot):
        await choose(app, pilot, "b.example")
        for keys, state, answer in ACTS:
            await pilot.press(*keys)
            await until(pilot, says(app, answer))
            assert (await crawl.queue("b.example").view()).state == state

        assert (await crawl.queue("a.example").view()).state == "ready"


async def test_slow_is_kept_by_the_crawl(path, crawl):
    """Its next visit is followed by the new delay."""
    async with watched(path) as (app, pilot):
        await choose(app, pilot, "b.example")
        await pilot.press("s")
        await until(pilot, says(app, "4.0 s between visits"))
        lease = next(lease for lease in await crawl.claim(9) if lease.key == "b.example")
        await crawl.finish(lease, Done(200, seconds=0.1))

        assert (await crawl.queue("b.example").view()).delay == 4.0


async def test_the_whole_crawl_is_paused_and_resumed(path, crawl):
    """With a capital P."""
    async with watched(path) as (app, pilot):
        await pilot.press("P")
        await until(pilot, says(app, "‖ paused (operator)"))
        assert await crawl.claim(9) == []
        await pilot.press("P")
        await until(pilot, says(app, "● running"))

        assert len(await crawl.claim(9)) == 3


async def test_no_key_acts_before_a_host_was_chosen(path, crawl):
    """The list moves by itself: what is first now may be another one when the key is pressed."""
    async with watched(path) as (app, pilot):
        for key in "przwsf":
            await pilot.press(key)
        await until(pilot, says(app, "choose a host first"))

        assert (await crawl.stats()).queues["ready"] == 3


async def test_the_cursor_stays_with_its_host(path, crawl):
    """Whatever becomes of its place in the list."""
    async with watched(path) as (app, pilot):
        await pilot.press("t")
        await until(pilot, says(app, "most pending first"))
        await choose(app, pilot, "b.example")
        rows = app._layout.rows("hosts")
        assert rows.cursor_row == 1
        await crawl.add([f"{B}more/{number}" for number in range(5)])
        await until(pilot, lambda: rows.keys[0] == "b.example")
        await until(pilot, lambda: rows.cursor_row == 0)
        assert rows.selected == "b.example"
        await pilot.press("escape")

        assert rows.selected is None


async def test_hosts_are_filtered_by_a_part_of_their_key(path, crawl):
    """As it is typed; letters are no keys meanwhile; escape ends it."""
    async with watched(path) as (app, pilot):
        rows = app._layout.rows("hosts")
        await pilot.press("slash", "C", ".")
        await until(pilot, lambda: rows.keys == ["c.example"])
        await pilot.press("enter")
        await until(pilot, says(app, "/C."))
        await pilot.press("escape")
        await until(pilot, lambda: len(rows.keys) == 3)


async def test_help_names_every_key(path, crawl):
    """? shows, any of the usual keys goes back."""
    async with watched(path) as (app, pilot):
        await pilot.press("question_mark")
        await until(pilot, says(app, "the crawl continues"))
        await pilot.press("q")
        await until(pilot, says(app, "q quit"))

        assert app.is_running


# ---- no process, ended, and started again


async def test_file_without_a_process_is_shown_steered_and_not_held(path):
    """A process that starts to crawl finds it free, and is shown at once."""
    async with Frontier.open(path, settings=MANNERS) as before:
        await before.add([C])
        for lease in await before.claim(1):
            await before.finish(lease, Failed("cut"))
        await before.add([A, B])
    async with watched(path) as (app, pilot):
        await until(pilot, says(app, "running, but no process runs it"))
        await choose(app, pilot, "a.example")
        await pilot.press("p")
        await until(pilot, says(app, "a.example: paused"))
        await until(pilot, says(app, "1 ready  1 paused"))
        await pilot.press("d")
        await until(pilot, says(app, "1 cut"))
        async with Frontier.open(path, settings=MANNERS) as crawl:
            assert crawl.store.is_inline
            await until(pilot, says(app, "attached"))
            await crawl.add([C + "1"])
            await until(pilot, lambda: screen(app)[2].split()[0] == "4")


async def test_file_opened_for_one_call_is_declared_as_held_by_a_command(path):
    """M3: so that a crawl that starts meanwhile waits for the end of that call."""
    async with Frontier.open(path):
        pass

    async def look(frontier):
        return peek_file(path)[0].purpose, frontier.store.is_inline

    connection = CrawlConnection(path, "default")
    assert await connection.call(look) == ("command", True)
    assert peek_file(path)[0] is None
    async with Frontier.open(path):
        assert await connection.call(look) == ("", False)
        await connection.close()


async def test_what_is_gone_stays_on_the_screen_until_it_is_back(path):
    """Stale, and it says so; acts meanwhile answer with what is wrong."""
    crawl = await Frontier.open(path, settings=MANNERS)
    await crawl.add([A, B])
    async with watched(path, grace=60.0) as (app, pilot):
        await choose(app, pilot, "a.example")
        await crawl.close()
        await until(pilot, says(app, "○ no answer for"))
        assert screen(app)[2].split()[:2] == ["2", "2"]
        assert app._layout.has_class("-stale")
        await until(
            pilot, says(app, "the process that held crawl.outrider has ended; trying again")
        )
        crawl = await Frontier.open(path, settings=MANNERS)
        await crawl.add([C])
        await until(pilot, says(app, "● running"))
        await until(pilot, lambda: screen(app)[2].split()[:2] == ["3", "3"])

        assert not app._layout.has_class("-stale")
    await crawl.close()


async def test_the_last_word_of_a_crawl_that_ended_is_read_from_its_file(path):
    """What happened between the last sample and the end is seen all the same."""
    crawl = await Frontier.open(path, settings=MANNERS)
    await crawl.add([A])
    async with watched(path, every=0.3) as (app, pilot):
        (lease,) = await crawl.claim()
        await crawl.finish(lease, Done(200))
        await crawl.claim()
        await crawl.close()
        await until(pilot, says(app, "the crawl is finished; q quits"))

        assert screen(app)[2].split()[:4] == ["1", "0", "0", "1"]


@pytest.mark.parametrize(("place", "step"), [(CrawlConnection, "_open"), (Sampler, "read")])
async def test_a_crawl_that_ends_as_we_come_is_read_from_its_file(path, monkeypatch, place, step):
    """Before we reached who held it, or while it answered."""
    crawl = await Frontier.open(path, settings=MANNERS)
    await crawl.add([A, B])
    whole = getattr(place, step)

    async def parted(*words):
        await crawl.close()
        return await whole(*words)

    monkeypatch.setattr(place, step, parted)
    seen = await CrawlMonitor(CrawlConnection(path, "default")).start()

    assert (seen.presence, seen.sample.crawl.pending) == (Presence.ALONE, 2)


async def test_failed_action_shows_the_reason(path, crawl, monkeypatch):
    """In the line where answers are."""
    async with watched(path) as (app, pilot):
        await choose(app, pilot, "a.example")

        async def ask(work):
            raise StoreUnavailable("[red]nobody[/red] answers")

        monkeypatch.setattr(app._monitor.connection, "call", ask)
        await pilot.press("p")
        await until(pilot, says(app, "[red]nobody[/red] answers"))


async def test_a_file_that_is_gone_is_missed_and_looked_for(path, crawl, tmp_path):
    """The error is the command's usual one."""
    reach = CrawlConnection(str(tmp_path / "other.outrider"), "default")
    with pytest.raises(ValueError, match="no such file"):
        await CrawlMonitor(reach).start()


# ---- beside another process


@pytest.fixture
def crawler(path):
    """Starts processes that crawl the file to its end, and ends those that still do."""
    started = []

    def start(hosts):
        words = [sys.executable, "-c", CRAWL, path, str(hosts)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "crawling\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


async def test_a_crawl_in_another_process_is_watched_steered_and_outlived(path, crawler):
    """Killed in the middle, it is told from the file; begun again, it is attached again."""
    process = crawler(800)
    async with watched(path) as (app, pilot):
        await until(pilot, lambda: int(screen(app)[2].split()[3].replace(",", "")) > 2)
        await pilot.press("P")
        await until(pilot, says(app, "‖ paused (operator)"))
        process.kill()
        process.wait()
        await until(pilot, lambda: app._seen.presence is Presence.ALONE)
        await pilot.press("P")
        await until(pilot, says(app, "running, but no process runs it"))
        crawler(1)
        await until(pilot, lambda: app._seen.presence is Presence.ATTACHED)


def test_a_pipe_gets_lines_until_the_end(path, crawler):
    """A line a sample; it ends by itself, with 0."""
    crawler(60)
    words = [sys.executable, "-c", MAIN, "watch", path, "--every", "0.2", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    lines = [json.loads(line) for line in done.stdout.splitlines()]

    assert done.returncode == 0, done.stderr
    assert [line["status"] for line in lines].count("finished") == 1
    assert (lines[-1]["done"], lines[-1]["status"]) == (60, "finished")
    assert all(a["done"] <= b["done"] for a, b in pairwise(lines))


def test_terminal_gets_the_view_until_the_user_quits(path, crawler, monkeypatch):
    """As a user starts it; it exits with 0, and the crawl continues."""
    monkeypatch.setenv("TERM", "xterm")
    process = crawler(800)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    words = [sys.executable, "-c", MAIN, "watch", path]
    view = subprocess.Popen(
        words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while b"busiest first" not in shown:
        shown += os.read(ours, 65_536)
    os.write(ours, b"q")
    with suppress(OSError):  # the other end of the terminal is closed
        while os.read(ours, 65_536):
            pass
    os.close(ours)

    assert view.wait(30) == 0
    assert process.poll() is None
