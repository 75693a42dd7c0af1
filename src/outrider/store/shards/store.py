"""All verbs over shards: to its callers one store, with the numbers and the id of one."""

from __future__ import annotations

from outrider.store.shards.finishing import Finishing
from outrider.store.shards.reading import Reading
from outrider.store.shards.saving import Saving
from outrider.store.shards.steering import Steering


class ShardedStore(Finishing, Steering, Saving, Reading):
    """A `FullStore` over several, each whole in itself."""
