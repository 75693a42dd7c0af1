"""Faults of this machine are told from those of hosts, and end a visit without an outcome."""

import asyncio
import errno
import os
import resource
import socket

import pytest

from outrider import LocalFault, Unreachable
from outrider.fetch import local_faults
from outrider.fetch.http1 import Http1Client
from outrider.fetch.local_faults import (
    DEFAULT_ROUTE_ADDRESSES,
    FAULTS,
    Network,
    has_route,
    local_fault,
    local_fault_of,
    local_reason_of,
)
from outrider.settings.worker_schema import FetchSettings

HERE = "203.0.113.7"


def caused(by):
    """An error of a library, raised from another one."""
    error = ValueError("no luck")
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "local: emfile"),
        (OSError(errno.ENFILE, "x"), "local: enfile"),
        (OSError(errno.ENOBUFS, "x"), "local: enobufs"),
        (OSError(errno.ENOMEM, "x"), "local: enomem"),
        (OSError(errno.ENETDOWN, "x"), "local: network"),
        (OSError(errno.ENOSPC, "x"), "local: disk"),
        (OSError(errno.EDQUOT, "x"), "local: disk"),
        (MemoryError(), "local: enomem"),
        (RuntimeError("can't start new thread"), "local: threads"),
        (OSError("Multiple exceptions: [Errno 101] no, [Errno 24] files"), "local: emfile"),
        (socket.gaierror(socket.EAI_MEMORY, "x"), "local: enomem"),
        (caused(caused(OSError(errno.EMFILE, "x"))), "local: emfile"),
        (socket.gaierror(socket.EAI_AGAIN, "x"), None),
        (OSError(errno.ECONNREFUSED, "x"), None),
        (OSError(errno.EHOSTUNREACH, "x"), None),
        (OSError("Multiple exceptions: [Errno 101] no, [Errno 111] no"), None),
        (RuntimeError("Session is closed"), None),
        (ValueError("[Errno 24]"), None),
        (TimeoutError(), None),
    ],
)
def test_errors_are_classified_in_one_place(error, reason):
    """By number, by class, or by what caused them; everything else is a host's or a page's."""
    assert local_reason_of(error) == reason
    fault = local_fault_of(error)
    assert (fault and fault.reason) == reason


@pytest.mark.parametrize("reason", FAULTS)
def test_every_fault_says_what_is_wrong_and_what_to_do(reason):
    """Two sentences' worth, and it may be tried again."""
    fault = local_fault(reason, "detail")

    assert ";" in str(fault)
    assert "{" not in str(fault)
    assert (fault.reason, fault.retryable) == (reason, True)


class TestNetwork:
    """Routes are a table here: what the machine leads to."""

    def network(self, *routes):
        """A network with routes to these."""
        return Network(lambda address: address in routes)

    def test_no_route_to_anywhere_means_the_network_is_gone(self):
        """Also to the host in question."""
        assert self.network().is_gone([HERE])

    @pytest.mark.parametrize("route", [*DEFAULT_ROUTE_ADDRESSES, HERE])
    def test_one_route_is_a_network(self, route):
        """A default route of either family, or one to the host itself."""
        assert not self.network(route).is_gone([HERE])

    def test_internal_network_without_default_route_is_one_while_what_was_reached_is(self):
        """The last address that was reached stands for it."""
        there, gone = self.network("10.0.0.1"), self.network()
        for network in (there, gone):
            network.reached("10.0.0.1")

        assert (there.is_gone([HERE]), gone.is_gone([HERE])) == (False, True)

    def test_this_machine_itself_proves_a_network_only_until_another_was_reached(self):
        """A crawl of a local server is one; the loopback is there when nothing else is."""
        network = self.network("127.0.0.1")
        network.reached("127.0.0.1")
        before = network.is_gone()
        network.reached("10.0.0.1")
        network.reached("127.0.0.1")

        assert (before, network.is_gone()) == (False, True)

    def test_the_system_is_asked_without_sending_anything(self):
        """The loopback has a route; of what cannot be asked about, nobody says it has none."""
        assert has_route("127.0.0.1")
        assert has_route("no address")


