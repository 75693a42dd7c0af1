"""Settings said at run time, on stores that are servers: heard by all, remembered, repeated."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from outrider import Frontier, SettingsError

A = "https://a.example/"


@pytest.fixture(params=["postgres", "redis", "cluster"])
def place(request, places):
    """An empty place on a server."""
    return places.take(request.param)


async def test_workers_on_a_server_hear_of_a_change(place):
    """N1, N4: whoever makes it; the owner's rules, and the history, are every worker's."""
    async with (
        Frontier.open(place, settings={"budget": {"balance": 5}}, worker="owner") as owner,
        Frontier.attach(place, worker="joiner") as joiner,
    ):
        await owner.add([A])
        await joiner.configure({"budget": {"balance": 9}, "lanes": {"burst": 2}})
        with pytest.raises(SettingsError):
            await joiner.configure({"budget": {"balance": 1}, "lanes": {"burst": 0}})
        await owner.listen()
        await owner.unset("lanes.burst")
        await joiner.listen()
        view = await owner.queue("a.example").view()
        found = [(one.path, one.new, one.by) for one in await joiner.config_history()]

        assert (owner.settings.budget.balance, view.grant) == (9, 9)
        assert owner.settings.lanes.burst == joiner.settings.lanes.burst == 5
        assert sorted(found[:2]) == [("budget.balance", 9, "joiner"), ("lanes.burst", 2, "joiner")]
        assert found[2:] == [("lanes.burst", 5, "owner")]


async def test_the_command_reaches_a_server(places):
    """As it reaches a file."""
    place = places.take("redis")
    async with Frontier.open(place) as owner:
        await owner.add([A])
        command = [str(Path(sys.executable).with_name("outrider")), "config", "set", place]
        ended = await asyncio.to_thread(
            subprocess.run, [*command, "politeness.delay=7"], capture_output=True, check=False
        )
        await owner.listen()

        assert (ended.returncode, ended.stdout) == (0, b"politeness.delay = 7\n")
        assert owner.settings.politeness.delay == 7.0
