"""What befalls a fleet and its store, one function each; when it was over is what they answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from fleet.fleet import Fleet, rest
from outrider.clock import uptime
from servers import PostgresServer, ProxyProcess, ValkeyCluster, ValkeyServer

AnyServer: TypeAlias = PostgresServer | ValkeyServer | ValkeyCluster

SKEW: Final = 600.0  # seconds by which a worker's clock is wrong


class Scene(msgspec.Struct, frozen=True):
    """A fleet at work, the server of its store, and the line that some of its workers use."""

    fleet: Fleet
    server: AnyServer
    line: ProxyProcess
    url: str  # of the store, through the line
    dice: random.Random


class Fault(msgspec.Struct, frozen=True):
    """When it began and when it was over; how often it came."""

    begun: float
    healed: float
    rounds: int = 1


Befalls: TypeAlias = Callable[[Scene, int], Fault]


def kills(scene: Scene, rounds: int) -> Fault:
    """Workers die as by `kill -9`, one after the other, and others come in their place."""
    begun = uptime()
    done = scene.fleet.kill_some(rounds, scene.dice, (0.1, 0.4))
    return Fault(begun, uptime(), done)


def stopped(scene: Scene, rounds: int) -> Fault:
    """In the middle of a visit a worker stands still for longer than its leases, then goes on.

    On a slow machine its end may have been told before it stood still: then once more.
    """
    begun = uptime()
    for done in range(3 * rounds):
        if scene.fleet.late() >= rounds:
            return Fault(begun, uptime(), done)
        name = scene.fleet.visiting()
        scene.fleet.pause(name)
        rest(scene.fleet.world.lease + 0.5)
        scene.fleet.go_on(name)
        rest(2 * scene.fleet.world.duration)
    return Fault(begun, uptime(), 3 * rounds)


def immediate(scene: Scene, rounds: int) -> Fault:
    """The server ends without a word to anyone, and is started again."""
    return _restarts(scene, rounds, "immediate")


def orderly(scene: Scene, rounds: int) -> Fault:
    """The server is restarted as an administrator does it."""
    return _restarts(scene, rounds, "orderly")


def _restarts(scene: Scene, rounds: int, manner: str) -> Fault:
    begun = uptime()
    for _ in range(rounds):
        rest(scene.dice.uniform(0.2, 0.8))
        scene.server.stop("immediate" if manner == "immediate" else "orderly")
        rest(scene.dice.uniform(0.0, 0.5))
        scene.server.start()
    return Fault(begun, uptime(), rounds)


def node_killed(scene: Scene, rounds: int) -> Fault:
    """One master of a cluster dies as by `kill -9` and comes back."""
    assert isinstance(scene.server, ValkeyCluster)
    begun = uptime()
    for _ in range(rounds):
        rest(scene.dice.uniform(0.2, 0.8))
        scene.dice.choice(scene.server.nodes).restart("kill")
    return Fault(begun, uptime(), rounds)


def backends(scene: Scene, rounds: int) -> Fault:
    """The server ends every session."""
    begun = uptime()
    for _ in range(rounds):
        rest(scene.dice.uniform(0.1, 0.5))
        _end_sessions(scene.server)
    return Fault(begun, uptime(), rounds)


def _end_sessions(server: AnyServer) -> None:
    if isinstance(server, PostgresServer):
        import psycopg  # noqa: PLC0415 - an extra

        with psycopg.connect(server.url, autocommit=True) as line:
            line.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        return
    import redis  # noqa: PLC0415 - an extra

    for node in server.nodes if isinstance(server, ValkeyCluster) else [server]:
        with redis.Redis(port=node.port) as line:
            line.client_kill_filter(_type="normal", skipme=True)


def cut(scene: Scene, rounds: int) -> Fault:
    """Connections break in the middle of whatever they carry."""
    begun = uptime()
    for _ in range(rounds):
        rest(scene.dice.uniform(0.05, 0.4))
        scene.line.cut()
    return Fault(begun, uptime(), rounds)


def unplugged(scene: Scene, rounds: int) -> Fault:
    """For longer than a lease nothing passes between some workers and the store."""
    begun = uptime()
    for _ in range(rounds):
        scene.line.pause()
        rest(scene.fleet.world.lease + 0.5)
        scene.line.resume()
        rest(0.3)
    return Fault(begun, uptime(), rounds)


def skewed(scene: Scene, rounds: int) -> Fault:
    """Workers whose clocks are wrong by ten minutes, either way, join."""
    begun = uptime()
    for number in range(max(2, rounds)):
        scene.fleet.start(skew=SKEW if number % 2 else -SKEW)
    rest(1.0)
    return Fault(begun, uptime(), rounds)


def snapshot(scene: Scene, rounds: int) -> Fault:
    """Somebody's transaction sees one moment for so many seconds, and keeps what died since."""
    import psycopg  # noqa: PLC0415 - an extra

    assert isinstance(scene.server, PostgresServer)
    begun = uptime()
    with psycopg.connect(scene.server.url) as line:
        line.execute("begin isolation level repeatable read")
        line.execute("select count(*) from pg_class")
        rest(rounds)
    return Fault(begun, uptime())


SCENES: Final[Mapping[str, Befalls]] = {
    "kills": kills,
    "stopped": stopped,
    "immediate": immediate,
    "orderly": orderly,
    "node-killed": node_killed,
    "backends": backends,
    "cut": cut,
    "unplugged": unplugged,
    "skewed": skewed,
    "snapshot": snapshot,
}
