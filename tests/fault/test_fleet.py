"""Workers, servers and lines fail under a crawl of several processes; nothing is lost, doubled, or
visited too soon, by the workers' own ledgers and the hosts' record. `make faults` plays longer.
"""

import os

import pytest

from outrider.testing.fleet.play import play
from outrider.testing.fleet.world import World

# How much longer than in CI; `make faults` says 4.
LONGER = int(os.environ.get("OUTRIDER_FAULTS", "1"))  # noqa: TID251 - how long to search

PLAYS = {
    "kills": (26, World(hosts=12, pages=240, delay=0.03)),  # lasts longer than the kills
    "some-kills": (10, World(hosts=12, pages=40, delay=0.05)),
    "stopped": (1, World(hosts=20, pages=15, duration=0.4, delay=0.05, lease=1.0)),
    "immediate": (2, World(hosts=20, pages=60)),
    "orderly": (2, World(hosts=20, pages=60)),
    "backends": (5, World(hosts=20, pages=60)),
    "cut": (8, World(hosts=20, pages=60)),
    "unplugged": (1, World(hosts=20, pages=60, lease=1.0)),
    "skewed": (2, World(hosts=20, pages=60)),
    "snapshot": (3, World(hosts=20, pages=60)),
}
SERVERS = {
    "postgres": tuple(name for name in PLAYS if name not in ("some-kills", "orderly")),
    "redis": ("kills", "stopped", "immediate", "cut", "unplugged", "skewed"),
    "redis-everysec": ("orderly",),
    "cluster": ("some-kills",),
}
CASES = [(server, scene) for server, scenes in SERVERS.items() for scene in scenes]


@pytest.mark.slow
@pytest.mark.parametrize(("server", "scene"), CASES)
def test_whatever_befalls_a_fleet_nothing_is_lost_doubled_or_too_soon(server, scene, tmp_path):
    """M6, H1, H3, H6, D7: counted from outside the store."""
    rounds, world = PLAYS[scene]
    played = play(server, scene.removeprefix("some-"), rounds * LONGER, tmp_path, world)
    assert played.judgement.is_clean, played.judgement
    assert played.judgement.visits >= world.hosts * world.pages
    assert scene == "snapshot" or played.fault.rounds >= rounds
    if scene == "stopped":
        assert played.judgement.late > 0
