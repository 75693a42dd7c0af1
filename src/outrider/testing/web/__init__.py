"""A local web for tests: described by a seed, served on loopback, with a record of every hit.

`violations` checks from that record alone whether a crawler was polite.
"""

from outrider.testing.web.graph import Shape
from outrider.testing.web.hits import Hit, Hits, read_hits
from outrider.testing.web.hostile import HOSTILE
from outrider.testing.web.messages import Asked, Behaviour, Reply, Script
from outrider.testing.web.politeness_check import Kind, Violation, violations
from outrider.testing.web.presets import rough_world, small_world, world_of
from outrider.testing.web.runners import WebProcess, WebThread
from outrider.testing.web.server import WebServer
from outrider.testing.web.site import Site, Web

__all__ = [
    "HOSTILE",
    "Asked",
    "Behaviour",
    "Hit",
    "Hits",
    "Kind",
    "Reply",
    "Script",
    "Shape",
    "Site",
    "Violation",
    "Web",
    "WebProcess",
    "WebServer",
    "WebThread",
    "read_hits",
    "rough_world",
    "small_world",
    "violations",
    "world_of",
]
