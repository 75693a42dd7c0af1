"""Workers, servers and lines fail under a crawl of several processes; nothing is lost, doubled, or
visited too soon, by the workers' own read_logs and the hosts' record. `make faults` plays longer.
"""

import pytest
from msgspec.structs import replace

from fleet.fake_web import World
from fleet.run import run
from scale import ROUNDS

PLAYS = {
    "kills": (5, World(hosts=8, pages=50, delay=0.05)),  # lasts longer than the kills
    "some-kills": (3, World(hosts=8, pages=25, delay=0.05)),
    "stopped": (1, World(hosts=8, pages=10, duration=0.4, delay=0.05, lease=1.0)),
    "immediate": (1, World(hosts=6, pages=40, delay=0.05)),
    "orderly": (1, World(hosts=6, pages=40, delay=0.05)),
    "backends": (3, World(hosts=6, pages=40, delay=0.05)),
    "cut": (5, World(hosts=6, pages=40, delay=0.05)),
    "unplugged": (1, World(hosts=6, pages=40, delay=0.05, lease=1.0)),
    "skewed": (2, World(hosts=6, pages=40, delay=0.05)),
    "snapshot": (2, World(hosts=6, pages=40, delay=0.05)),
}
# Each failure once; `make stress` has all of them on both servers.
SERVERS = {
    "postgres": ("kills", "stopped", "backends", "cut", "snapshot"),
    "redis": ("kills", "immediate", "unplugged", "skewed"),
    "redis-everysec": ("orderly",),
    "cluster": ("some-kills",),
}
if ROUNDS > 1:
    SERVERS["postgres"] += ("immediate", "unplugged", "skewed")
    SERVERS["redis"] += ("stopped", "cut")
CASES = [(server, scene) for server, scenes in SERVERS.items() for scene in scenes]


@pytest.mark.slow
@pytest.mark.parametrize(("server", "scene"), CASES)
def test_whatever_befalls_a_fleet_nothing_is_lost_doubled_or_too_soon(server, scene, tmp_path):
    """M6, H1, H3, H6, D7: counted from outside the store."""
    rounds, world = PLAYS[scene]
    world = replace(world, pages=world.pages * ROUNDS)
    played = run(server, scene.removeprefix("some-"), rounds * ROUNDS, tmp_path, world)
    assert played.report.is_clean, played.report
    assert played.report.visits >= world.hosts * world.pages
    assert scene == "snapshot" or played.failure.rounds >= rounds
    if scene == "stopped":
        assert played.report.late > 0
