"""The frontier for code without an event loop: the same names, no `await` (R4).

Every frontier runs its own loop in a thread of its own, so it works in scripts, in threads, and in
notebooks whose loop is already running.
"""

from outrider.blocking.crawls import crawls, removed_crawls
from outrider.blocking.frontier import Frontier
from outrider.blocking.queue import QueueHandle
from outrider.blocking.run_crawl import crawl

__all__ = ["Frontier", "QueueHandle", "crawl", "crawls", "removed_crawls"]
