import asyncio
import socket

import pytest

from outrider.fetch import dns
from outrider.fetch.dns import AddressGuard, ConnectTo, Resolver
from outrider.fetch.response import NoConnection


class Phonebook:
    """Answers lookups in order, and counts them; the last answer stays."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def __call__(self, host):
        """One lookup."""
        self.asked.append(host)
        await self.is_open.wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def resolver(phonebook, *, connect_to=None, allow_private=False, max_age=300.0):
    """One that asks the phonebook."""
    guard = AddressGuard(allow_private=allow_private)
    return Resolver(guard, ConnectTo(connect_to or {}), max_age=max_age, lookup=phonebook)


async def places(of, host, port=80):
    """Where a connection would go."""
    return [(each["host"], each["port"]) for each in await of.resolve(host, port)]


async def reason(of, host):
    """Why there is no connection."""
    with pytest.raises(NoConnection) as caught:
        await of.resolve(host, 80)
    return caught.value.reason


async def test_an_answer_is_remembered_for_its_age():
    """Asked again within the age, nobody is looked up."""
    book = Phonebook(("1.1.1.1",), ("1.0.0.1",))
    remembering, forgetful = resolver(book), resolver(book, max_age=0.0)
    assert [await places(remembering, "a.test") for _ in range(3)] == [[("1.1.1.1", 80)]] * 3
    assert book.asked == ["a.test"]
    await forgetful.resolve("a.test", 80)
    await forgetful.resolve("a.test", 80)
    assert len(book.asked) == 3


async def test_those_who_ask_at_once_share_one_lookup():
    """A hundred visits of a new host are one question."""
    book = Phonebook(("1.1.1.1",))
    of = resolver(book)
    answers = await asyncio.gather(*(places(of, "a.test") for _ in range(100)))
    assert answers == [[("1.1.1.1", 80)]] * 100
    assert book.asked == ["a.test"]


async def test_a_lookup_goes_on_when_the_one_who_asked_is_gone():
    """Cancelling one visit takes nothing from the others."""
    book = Phonebook(("1.1.1.1",))
    book.is_open.clear()
    of = resolver(book)
    first, second = (asyncio.create_task(places(of, "a.test")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    book.is_open.set()
    assert await second == [("1.1.1.1", 80)]
    assert first.cancelled()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (socket.gaierror(socket.EAI_NONAME, ""), "dns: no such host"),
        (socket.gaierror(socket.EAI_AGAIN, ""), "dns: no answer"),
        (socket.gaierror(socket.EAI_FAIL, ""), "dns: failed"),
        (OSError("broken"), "dns: failed"),
        (UnicodeError("label too long"), "dns: no such host"),
    ],
)
async def test_failed_lookup_is_reported_and_cached_briefly(error, expected):
    """A dead name is not asked for by every visit."""
    book = Phonebook(error)
    of = resolver(book)
    assert [await reason(of, "a.test") for _ in range(3)] == [expected] * 3
    assert len(book.asked) == 1
    assert 0 < of._known["a.test"].until - asyncio.get_running_loop().time() <= dns.FAILURE_MAX_AGE


async def test_a_lookup_that_takes_too_long_is_given_up_but_not_lost():
    """What ended the wait is marked; the answer, once there, serves the next."""
    book = Phonebook(("1.1.1.1",))
    book.is_open.clear()
    of = resolver(book)
    waiting = asyncio.create_task(places(of, "a.test"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await waiting
    assert caught.value.__notes__ == [dns.RESOLVING_NOTE]
    book.is_open.set()
    assert await places(of, "a.test") == [("1.1.1.1", 80)]
    assert book.asked == ["a.test"]


async def test_a_name_that_leads_inside_is_refused():
    """It is judged by its addresses, whatever it is called."""
    of = resolver(Phonebook(("127.0.0.1", "::1")))
    assert await reason(of, "localtest.me") == "private-address"


async def test_of_mixed_answers_only_the_public_ones_are_used():
    """An inner address beside a public one is no way in."""
    of = resolver(Phonebook(("10.0.0.1", "1.1.1.1", "fd00::1")))
    assert await places(of, "a.test") == [("1.1.1.1", 80)]


async def test_a_name_that_changes_its_mind_is_refused_then():
    """Every answer is judged: a public address at first is no licence for a private one later."""
    of = resolver(Phonebook(("1.1.1.1",), ("169.254.169.254",)), max_age=0.0)
    assert await places(of, "rebinding.test") == [("1.1.1.1", 80)]
    assert await reason(of, "rebinding.test") == "private-address"


async def test_literal_addresses_are_judged_without_a_lookup():
    """They need none, and get no exception."""
    book = Phonebook(())
    of = resolver(book)
    assert await places(of, "1.1.1.1") == [("1.1.1.1", 80)]
    assert await reason(of, "127.0.0.1") == "private-address"
    assert await reason(of, "::1") == "private-address"
    assert book.asked == []


async def test_private_answers_are_used_where_they_are_allowed():
    """For those who crawl their own network."""
    of = resolver(Phonebook(("10.0.0.1",)), allow_private=True)
    assert await places(of, "intranet") == [("10.0.0.1", 80)]


async def test_a_target_takes_the_place_of_the_lookup_and_of_the_guard():
    """What settings name is connected to as it stands, with its port, or else with the URL's."""
    book = Phonebook(("10.0.0.7",))
    named = {".web.test": "127.0.0.1:8080", "b.test": "inner.test", "8.8.8.8": "127.0.0.1:81"}
    of = resolver(book, connect_to=named)
    assert await places(of, "a.web.test", 443) == [("127.0.0.1", 8080)]
    assert await places(of, "8.8.8.8") == [("127.0.0.1", 81)]
    assert await places(of, "b.test", 443) == [("10.0.0.7", 443)]
    assert book.asked == ["inner.test"]


