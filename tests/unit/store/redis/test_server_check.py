"""Unsuitable servers are refused with the fix; what cannot be checked is reported."""

import re

import pytest
from redis import exceptions as driver

from outrider.clock import SystemClock
from outrider.errors import StoreError, StoreFull, StoreUnavailable, StoreUnusable
from outrider.store.redis.connect import check_server
from outrider.store.redis.script_client import ScriptClient, translate_error

GOOD = {
    "redis_version": "7.2.4",
    "role": "master",
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
}


class FakeServer:
    """A server with fixed answers."""

    def __init__(self, about, config=None):
        self.about = about
        self.config = config

    async def execute_command(self, *words):
        """Return the answer, or raise it if it is an error."""
        answer = self.about if words[0] == "INFO" else self.config
        if isinstance(answer, Exception):
            raise answer
        return answer if words[0] == "INFO" else [words[1], answer]


async def promise(config=b"everysec", **about):
    """Return the promise of such a server."""
    return await check_server(
        ScriptClient(FakeServer({**GOOD, **about}, config), "x:", SystemClock()), "host:1"
    )


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"redis_version": "6.0.16"}, "Redis at host:1 is 6.0.16, and 6.2 is the oldest"),
        ({"valkey_version": "7.0.1"}, "Valkey at host:1 is 7.0.1, and 7.2 is the oldest"),
        ({"role": "slave"}, "name its primary"),
        ({"maxmemory_policy": "allkeys-lru"}, "set maxmemory-policy noeviction"),
        ({"maxmemory_policy": "volatile-ttl"}, "set maxmemory-policy noeviction"),
        ({"cluster_enabled": 1}, r"redis\+cluster://host:1"),
    ],
)
async def test_unsuitable_server_is_refused(about, says):
    """M5: too old, read-only, evicting, or a node of a cluster."""
    with pytest.raises(StoreUnusable, match=says):
        await promise(**about)


@pytest.mark.parametrize(
    ("about", "config", "says"),
    [
        ({}, b"always", "appendfsync always: every answered call survives"),
        ({}, b"everysec", "loses up to 1 s"),
        ({}, b"no", "appendfsync no"),
        ({"aof_enabled": 0}, b"3600 1", r"snapshots alone.*\(save 3600 1\)"),
        ({"aof_enabled": 0}, b"", "no persistence"),
        ({}, driver.NoPermissionError("NOPERM"), "could not be checked"),
    ],
)
async def test_promise_describes_persistence(about, config, says):
    """M5: one sentence, also if it cannot be checked."""
    assert re.search(says, await promise(config, **about))


async def test_server_without_info_is_accepted():
    """Managed servers may forbid INFO."""
    scripts = ScriptClient(FakeServer(driver.NoPermissionError("NOPERM"), b""), "x:", SystemClock())

    assert await check_server(scripts, "host:1")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (driver.OutOfMemoryError("command not allowed"), StoreFull),
        (driver.ResponseError("OOM command not allowed"), StoreFull),
        (driver.ResponseError("MISCONF disk"), StoreFull),
        (driver.ConnectionError("gone"), StoreUnavailable),
        (driver.TimeoutError("late"), StoreUnavailable),
        (driver.BusyLoadingError("loading"), StoreUnavailable),
        (driver.ReadOnlyError("replica"), StoreUnavailable),
        (driver.ClusterDownError("down"), StoreUnavailable),
        (driver.AuthenticationError("who"), StoreUnusable),
        (driver.NoPermissionError("no"), StoreUnusable),
        (driver.ResponseError("OUTRIDER format 2"), StoreUnusable),
        (driver.ResponseError("else"), StoreError),
    ],
)
def test_errors_of_the_driver_are_translated(error, kind):
    """No type of the driver leaves the package; the type says if a retry may help."""
    assert type(translate_error(error)) is kind
