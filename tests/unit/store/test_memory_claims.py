"""Claims in memory: URLs are counted once there are long ones, or many in a claim (C6)."""

import pytest

from outrider.store.byte_limits import MAX_RESULT_BYTES, MAX_SHORT_URL
from outrider.store.memory import MemoryStore
from outrider.store.protocol import ClaimRequest
from outrider.testing.builders import rules, task
from outrider.testing.clock import FakeClock


@pytest.mark.parametrize(("length", "count"), [(8000, 1000), (MAX_SHORT_URL, 3000)])
async def test_claim_of_long_urls_ends_at_the_limit_of_bytes(length, count):
    """C6: of URLs that are long, and of many that are just not."""
    store = MemoryStore(FakeClock())
    await store.configure("default", rules(min_delay=0.0))
    names = [f"https://h{n}.example/" for n in range(count)]
    await store.add([task(name + "x" * (length - len(name))) for name in names])

    claimed = await store.claim(ClaimRequest("default", "w", count))

    assert len(claimed.leases) == -(-MAX_RESULT_BYTES // length)
    assert claimed.wake_in == 0.0
