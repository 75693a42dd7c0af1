"""Measures, in a limited child process, what the tree of a costly page takes.

A handler may ask for any page's tree, and gets it in the process of the crawl. A page whose bound
(`parse_cost`) is high is therefore parsed elsewhere first: what it took there decides.
"""

from __future__ import annotations

from threading import BoundedSemaphore
from time import process_time
from typing import Final

from outrider.fetch.apart import Fault, call_once
from outrider.fetch.document import Document
from outrider.fetch.parse_cost import tree_bytes

MAX_CPU_SECONDS: Final = 2.0
MAX_BYTES: Final = 64 * 2**20
MAX_BYTES_PER_SOURCE_BYTE: Final = 24  # an ordinary tree takes about 7
CHECK_SECONDS: Final = 5.0
CHECK_MEMORY: Final = 2**29
_checks = BoundedSemaphore(2)  # at a time, however many handlers ask


def tree_fault(document: Document) -> str:
    """Why the document's tree may not be built beside a crawl, or "" if it may. Builds the tree."""
    started = process_time()
    tree = document.tree
    seconds = process_time() - started
    if seconds > MAX_CPU_SECONDS:
        return f"time: parsing it took {seconds:.1f} s, over {MAX_CPU_SECONDS:g} s"
    size = tree_bytes(tree.html or "")
    most = MAX_BYTES + MAX_BYTES_PER_SOURCE_BYTE * len(document.source)
    if size > most:
        return f"memory: its tree takes about {size >> 20} MiB, over {most >> 20} MiB"
    return ""


def tree_fault_of_source(source: bytes) -> str:
    """`tree_fault` of UTF-8 text: what the child process is asked."""
    return tree_fault(Document("", (("Content-Type", "text/html; charset=utf-8"),), source))


def checked_tree_fault(source: bytes) -> str:
    """`tree_fault` of UTF-8 text, found out in a child process that ends afterwards; blocks."""
    target = f"{__name__}:{tree_fault_of_source.__name__}"
    with _checks:
        told = call_once(target, source, str, seconds=CHECK_SECONDS, memory=CHECK_MEMORY)
    return f"{told.kind}: {told.detail}" if isinstance(told, Fault) else told
