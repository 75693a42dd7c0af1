"""`doctor` and `checkpoint`: words, JSON and exit codes."""

import asyncio
import os
import resource

import pytest

from outrider import Frontier
from outrider.cli import doctor
from outrider.testing import FakeClock


@pytest.fixture
def path(tmp_path):
    """A small file."""

    async def fill():
        async with Frontier.open(tmp_path / "crawl", clock=FakeClock()) as frontier:
            await frontier.add([f"https://h{n % 3}.example/{n}" for n in range(40)])

    asyncio.run(fill())
    return tmp_path / "crawl"


@pytest.fixture
def damaged(path):
    """The same, with a byte changed in each third of its leaves."""
    data = bytearray(path.read_bytes())
    at = data.index(b"https://h1.example/1")
    data[at] ^= 0xFF
    path.write_bytes(data)
    return path


def test_a_healthy_file_is_0(outrider, path):
    """What was looked at, and the crawls by state."""
    answer = outrider("doctor", str(path))

    assert answer.code == 0
    assert answer.out.endswith("healthy\n")
    assert "every checksum right" in answer.out
    assert "default" in answer.out


def test_contact_of_crawls_in_a_file_is_shown(outrider, path):
    """N5: one that is not set is advice, and no problem."""
    silent = outrider("doctor", str(path), "--json")

    async def open_with_contact():
        settings = {"fetch": {"contact": "me@example.org"}}
        async with Frontier.open(path, settings=settings, clock=FakeClock()):
            return

    asyncio.run(open_with_contact())
    named = outrider("doctor", str(path), "--json")
    outrider("config", "set", str(path), "fetch.contact=you@example.org")
    changed = outrider("doctor", str(path), "--json").json["checks"][1]["found"]

    contacts = [answer.json["checks"][1] for answer in (silent, named)]
    assert [answer.code for answer in (silent, named)] == [0, 0]
    assert changed == "you@example.org"
    assert [contact["what"] for contact in contacts] == ["contact of default"] * 2
    assert (contacts[0]["found"], contacts[1]["found"]) == ("not set", "me@example.org")
    assert "fetch.contact" in contacts[0]["fix"]
    assert contacts[1]["fix"] == ""


def test_file_is_not_written_by_examining_it(outrider, path):
    """M3: not even to find out the contact."""
    before = path.read_bytes()
    outrider("doctor", str(path))

    assert path.read_bytes() == before


def test_machine_with_too_few_files_is_a_problem_for_a_file(outrider, path, monkeypatch):
    """M3: the limit of this machine, with the file."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    answer = outrider("doctor", str(path))

    assert answer.code == 1
    assert "ulimit -Hn 4096" in answer.out
    assert answer.out.endswith("healthy\n")


def test_json_is_the_whole_diagnosis(outrider, path):
    """For programs."""
    found = outrider("doctor", str(path), "--json").json

    assert found["is_healthy"] is True
    assert found["crawls"][0]["known"] == found["crawls"][0]["pending"] == 40
    assert {finding["state"] for finding in found["findings"]} == {"ok"}


def test_a_damaged_file_is_1_with_the_way_out(outrider, damaged):
    """Named, and what to do next."""
    answer = outrider("doctor", str(damaged))

    assert answer.code == 1
    assert f"outrider doctor {damaged} --rescue NEW" in answer.out
    assert outrider("doctor", str(damaged), "--json").code == 1


def test_a_rescue_tells_what_it_could_not_save(outrider, damaged, tmp_path):
    """1 if anything was lost; the new file is healthy; nothing is overwritten."""
    new = tmp_path / "new"
    answer = outrider("doctor", str(damaged), "--rescue", str(new))

    assert answer.code == 1
    assert "24 of 40 tasks rescued" in answer.out
    assert "these task numbers are lost: 1, 2" in answer.out
    assert outrider("doctor", str(new)).code == 0
    assert outrider("doctor", str(damaged), "--rescue", str(new)).code == 2
    again = outrider("doctor", str(damaged), "--rescue", f"{new}2", "--json")
    assert again.json["crawls"][0]["lost"] == 16


def test_a_rescue_of_everything_is_0(outrider, path, tmp_path):
    """Nothing lost, nothing set back."""
    answer = outrider("doctor", str(path), "--rescue", str(tmp_path / "new"))

    assert answer.code == 0
    assert "40 of 40 tasks rescued" in answer.out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["doctor", "nowhere"], "no such file"),
        (["doctor", __file__], "is not a file of Outrider"),
        (["doctor", "memory://"], "outrider export"),
        (["doctor", "--rescue", "new"], "--rescue needs the damaged file"),
        (["checkpoint", "memory://", "copy"], "outrider export"),
        (["checkpoint", "nowhere", "copy"], "no such file"),
    ],
)
def test_what_cannot_be_looked_at_is_2(outrider, words, complaint):
    """One line on standard error."""
    answer = outrider(*words)

    assert (answer.code, answer.out) == (2, "")
    assert complaint in answer.err


def test_a_checkpoint_tells_what_it_copied(outrider, path, tmp_path):
    """In words and as JSON; an existing file is refused."""
    copy = tmp_path / "copy"
    answer = outrider("checkpoint", str(path), str(copy))
    assert (answer.code, answer.err) == (0, "")
    assert "default: 40 known, 40 pending, 0 leased" in answer.out

    assert outrider("checkpoint", str(path), str(copy)).code == 2
    made = outrider("checkpoint", str(path), f"{copy}2", "--json").json
    assert made["crawls"] == [{"crawl": "default", "known": 40, "pending": 40, "leased": 0}]


def test_file_in_use_is_shown_with_its_holder(outrider, path, tmp_path):
    """By both commands."""
    frontier = asyncio.new_event_loop()
    held = frontier.run_until_complete(Frontier.open(path, clock=FakeClock()).__aenter__())
    looked = outrider("doctor", str(path))
    copied = outrider("checkpoint", str(path), str(tmp_path / "copy"))
    frontier.run_until_complete(held.close())
    frontier.close()

    assert (looked.code, copied.code) == (0, 0)
    assert f"by process {os.getpid()}" in looked.out
    assert f"while process {os.getpid()}" in copied.err


# ---- the machine


def test_the_machine_is_looked_at_without_a_file(outrider):
    """Each line is well, or has its fix."""
    found = outrider("doctor", "--json").json
    whats = {check["what"] for check in found["checks"]}

    assert whats == {"Python", "SQLite", "open files", "disk", "clock", "event loop"}
    assert all(check["is_ok"] != bool(check["fix"]) for check in found["checks"])
    assert "CPython" in outrider("doctor").out


def test_a_machine_that_lacks_something_is_1(outrider, monkeypatch):
    """With what to do about it."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    monkeypatch.setattr(doctor, "OLDEST_SQLITE", (99, 0, 0))
    monkeypatch.setattr(doctor, "MIN_DISK", 1 << 80)
    monkeypatch.setattr(doctor, "YEARS", range(1990, 2000))
    answer = outrider("doctor")

    assert answer.code == 1
    assert answer.out.count("warn") == 4
    for fix in (
        "ulimit -Hn 4096",
        "pip install --upgrade apsw",
        "free disk space",
        "set the machine's time",
    ):
        assert fix in answer.out
