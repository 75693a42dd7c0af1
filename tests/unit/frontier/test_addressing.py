"""Hosts and suffixes under every keying: what acts, filters and overrides by key reach (A4)."""

import pytest

from outrider import Done, Frontier, InvalidInput, Link, SettingsError
from outrider.core.queue_action import Pause
from outrider.settings import from_toml, merged, settings_of

ROOT, WWW, PORT = "https://example.org/", "https://www.example.org/", "http://example.org:81/"
OTHER = "https://other.example/"
URLS = [ROOT, WWW, PORT, OTHER]


def keyed(by, **sections):
    """Settings under a keying."""
    return {"queue": {"key": by}, **sections}


async def states(frontier):
    """Key → state of every queue."""
    return {view.key: view.state.value async for view in frontier.queues()}


# ---- acts


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        (".org", {"org,example", "org,example,www", "org,example:81"}),
        (".example.org", {"org,example", "org,example,www", "org,example:81"}),
        (".www.example.org", {"org,example,www"}),
        ("example.org", {"org,example", "org,example:81"}),
        ("WWW.example.org", {"org,example,www"}),
        ("example.org:81", {"org,example:81"}),
        ("org,example", {"org,example"}),
    ],
)
async def test_act_reaches_surt_queues_by_suffix_host_and_key(opened, address, reached):
    """E7: as people write hosts, and as keys are written."""
    frontier = await opened(keyed("surt"))
    await frontier.add(URLS)

    await frontier.queue(address).pause()

    found = await states(frontier)
    assert {key for key, state in found.items() if state == "paused"} == reached


async def test_steer_takes_the_same_addresses_as_a_handle(opened):
    """E7: it is what handles use."""
    frontier = await opened(keyed("surt"))
    await frontier.add(URLS)

    assert await frontier.steer("example.org", Pause()) == 2
    assert await frontier.steer(".org", Pause()) == 3
    assert await frontier.steer("", Pause()) == 4
    with pytest.raises(InvalidInput, match="a suffix has no port"):
        await frontier.steer(".org:81", Pause())


async def test_action_on_a_host_applies_to_later_surt_queues(opened):
    """E7: for each of its ports."""
    frontier = await opened(keyed("surt"))
    await frontier.queue("example.org").retire()
    await frontier.queue(".example").set(balance=7)

    await frontier.add(URLS)

    assert (await states(frontier))["org,example:81"] == "retired"
    assert (await states(frontier))["org,example,www"] == "ready"
    assert (await frontier.queue("other.example").view()).grant == 7


async def test_view_of_a_surt_host_is_its_queue_or_the_sums_of_several(opened):
    """E8: a host mostly has one queue; of several there are sums, under the name as written."""
    frontier = await opened(keyed("surt"))
    await frontier.add([WWW, PORT])
    one, none = await frontier.queue("www.example.org").pause(), frontier.queue("no.example")
    of_port = await frontier.queue("example.org").view()
    await frontier.add([ROOT])
    several = await frontier.queue("example.org").view()

    assert (one.key, one.state.value) == ("org,example,www", "paused")
    assert of_port.key == "org,example:81"
    assert ((await none.view()).key, (await none.view()).pending) == ("example,no", 0)
    assert (several.key, several.queues, several.pending) == ("example.org", {"ready": 2}, 2)


@pytest.mark.parametrize(
    ("by", "address", "fix"),
    [
        ("buckets:4", ".org", "buckets, bucket-0000 to bucket-0003"),
        ("buckets:4", "example.org", "example.org is in bucket-0003"),
        ("buckets:4", "bucket-0004", "bucket-0000 to bucket-0003"),
        ("domain", "www.example.org", "write 'example.org'"),
        ("domain", ".www.example.org", "write 'example.org'"),
        ("host", "example.org:81", "write 'example.org'"),
        ("surt", "org,example,", "write 'org,example'"),
    ],
)
async def test_act_that_can_reach_no_queue_is_refused_with_the_fix(opened, by, address, fix):
    """E7: every act, also the look, and every filter by key."""
    frontier = await opened(keyed(by))
    await frontier.add(URLS)
    before, handle = await states(frontier), frontier.queue(address)
    calls = [
        handle.pause,
        handle.view,
        lambda: handle.set(delay=1.0),
        lambda: frontier.drop(key=address),
        lambda: frontier.replay(key=address),
        lambda: frontier.purge(key=address),
        lambda: frontier.rescore(key=address),
        lambda: anext(frontier.tasks(key=address)),
        lambda: anext(frontier.dead(key=address)),
    ]

    for call in calls:
        with pytest.raises(InvalidInput) as refused:
            await call()
        assert f"{address!r} reaches no queue: " in str(refused.value)
        assert fix in str(refused.value)
    assert await states(frontier) == before