class TestClient:
    """A client whose sockets fail as they are told."""

    @pytest.fixture
    async def failing(self, monkeypatch):
        """A function: the answer of a client whose socket cannot be made."""

        async def asked(number, *routes, lookup=None, host="host.test"):
            async def found(_):
                return (HERE,)

            network = Network(lambda address: address in routes)
            client = Http1Client(
                FetchSettings(), allow_private=True, _lookup=lookup or found, _network=network
            )
            error = OSError(number, os.strerror(number))
            monkeypatch.setattr(client._guard, "socket", lambda _: raised(error))
            async with client:
                return await client.get(f"http://{host}/")

        return asked

    @pytest.mark.parametrize(
        ("number", "reason"),
        [
            (errno.EMFILE, "local: emfile"),
            (errno.ENFILE, "local: enfile"),
            (errno.ENOBUFS, "local: enobufs"),
            (errno.ENOMEM, "local: enomem"),
            (errno.EADDRNOTAVAIL, "local: eaddrnotavail"),
            (errno.ENETDOWN, "local: network"),
        ],
    )
    async def test_lack_of_something_here_is_raised_and_is_no_outcome(
        self, failing, number, reason
    ):
        """Whatever the network is."""
        with pytest.raises(LocalFault) as caught:
            await failing(number, HERE)

        assert caught.value.reason == reason

    @pytest.mark.parametrize("number", [errno.ENETUNREACH, errno.EHOSTUNREACH])
    async def test_no_route_to_a_host_is_the_hosts_while_there_is_a_network(self, failing, number):
        """D4: it is unreachable, as an IPv6 host is where there is IPv4 alone."""
        assert await failing(number, DEFAULT_ROUTE_ADDRESSES[0]) == Unreachable("connect: no route")

    @pytest.mark.parametrize(
        "number", [errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.EADDRNOTAVAIL]
    )
    async def test_no_route_at_all_is_a_fault_of_this_machine(self, failing, number):
        """The same errors, without a network."""
        with pytest.raises(LocalFault, match="no network") as caught:
            await failing(number)

        assert caught.value.reason == "local: network"

    async def test_missing_address_family_is_the_hosts(self, failing):
        """No address of our own to connect from, though ports are free."""
        assert await failing(errno.EADDRNOTAVAIL, DEFAULT_ROUTE_ADDRESSES[0]) == Unreachable(
            "connect: no route"
        )

    async def test_refusal_is_an_answer_whatever_the_network(self, failing):
        """Only a host refuses."""
        assert await failing(errno.ECONNREFUSED) == Unreachable("connect: refused")

    @pytest.mark.parametrize("number", [socket.EAI_AGAIN, socket.EAI_NONAME, socket.EAI_FAIL])
    async def test_failed_lookup_without_network_is_a_local_fault(self, failing, number):
        """The resolver cannot know."""

        async def lookup(_):
            raise socket.gaierror(number, "x")

        with pytest.raises(LocalFault, match="no network"):
            await failing(errno.EIO, lookup=lookup)

        assert isinstance(
            await failing(errno.EIO, DEFAULT_ROUTE_ADDRESSES[1], lookup=lookup), Unreachable
        )

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (OSError(errno.EMFILE, "x"), "local: emfile"),
            (MemoryError(), "local: enomem"),
            (RuntimeError("can't start new thread"), "local: threads"),
        ],
    )
    async def test_lookup_without_means_is_raised_and_not_remembered(self, error, reason):
        """The next one asks again."""
        answers = [error]

        async def lookup(_):
            if answers:
                raise answers.pop()
            return ("127.0.0.1",)

        async with Http1Client(FetchSettings(), _lookup=lookup) as client:
            with pytest.raises(LocalFault) as caught:
                await client.get("http://host.test/")
            again = await client.get("http://host.test/")

        assert caught.value.reason == reason
        assert again.reason == "private-address"

    async def test_resolver_that_does_not_find_what_it_found_is_out(self):
        """EAI_AGAIN may be one zone's, or all there is: the name that was found last tells."""
        is_out = False

        async def lookup(name):
            if name == "dead.test" or is_out:
                raise socket.gaierror(socket.EAI_AGAIN, "x")
            return ("127.0.0.1",)

        async with Http1Client(FetchSettings(), _lookup=lookup) as client:
            first = await client.get("http://dead.test/")
            await client.get("http://good.test/")
            client._resolver._known.clear()
            second = await client.get("http://dead.test/")
            client._resolver._known.clear()
            client._resolver._checked_at -= 100
            is_out = True
            with pytest.raises(LocalFault, match="resolver"):
                await client.get("http://dead.test/")

        assert first == second == Unreachable("dns: no answer")


