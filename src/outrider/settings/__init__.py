"""One frozen tree of settings: a mapping, TOML text or a change is validated whole, or refused.

A fault names its path, its value and the fix, and nothing changes. What may stand where is read off
the structs themselves, so a field and its bounds, its error message and its documentation agree.
"""

from outrider.settings.kept import Joined, joined, to_text
from outrider.settings.naming import resolve
from outrider.settings.reading import merged, override_of, settings_of
from outrider.settings.reference import documented, render_reference
from outrider.settings.showing import to_mapping
from outrider.settings.toml import from_toml
from outrider.settings.tree import (
    CrawlSettings,
    EventSettings,
    LeaseSettings,
    QueueSettings,
    ScopeSettings,
    Settings,
    StoreSettings,
    TrapSettings,
    UrlSettings,
    crawl_rules,
)

__all__ = [
    "CrawlSettings",
    "EventSettings",
    "Joined",
    "LeaseSettings",
    "QueueSettings",
    "ScopeSettings",
    "Settings",
    "StoreSettings",
    "TrapSettings",
    "UrlSettings",
    "crawl_rules",
    "documented",
    "from_toml",
    "joined",
    "merged",
    "override_of",
    "render_reference",
    "resolve",
    "settings_of",
    "to_mapping",
    "to_text",
]