async def test_few_addresses_of_each_family_are_tried():
    """A host with many dead addresses does not cost an attempt for each."""
    of = resolver(Phonebook((*(f"1.1.1.{i}" for i in range(9)), "2606::1", "2606::2")))
    assert [host for host, _ in await places(of, "a.test")] == [
        *("1.1.1.0", "1.1.1.1"),
        *("2606::1", "2606::2"),
    ]


async def test_the_names_remembered_are_bounded(monkeypatch):
    """The oldest are forgotten first."""
    monkeypatch.setattr(dns, "MAX_NAMES", 2)
    book = Phonebook(("1.1.1.1",))
    of = resolver(book)
    for host in ("a.test", "b.test", "c.test", "b.test", "a.test"):
        await of.resolve(host, 80)
    assert book.asked == ["a.test", "b.test", "c.test", "a.test"]


async def test_name_looked_up_again_becomes_the_newest(monkeypatch):
    """What is forgotten first is what was looked up longest ago."""
    monkeypatch.setattr(dns, "MAX_NAMES", 2)
    of = resolver(Phonebook(("1.1.1.1",)), max_age=0.0)
    for host in ("a.test", "b.test", "a.test", "c.test"):
        await of.resolve(host, 80)
    assert list(of._known) == ["a.test", "c.test"]


async def test_the_system_is_asked_in_a_thread():
    """The loop goes on meanwhile, which the guard of our tests would tell."""
    of = resolver(None, allow_private=True)
    try:
        assert {host for host, _ in await places(of, "localhost")} & {"127.0.0.1", "::1"}
    finally:
        await of.close()


async def test_closing_the_resolver_fails_pending_lookups():
    """Closing is no cancellation of the one who asked."""
    book = Phonebook(("1.1.1.1",))
    book.is_open.clear()
    of = resolver(book)
    waiting = asyncio.create_task(reason(of, "a.test"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await of.close()
    assert await waiting == "dns: failed"
