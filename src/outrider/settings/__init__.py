"""One frozen tree of settings: a mapping, TOML text or a change is validated whole, or refused.

A fault names its path, its value and the fix, and nothing changes. What may stand where is read off
the structs themselves, so a field and its bounds, its error message and its documentation agree.
"""

from outrider.settings.environment import environment_layer, person
from outrider.settings.kept import joined, to_text
from outrider.settings.layers import AnySettings, Ground, Layer, Layers, layers_of
from outrider.settings.leaves import assigned
from outrider.settings.listing import Setting, listed
from outrider.settings.naming import resolve
from outrider.settings.profiles import PROFILES
from outrider.settings.reading import merged, override_of, settings_of
from outrider.settings.reference import documented, render_reference
from outrider.settings.runtime import Change
from outrider.settings.showing import to_mapping
from outrider.settings.toml import file_layer, from_toml, toml_layer
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
    "PROFILES",
    "AnySettings",
    "Change",
    "CrawlSettings",
    "EventSettings",
    "Ground",
    "Layer",
    "Layers",
    "LeaseSettings",
    "QueueSettings",
    "ScopeSettings",
    "Setting",
    "Settings",
    "StoreSettings",
    "TrapSettings",
    "UrlSettings",
    "assigned",
    "crawl_rules",
    "documented",
    "environment_layer",
    "file_layer",
    "from_toml",
    "joined",
    "layers_of",
    "listed",
    "merged",
    "override_of",
    "person",
    "render_reference",
    "resolve",
    "settings_of",
    "to_mapping",
    "to_text",
    "toml_layer",
]
