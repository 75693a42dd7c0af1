"""The conformance suite over shards: the sharded store behaves as its shards do.

It runs over four shards with the queues spread, without the tests listed below, whose promises hold
within a shard only (M1). On a real cluster it runs the topics that depend most on sharding, or all
of them if OUTRIDER_CLUSTER=all. In `make stress` it also runs over one shard, and over four with
all queues on one of them, which is not home.
"""

import os

import pytest

from model_shard import ModelShard
from outrider.store.factory import open_store
from outrider.store.shards import ShardedStore
from outrider.store.shards.shard_set import shard_of
from outrider.testing import conformance
from outrider.testing.conformance.steps import configure
from outrider.testing.invariants import CheckedStore
from scale import ROUNDS

# These compare numbers, or numbers of steps, which differ over shards.
NUMBERED = {
    "Add": {"test_tasks_are_numbered_in_the_order_they_came"},
    "Addressing": {"test_a_rule_over_many_queues_comes_in_steps"},
    "EventLog": {
        "test_events_of_store_and_workers_have_one_numbering",
        "test_store_events_are_read_on_from_any_number",
        "test_forgotten_events_are_told_as_a_gap",
    },
    "QueuesInOrder": {"test_queues_are_listed_by_wake_time"},
    "Sizes": {"test_a_step_over_large_tasks_is_bounded", "test_the_list_of_leases_ends_early"},
    "Inspect": {
        "test_a_place_counts_those_before_it",
        "test_a_task_that_is_not_pending_has_no_position",
        "test_changes_are_numbered",
    },
}

# B3: a task is known within a shard, and this one moves to a queue of another shard.
KNOWN = {
    "Known": {
        "test_a_revisit_may_change_the_queue",
        "test_forgotten_task_moves_to_the_host_of_the_url_that_admits_it_again",
        "test_revisit_by_identity_keeps_the_key_that_a_link_gave",
        "test_revisit_by_identity_visits_another_host_from_its_own_queue",
    },
    "SetKnown": {"test_set_moves_a_pending_task_to_another_queue"},
    "QueueTasks": {"test_revisit_moves_a_task_to_the_list_of_another_queue"},
}

# These compare the order among queues: by precedence, priority, turn, session or export.
ORDERED = {
    "Budget": {
        "test_a_free_task_spends_nothing",
    },
    "Cache": {
        "test_a_queue_keeps_its_turn",
        "test_an_inactive_queue_keeps_its_place",
    },
    "Claim": {
        "test_a_claim_leases_up_to_its_limit",
        "test_the_breadth_discount_spreads_a_claim",
        "test_the_discount_counts_both_lanes",
        "test_the_discount_means_nothing_in_a_round",
        "test_the_discount_starts_again_with_each_claim",
    },
    "Counts": {
        "test_claim_counts_the_queues_it_wakes",
    },
    "Crawl": {
        "test_a_paused_crawl_leases_no_task",
    },
    "DrawnDelay": {
        "test_random_numbers_are_used_in_the_order_of_leases",
    },
    "Filters": {
        "test_a_dropped_task_speaks_no_longer_for_its_queue",
        "test_an_emptied_inactive_queue_loses_its_place",
    },
    "Finish": {
        "test_links_come_with_the_page",
    },
    "Sizes": {
        "test_a_claim_of_ordinary_queues_ends_early",
    },
    "Focus": {
        "test_a_focus_task_opens_a_new_session",
        "test_a_focus_task_opens_a_queue_that_waits",
        "test_a_raised_task_opens_its_queue",
        "test_time_alone_opens_no_queue_that_waits",
    },
    "LimitedClaim": {
        "test_a_claim_by_keys_keeps_the_order_among_them",
        "test_max_queues_activates_no_further_queue",
        "test_max_queues_bounds_the_queues_of_a_claim",
        "test_max_queues_combines_with_per_queue_keys_and_lend",
        "test_keys_combine_with_per_queue_and_lend",
    },
    "Loans": {
        "test_each_lease_takes_a_turn",
        "test_queues_compete_as_in_any_claim",
        "test_the_discount_holds",
    },
    "Order": {
        "test_a_served_queue_goes_behind_its_equals",
        "test_a_new_queue_is_behind_earlier_turns",
        "test_a_raised_task_moves_its_queue",
        "test_a_task_not_yet_due_does_not_speak_for_its_queue",
        "test_queue_precedence_goes_before_all",
        "test_round_robin_asks_for_the_turn_only",
        "test_round_robin_respects_queue_precedence",
        "test_the_queue_with_the_better_top_comes_first",
        "test_the_tops_precedence_goes_before_its_priority",
    },
    "Pricing": {
        "test_a_priority_update_moves_the_queue",
        "test_links_of_a_page_gather",
        "test_many_priorities_are_updated_at_once",
    },
    "Restoring": {
        "test_a_restored_queue_without_due_tasks_is_on_no_list",
        "test_a_visit_after_its_queue_was_exported_counts",
        "test_no_task_is_leased_before_the_end_is_restored",
        "test_pages_stay_right_while_the_crawl_runs",
    },
    "Saving": {
        "test_a_restored_crawl_continues_as_the_exported_one",
        "test_inactive_queues_keep_their_order",
        "test_later_is_the_same_as_now",
    },
    "Sessions": {
        "test_a_balance_of_one_rotates",
        "test_a_pages_links_keep_the_session",
        "test_a_queue_added_to_is_rescheduled_before_those_that_wake",
        "test_a_release_reschedules_at_once",
        "test_a_spent_session_ends_when_the_queue_could_be_served",
        "test_a_snoozed_inactive_queue_is_rescheduled_when_it_wakes",
        "test_a_snoozed_queue_makes_way_for_the_next",
        "test_a_spent_session_goes_to_the_back",
        "test_a_woken_queue_keeps_its_session",
        "test_a_woken_queue_is_rescheduled_by_the_next_claim",
        "test_an_activated_queue_may_wait_for_its_lane",
        "test_an_emptied_queue_is_held_again",
        "test_an_expiry_reschedules_at_once",
        "test_an_inactive_queue_keeps_its_place",
        "test_an_inactive_queue_that_cannot_be_served_loses_its_place",
        "test_better_inactive_queues_do_not_wait_for_worse_ready_ones",
        "test_dropping_the_last_task_does_not_refill",
        "test_equal_times_are_woken_in_order_of_the_queues",
        "test_held_queues_start_inactive",
        "test_queues_are_woken_in_order_of_their_time",
    },
    "Setting": {
        "test_a_crawl_wide_change_returns_all",
        "test_a_crawl_wide_change_moves_only_those_it_changes",
        "test_a_crawl_wide_change_retires_all_that_are_over_it",
        "test_a_ready_queue_is_rescheduled",
        "test_an_inactive_queue_goes_to_the_back",
        "test_letting_go_of_a_held_queue_opens_its_session",
        "test_setting_an_unchanged_value_reschedules",
    },
}