@pytest.mark.parametrize("by", ["host", "domain", "surt", "buckets:4"])
async def test_queue_of_a_key_that_a_link_brought_is_reached_by_it(opened, by):
    """A4: whatever the keying, what is there is never out of reach."""
    frontier = await opened(keyed(by))
    keys = ["a.b.example.org:9", "x.example.org", "VIP", "vip,special"]
    await frontier.add([Link(f"{ROOT}{n}", key=key) for n, key in enumerate(keys)])

    for key in keys:
        assert (await frontier.queue(key).pause()).key == key
    assert set((await states(frontier)).values()) == {"paused"}


async def test_function_keying_takes_any_address(opened):
    """A4: a function may give any key."""
    frontier = await opened(keyed(lambda url: f"site.{url.host}:1"))
    await frontier.add(URLS)

    view = await frontier.queue(".example.org:1").pause()

    assert view.queues == {"paused": 2}


async def test_attached_frontier_without_the_function_takes_any_address(opened, store, clock):
    """A4: what cannot be imported here is no reason to refuse."""
    owner = await opened(keyed(lambda url: f"{url.host}:1"), store)
    await owner.add(URLS)

    async with Frontier.attach(store, clock=clock) as other:
        await other.configure({"keys": {"example.org:1": {"balance": 5}}})
        view = await other.queue("example.org:1").pause()

    assert (view.state.value, view.grant) == ("paused", 5)


async def test_filters_by_key_reach_surt_queues(opened):
    """C10: as acts do."""
    frontier = await opened(keyed("surt", politeness={"delay": 0.0}))
    await frontier.add(URLS)

    assert [task.url async for task in frontier.tasks(key="example.org")] == [ROOT, PORT]
    assert await frontier.drop(key=".example.org", dry_run=True) == 3
    assert await frontier.drop(key="www.example.org") == 1
    assert await frontier.drop(key="org,example:81") == 1


# ---- overrides by key


@pytest.mark.parametrize(
    ("by", "name", "reached"),
    [
        ("surt", ".org", {"org,example", "org,example,www", "org,example:81"}),
        ("surt", "Example.org", {"org,example", "org,example:81"}),
        ("surt", "example.org:81", {"org,example:81"}),
        ("surt", "org,example", {"org,example"}),
        ("domain", "example.org", {"example.org"}),
        ("domain", ".org", {"example.org"}),
        ("host", ".example.org", {"example.org", "www.example.org"}),
        ("buckets:1", "bucket-0000", {"bucket-0000"}),
    ],
)
async def test_override_reaches_the_queues_of_the_keying(opened, by, name, reached):
    """A4: of the given settings, and at run time."""
    given = await opened(keyed(by, keys={name: {"balance": 7}}))
    await given.add(URLS)
    said = await opened(keyed(by))
    await said.add(URLS)
    await said.configure({"keys": {name: {"balance": 7}}})

    for frontier in (given, said):
        assert {view.key async for view in frontier.queues() if view.grant == 7} == reached
        assert list(frontier.settings.keys) == [name.lower()]


@pytest.mark.parametrize(
    ("by", "name", "fix"),
    [
        ("buckets:4", ".org", "none has a suffix"),
        ("buckets:4", "example.org", "write 'bucket-0003'"),
        ("domain", "www.example.org", "write 'example.org'"),
        ("host", "example.org:81", "write 'example.org'"),
    ],
)
async def test_override_that_can_reach_no_queue_is_refused_with_the_fix(opened, by, name, fix):
    """N2: wherever it is given, with its path, and nothing changes."""
    frontier, tree = await opened(keyed(by)), keyed(by, keys={name: {"delay": 1.0}})
    toml = f'[queue]\nkey = "{by}"\n[keys."{name}"]\ndelay = 1.0\n'

    async def opening():
        await opened(tree)

    async def configuring():
        await frontier.configure({"keys": tree["keys"]})

    async def rekeying():
        other = await opened({"queue": {"key": len}, "keys": tree["keys"]})
        await other.configure({"queue": {"key": by}})

    async def reading():
        settings_of(tree)

    async def reading_toml():
        from_toml(toml)

    for call in (opening, configuring, rekeying, reading, reading_toml):
        with pytest.raises(SettingsError) as refused:
            await call()
        assert f'keys."{name}"' in str(refused.value)
        assert fix in str(refused.value)
    assert frontier.settings.keys == {}


async def test_crawl_kept_with_an_override_that_is_refused_by_now_can_be_joined(
    opened, store, clock
):
    """M6: an upgrade makes no crawl unreadable; other settings of it can still be changed."""
    owner = await opened(keyed("buckets:4"), store)
    await owner.add(URLS)
    older = (await store.settings("default")).replace('"keys":{}', '"keys":{".org":{"delay":1.0}}')
    await store.configure("default", owner.rules, older)

    async with Frontier.attach(store, clock=clock) as other:
        assert other.lacks == ""
        await other.configure({"politeness": {"delay": 3.0}})
        with pytest.raises(SettingsError, match="reaches no queue"):
            await other.configure({"keys": {".example": {"delay": 1.0}}})
        assert (await other.queue("bucket-0003").view()).delay == 3.0


