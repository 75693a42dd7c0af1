"""The facades of stores made of parts: one part serves each verb, as the protocol declares."""

from inspect import signature

import pytest

from outrider.clock import SystemClock
from outrider.store.forwarding import VERBS, verb_table
from outrider.store.redis import RedisStore
from outrider.store.redis.script_client import ScriptClient
from outrider.store.shards import ShardedStore


def redis_store():
    """A store that has no server."""
    return RedisStore(ScriptClient(None, "x:", SystemClock()), "id")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["redis", "shards"])
def test_part_has_the_signature_that_the_protocol_declares(kind, verb):
    """Names, kinds and defaults of all parameters; a claim of a shard may leave its run open."""
    store = redis_store() if kind == "redis" else ShardedStore([redis_store()])
    ours = signature(store._verbs[verb]).parameters
    _, *declared = signature(VERBS[verb]).parameters.values()

    assert [p for name, p in ours.items() if name != "closes"] == declared


def test_verb_that_no_part_serves_is_refused():
    """A store that lacks a verb cannot be built."""
    with pytest.raises(TypeError, match="served by no part"):
        verb_table(object())


def test_verb_that_two_parts_serve_is_refused():
    """Which of them should be called?"""
    store = redis_store()

    with pytest.raises(TypeError, match="RedisStore, RedisStore"):
        verb_table(store, store)