def all_on_one(key, count):
    """Place all queues on one shard, which is not home."""
    return 2


async def on_a_cluster(clock, places):
    """Three shards on three masters."""
    url = places.take("cluster").replace("redis://", "redis+cluster://", 1)
    return await open_store(f"{url}&shards=3", clock)


def over_models(count, placement=shard_of):
    """Return a maker of stores over that many models."""

    async def make(clock, places):
        return ShardedStore([ModelShard(clock) for _ in range(count)], placement)

    return make


MAKERS = {
    "Alone": over_models(1),
    "Lopsided": over_models(4, all_on_one),
    "Spread": over_models(4),
    "Cluster": on_a_cluster,
}
LEFT_OUT = {
    "Alone": [],
    "Lopsided": [NUMBERED],
    "Spread": [NUMBERED, KNOWN, ORDERED],
    "Cluster": [NUMBERED, KNOWN, ORDERED],
}
ALL = {name.removesuffix("Conformance") for name in conformance.__all__ if name != "open_crawl"}
WHOLE = os.environ.get("OUTRIDER_CLUSTER") == "all"  # noqa: TID251 - scales the suite only
TOPICS = {"Cluster": ALL if WHOLE else {"Add", "Crawl", "Finish", "Restoring", "Stops"}}


@pytest.fixture
async def store(request, clock, places):
    """One store over shards, with its invariants checked."""
    store = CheckedStore(await MAKERS[request.cls.setup](clock, places), clock)
    await configure(store)  # as the fixture `open_crawl`, which would be of this whole module
    yield store
    for crawl in await store.crawls():
        await store.check(crawl)
    await store.close()


def suite(setup):
    """Yield a class for each topic, without the tests that are left out."""
    for topic in sorted(TOPICS.get(setup, ALL)):
        left_out = set().union(*(lists.get(topic, ()) for lists in LEFT_OUT[setup]))
        gone = dict.fromkeys(left_out)  # pytest does not collect None
        parent = getattr(conformance, f"{topic}Conformance")
        yield (
            f"Test{setup}{topic}",
            type(f"Test{setup}{topic}", (parent,), {"setup": setup, **gone}),
        )


for _setup in MAKERS:
    if _setup in ("Spread", "Cluster") or ROUNDS > 1:  # one shard is compared with the model, too
        globals().update(suite(_setup))


def test_every_test_left_out_exists():
    """A list must not keep the old name of a renamed test."""
    for lists in (NUMBERED, KNOWN, ORDERED):
        for topic, names in lists.items():
            for name in names:
                assert hasattr(getattr(conformance, f"{topic}Conformance"), name), name