def raised(error):
    """To raise in an expression."""
    raise error


class TestDescriptors:
    """The limit of open files."""

    @pytest.fixture
    def limits(self, monkeypatch):
        """Limits that are set on nobody."""
        box = {"soft": 1024, "hard": 4096, "allowed": 10**9}

        def setrlimit(_, pair):
            if pair[0] > box["allowed"]:
                raise ValueError("over what the system allows")
            box["soft"] = pair[0]

        monkeypatch.setattr(resource, "getrlimit", lambda _: (box["soft"], box["hard"]))
        monkeypatch.setattr(resource, "setrlimit", setrlimit)
        return box

    @pytest.mark.parametrize(
        ("soft", "hard", "allowed", "after"),
        [
            (1024, 4096, 10**9, 4096),
            (1024, 10**9, 10**9, 65_536),
            (1024, resource.RLIM_INFINITY, 10_240, 8192),
            (100_000, 100_000, 10**9, 100_000),
            (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 10**9, resource.RLIM_INFINITY),
        ],
    )
    def test_soft_limit_is_raised_as_far_as_the_hard_one_and_the_system_allow(
        self, limits, soft, hard, allowed, after
    ):
        """And never lowered."""
        limits.update(soft=soft, hard=hard, allowed=allowed)
        local_faults.raise_limit()

        assert limits["soft"] == after

    @pytest.mark.parametrize(
        ("limit", "visits", "kept"),
        [(65_536, 64, 1000), (1024, 64, 768), (1024, 400, 96), (64, 64, 1)],
    )
    def test_idle_connections_are_what_the_limit_leaves(self, limits, limit, visits, kept):
        """Of 1,000 wanted."""
        limits.update(soft=limit)

        assert local_faults.idle_connections(1000, visits) == kept

    @pytest.mark.parametrize(("limit", "is_short"), [(1024, False), (100, True)])
    def test_limit_too_low_for_the_slots_is_reported(self, limits, limit, is_short):
        """With the number that would do."""
        limits.update(soft=limit)

        assert ("ulimit -n 256" in local_faults.descriptor_shortage(64)) == is_short


async def test_idle_connections_give_their_descriptors_to_new_ones(net, monkeypatch):
    """The oldest first, and the request that was short of one succeeds."""
    servers = [
        await net.serve({"/": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"}) for _ in range(12)
    ]
    client = net.client()
    for server in servers[:10]:
        await client.get(f"{server.url}/")
    connector = client._session.connector
    idle, make = list(connector.idle), client._guard.socket
    assert len(idle) == 10

    def short(info):
        if len(connector.idle) == 10:
            raise OSError(errno.EMFILE, "Too many open files")
        return make(info)

    monkeypatch.setattr(connector, "_socket_factory", short)
    response = await client.get(f"{servers[10].url}/")
    await asyncio.sleep(0)

    assert response.status == 200
    assert list(connector.idle)[:2] == idle[8:]
    assert [one.is_connected() for one in idle] == [False] * 8 + [True] * 2