# ---- precedence: what is set at run time wins over an exact key of the file

FILE = {"keys": {"www.example.org": {"delay": 9.0, "balance": 9}}}


async def delay_of(frontier):
    """Of the queue that the file names."""
    return (await frontier.queue("www.example.org").view()).delay


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("by_another", [True, False])
async def test_suffix_configured_at_run_time_wins_over_an_exact_key(
    opened, store, clock, is_there, by_another
):
    """A4: field by field, for existing and later queues."""
    owner = await opened(FILE, store)
    if is_there:
        await owner.add(URLS)
    async with Frontier.attach(store, clock=clock) as other:
        speaker = other if by_another else owner
        await speaker.configure({"keys": {".example.org": {"delay": 2.0}}})
    if not is_there:
        await owner.add(URLS)
    view = await owner.queue("www.example.org").view()

    assert (view.delay, view.grant) == (2.0, 9)
    again = await opened(FILE, store)
    assert await delay_of(again) == 2.0


async def test_key_configured_at_run_time_wins_over_suffixes_in_both_orders(opened):
    """A4: runtime by key > runtime by longest suffix, in any order."""
    for first, second in ((".example.org", "www.example.org"), ("www.example.org", ".example.org")):
        frontier = await opened(FILE)
        await frontier.add(URLS)
        delays = {".example.org": 2.0, "www.example.org": 3.0}
        await frontier.configure({"keys": {first: {"delay": delays[first]}}})
        await frontier.configure({"keys": {second: {"delay": delays[second]}}})

        assert await delay_of(frontier) == 3.0
        await frontier.unset('keys."www.example.org".delay')
        assert await delay_of(frontier) == 2.0
        await frontier.unset('keys.".example.org".delay')
        assert await delay_of(frontier) == 9.0


@pytest.mark.parametrize("name", ["www.example.org", ".example.org"])
async def test_the_later_of_an_act_and_a_setting_of_one_name_wins(opened, store, clock, name):
    """A4: both are set at run time; by a second process as well."""
    owner = await opened(FILE, store)
    await owner.add(URLS)
    async with Frontier.attach(store, clock=clock) as other:
        found = []
        await owner.queue(name).set(delay=1.0)
        found.append(await delay_of(owner))
        await other.configure({"keys": {name: {"delay": 2.0}}})
        found.append(await delay_of(owner))
        await other.queue(name).set(delay=3.0)
        found.append(await delay_of(owner))
        await owner.configure({"keys": {name: {"delay": 4.0}}})
        found.append(await delay_of(owner))

    assert found == [1.0, 2.0, 3.0, 4.0]


async def test_act_by_key_wins_over_a_suffix_configured_later(opened):
    """A4: and an act by suffix loses to a setting by key."""
    frontier = await opened(FILE)
    await frontier.add(URLS)
    await frontier.queue("www.example.org").set(delay=1.0)
    await frontier.configure(
        {"keys": {".example.org": {"delay": 2.0}, "example.org": {"delay": 5}}}
    )
    await frontier.queue(".org").set(delay=4.0)

    assert await delay_of(frontier) == 1.0
    assert (await frontier.queue("example.org").view()).delay == 5.0


async def test_crawl_wide_change_loses_to_an_exact_key(opened):
    """A4: exact key > longest suffix > runtime crawl-wide > crawl."""
    frontier = await opened(FILE)
    await frontier.add(URLS)
    await frontier.configure({"politeness": {"delay": 2.0}})

    assert await delay_of(frontier) == 9.0
    assert (await frontier.queue("example.org").view()).delay == 2.0


async def test_override_of_the_file_is_taken_back_at_run_time(opened):
    """A4: None is not a value that wins, but the absence of one."""
    frontier = await opened(FILE)
    await frontier.add(URLS)
    await frontier.configure({"keys": {"www.example.org": {"delay": None}}})
    await frontier.configure({"politeness": {"delay": 2.0}})
    view = await frontier.queue("www.example.org").view()

    assert (view.delay, view.grant) == (2.0, 9)


async def test_cost_of_a_suffix_configured_at_run_time_wins_over_an_exact_key(opened):
    """A4, E4: links are priced by the same layers as queues are ruled."""
    frontier = await opened({"keys": {"www.example.org": {"cost": "zero"}}})
    await frontier.configure({"keys": {".example.org": {"cost": "wag"}}})
    await frontier.add([f"{WWW}?a=1"])
    (lease,) = await frontier.claim(1)
    await frontier.finish(lease, Done(200))

    assert lease.about.cost == 2


def test_merged_settings_keep_overrides_as_they_were_written():
    """N5: settings are listed as they were given."""
    tree = merged(settings_of(keyed("surt")), {"keys": {"Example.org": {"delay": 1}}})

    assert tree.keys == {"example.org": {"delay": 1.0}}
