"""The two lanes: which types of task belong to acquisition, and the burst (C4)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from outrider.core.task import ACQUISITION, DISCOVERY


class Lanes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Acquisition brings content, discovery brings everything else."""

    burst: Annotated[
        int, Meta(ge=1, le=1_000_000, description="leases in a row from one lane before the other")
    ] = 5
    acquisition: Annotated[
        tuple[str, ...], Meta(description="the task types of the acquisition lane")
    ] = ("article", "refresh", "history")

    def lane_of(self, kind: str) -> int:
        """The lane of a task type."""
        return ACQUISITION if kind in self.acquisition else DISCOVERY
