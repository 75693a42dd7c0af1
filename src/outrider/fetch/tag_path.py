"""Where in a page an anchor stands: the nearest elements around it, short and bounded."""

from __future__ import annotations

import re
from typing import Final

from selectolax.lexbor import LexborNode

LONGEST: Final = 120
_ANCESTORS: Final = 5
_CLASS: Final = re.compile(r"\s*([A-Za-z_-][\w-]{0,30})", re.ASCII).match


def tag_path_of(anchor: LexborNode) -> str:
    """Tags with their first class, from the outermost of the nearest five to the anchor itself."""
    steps: list[str] = []
    node: LexborNode | None = anchor
    while node is not None and len(steps) <= _ANCESTORS and _is_element(tag := node.tag or "-"):
        steps.append(_step(tag, node))
        node = node.parent
    return ">".join(reversed(steps))[-LONGEST:]


def _is_element(tag: str) -> bool:
    """The document around the outermost element is called `-document`."""
    return not tag.startswith("-")


def _step(tag: str, node: LexborNode) -> str:
    """A class that begins with no letter is seldom a name."""
    found = _CLASS(node.attributes.get("class") or "")
    return f"{tag[:30]}.{found[1]}" if found else tag[:30]
