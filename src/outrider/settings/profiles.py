"""Profiles: named sets of settings for a kind of crawl; every other layer may change them (N4).

They name no entry of a table with names of the user's own, so that none needs to be removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from outrider.settings.errors import InvalidSetting, unknown_setting

PROFILE: Final = "profile"  # its name among the settings
POLITE: Final = "polite"

PROFILES: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    POLITE: {},
    "archive": {
        "politeness": {
            "factor": 5.0,
            "min_delay": 3.0,
            "max_delay": 30.0,
            "respect_crawl_delay": 300.0,
            "max_in_flight": 1,
        },
        "budget": {"hold_queues": True, "balance": 3000, "total_budget": -1, "cost": "unit"},
        "retry": {"max_retries": 30, "base": 900.0, "cap": 900.0, "jitter": 0.0},
        "output": {"format": "warc", "warc_requests": True},
    },
    "news": {
        "queue": {"max_pending": 10_000, "max_depth": 10},
        "types": {"builtin": "news"},
        "lanes": {"burst": 5, "acquisition": ["article", "refresh", "history"]},
        "scoring": {"scorer": "default"},
    },
    "paced": {
        "politeness": {
            "delay": 5.0,
            "delay_to": 15.0,
            "count_from": "start",
            # As many as begin within half an hour, so that no visit waits for another's end.
            "max_in_flight": 360,
            "blocks_to_snooze": 0,
        },
        "queue": {"key": "buckets:1", "tie": "shuffle", "max_depth": 1_000_000},
        "scoring": {"scorer": "type"},
        "retry": {
            "max_retries": 3,
            "base": 900.0,
            "cap": 86_400.0,
            "jitter": 0.0,
            "spread": 300.0,
            "every_failure": True,
        },
    },
    "fast": {
        "politeness": {"delay": 0.0, "max_in_flight": 16},
        "executor": {"slots": 256},
    },
}
ABOUT: Final[Mapping[str, str]] = {
    POLITE: "the defaults: one visit of a host at a time, with a delay after each",
    "archive": "as Heritrix: whole sites one after the other, many slow retries; written as WARC",
    "news": "links get types; articles and discovery alternate; few pages may be pending",
    "paced": "one pace per crawl: visits 5 to 15 s apart, lists before goods, long cooldowns",
    "fast": "your own servers: no delay, many visits of a host at a time",
}


def profile_of(name: object) -> Mapping[str, Mapping[str, Any]]:
    """Return the settings of a profile; raises InvalidSetting."""
    if not isinstance(name, str):
        raise InvalidSetting((PROFILE,), name, f"give one of: {', '.join(PROFILES)}")
    if name not in PROFILES:
        fault = unknown_setting((name,), name, PROFILES, {})
        raise InvalidSetting((PROFILE,), name, fault.problem.replace("setting", PROFILE))
    return PROFILES[name]
