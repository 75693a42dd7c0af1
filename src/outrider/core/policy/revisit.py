"""When a page that was read is read again (G3)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

_DAY: Final = 86_400.0
_Seconds = Annotated[float, Meta(gt=0, le=3650 * _DAY)]


class Revisiting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether and how often pages are read again."""

    policy: Annotated[
        Literal["none", "fixed", "value"],
        Meta(description="none; fixed: every so often; value: by how often each page changes"),
    ] = "none"
    every: Annotated[
        _Seconds, Meta(description="fixed: seconds between visits; value: the first of them")
    ] = _DAY
    min_age: Annotated[_Seconds, Meta(description="value: no page is read again sooner")] = 3600.0
    max_age: Annotated[
        _Seconds, Meta(description="value: every page is read again by then, however still")
    ] = 30 * _DAY
    visits_per_hour: Annotated[
        float, Meta(ge=0, le=1e9, description="value: revisits the crawl aims at; 0: by `every`")
    ] = 0.0
