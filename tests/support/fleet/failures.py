"""Failures of workers, servers and connections under a fleet, one function each."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from fleet.fleet import Fleet, wait
from outrider.clock import uptime
from servers import PostgresServer, ProxyProcess, ValkeyCluster, ValkeyServer

AnyServer: TypeAlias = PostgresServer | ValkeyServer | ValkeyCluster

SKEW: Final = 600.0  # seconds by which a worker's clock is wrong


class Setup(msgspec.Struct, frozen=True):
    """A running fleet, the server of its store, and the proxy that some of its workers use."""

    fleet: Fleet
    server: AnyServer
    proxy: ProxyProcess
    url: str  # of the store, through the proxy
    dice: random.Random


class Failure(msgspec.Struct, frozen=True):
    """When a failure began and was over, and how often it was repeated."""

    began: float
    healed: float
    rounds: int = 1


Fail: TypeAlias = Callable[[Setup, int], Failure]


def kills(setup: Setup, rounds: int) -> Failure:
    """Kill workers with SIGKILL, one after the other, and start others instead."""
    began = uptime()
    done = setup.fleet.kill_some(rounds, setup.dice, (0.1, 0.4))
    return Failure(began, uptime(), done)


def stopped(setup: Setup, rounds: int) -> Failure:
    """Stop a worker during a visit for longer than its leases, then continue it.

    On a slow machine the visit may have ended before: then stop another one.
    """
    began = uptime()
    for done in range(3 * rounds):
        if setup.fleet.late() >= rounds:
            return Failure(began, uptime(), done)
        name = setup.fleet.visiting()
        setup.fleet.pause(name)
        wait(setup.fleet.world.lease + 0.5)
        setup.fleet.resume(name)
        wait(2 * setup.fleet.world.duration)
    return Failure(began, uptime(), 3 * rounds)


def immediate(setup: Setup, rounds: int) -> Failure:
    """Stop the server without an orderly shutdown, and start it again."""
    return _restarts(setup, rounds, "immediate")


def orderly(setup: Setup, rounds: int) -> Failure:
    """Restart the server in an orderly way."""
    return _restarts(setup, rounds, "orderly")


def _restarts(setup: Setup, rounds: int, manner: str) -> Failure:
    began = uptime()
    for _ in range(rounds):
        wait(setup.dice.uniform(0.2, 0.8))
        setup.server.stop("immediate" if manner == "immediate" else "orderly")
        wait(setup.dice.uniform(0.0, 0.5))
        setup.server.start()
    return Failure(began, uptime(), rounds)


def node_killed(setup: Setup, rounds: int) -> Failure:
    """Kill one master of a cluster with SIGKILL, and start it again."""
    assert isinstance(setup.server, ValkeyCluster)
    began = uptime()
    for _ in range(rounds):
        wait(setup.dice.uniform(0.2, 0.8))
        setup.dice.choice(setup.server.nodes).restart("kill")
    return Failure(began, uptime(), rounds)


def backends(setup: Setup, rounds: int) -> Failure:
    """End every session on the server."""
    began = uptime()
    for _ in range(rounds):
        wait(setup.dice.uniform(0.1, 0.5))
        _end_sessions(setup.server)
    return Failure(began, uptime(), rounds)


def _end_sessions(server: AnyServer) -> None:
    if isinstance(server, PostgresServer):
        import psycopg  # noqa: PLC0415 - an extra

        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
        return
    import redis  # noqa: PLC0415 - an extra

    for node in server.nodes if isinstance(server, ValkeyCluster) else [server]:
        with redis.Redis(port=node.port) as connection:
            connection.client_kill_filter(_type="normal", skipme=True)


def cut(setup: Setup, rounds: int) -> Failure:
    """Cut connections while they carry data."""
    began = uptime()
    for _ in range(rounds):
        wait(setup.dice.uniform(0.05, 0.4))
        setup.proxy.cut()
    return Failure(began, uptime(), rounds)


def unplugged(setup: Setup, rounds: int) -> Failure:
    """Hold all data between some workers and the store for longer than a lease."""
    began = uptime()
    for _ in range(rounds):
        setup.proxy.pause()
        wait(setup.fleet.world.lease + 0.5)
        setup.proxy.resume()
        wait(0.3)
    return Failure(began, uptime(), rounds)


def skewed(setup: Setup, rounds: int) -> Failure:
    """Start workers whose clocks are wrong by ten minutes, either way."""
    began = uptime()
    for number in range(max(2, rounds)):
        setup.fleet.start(skew=SKEW if number % 2 else -SKEW)
    wait(1.0)
    return Failure(began, uptime(), rounds)


def snapshot(setup: Setup, rounds: int) -> Failure:
    """Keep a transaction with an old snapshot open, so that dead rows cannot be removed."""
    import psycopg  # noqa: PLC0415 - an extra

    assert isinstance(setup.server, PostgresServer)
    began = uptime()
    with psycopg.connect(setup.server.url) as connection:
        connection.execute("begin isolation level repeatable read")
        connection.execute("select count(*) from pg_class")
        wait(rounds)
    return Failure(began, uptime())


FAILURES: Final[Mapping[str, Fail]] = {
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
