"""Settings: one frozen tree; a mapping, TOML text or a change is validated whole, or refused (N2).

An error names the path, the value and the fix, and nothing changes. What a field may hold is read
off the structs, so its bounds, its error message and its documentation agree.
"""

from outrider.settings.code_references import resolve
from outrider.settings.dump import to_mapping
from outrider.settings.environment import environment_layer, person
from outrider.settings.foreign_code import refuse_foreign_code
from outrider.settings.layers import AnySettings, BaseSettings, Layer, Layers, layers_of
from outrider.settings.listing import Setting, list_settings
from outrider.settings.paths import parse_assignments
from outrider.settings.profiles import PROFILES
from outrider.settings.reference import documented_settings, render_reference
from outrider.settings.runtime import Change
from outrider.settings.schema import (
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
from outrider.settings.stored import join_stored, to_text
from outrider.settings.toml import file_layer, from_toml, toml_layer
from outrider.settings.validation import merged, override_of, settings_of

__all__ = [
    "PROFILES",
    "AnySettings",
    "BaseSettings",
    "Change",
    "CrawlSettings",
    "EventSettings",
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
    "crawl_rules",
    "documented_settings",
    "environment_layer",
    "file_layer",
    "from_toml",
    "join_stored",
    "layers_of",
    "list_settings",
    "merged",
    "override_of",
    "parse_assignments",
    "person",
    "refuse_foreign_code",
    "render_reference",
    "resolve",
    "settings_of",
    "to_mapping",
    "to_text",
    "toml_layer",
]
