"""The settings kept with a crawl are as durable as the rest of it."""

import json

import pytest

from outrider.store.embedded import EmbeddedStore
from outrider.store.factory import rescue


async def kept(path, clock):
    """The settings of all crawls of a file."""
    store = EmbeddedStore.open(path, clock)
    try:
        return {name: json.loads(await store.settings(name)) for name in await store.crawls()}
    finally:
        await store.close()


@pytest.mark.parametrize("name", ["closed", "killed"])
async def test_settings_survive_in_a_snapshot(request, name, clock):
    """One crawl was configured before the snapshot only, the other after it too."""
    found = await kept(request.getfixturevalue(name), clock)

    assert list(found) == ["default", "news"]
    assert [tree["retry"] for tree in found.values()] == [{"max_retries": 0}] * 2


async def test_rescue_keeps_settings(killed, clock, tmp_path):
    """With the rules they belong to."""
    before = await kept(killed, clock)
    rescue(killed, tmp_path / "new", clock)

    assert await kept(tmp_path / "new", clock) == before
