"""Every exception Outrider raises: each says whose fault it is and whether to try again.

Expected answers (a refused URL, a lost lease, an empty claim) are values and never stand here.
"""

from __future__ import annotations

from typing import Any


class OutriderError(Exception):
    """The base class of every error of Outrider."""

    retryable = False


class InvalidInput(OutriderError, ValueError):
    """The caller's fault: the message names the thing, the place and the fix; nothing changed."""


class SettingsError(InvalidInput):
    """A setting is unknown, of the wrong type, or absurd; the whole change was refused."""


class ForeignLease(InvalidInput):
    """A lease of another store or crawl was passed; the rest of the batch was applied.

    `answers` holds what the call would have returned, with the foreign leases refused.
    """

    def __init__(self, message: str, answers: Any = None) -> None:
        super().__init__(message)
        self.answers = answers


class Closed(OutriderError):
    """The frontier is not open: use it inside `async with Frontier.open(...)`."""


class StoreError(OutriderError):
    """The store's fault."""


class StoreUnavailable(StoreError):
    """The store did not answer: unknown whether applied; every verb is safe to repeat."""

    retryable = True


class StoreUnattended(StoreUnavailable):
    """No process holds the file any more: open it again, to hold it yourself."""


class StoreUnresponsive(StoreUnavailable):
    """The process that holds the file is alive and does not answer: the message names it."""


class StoreFull(StoreError):
    """There is no space to write: nothing was changed; make space, and try again."""

    retryable = True


class StoreUnusable(StoreError):
    """A file that cannot be used as it is: the message has the reason and the fix."""


class StoreDamaged(StoreUnusable):
    """Part of a file is not what was written; nothing is guessed, nothing is thrown away."""


class PageTooCostly(OutriderError):
    """A page's tree takes too much memory or time to be built beside the crawl.

    The host's fault: the message says what was measured. Its body and text can be read.
    """


class OutputError(OutriderError):
    """An output file is not what it should be: the message names it and the fix."""


class OutputFull(OutputError):
    """There is no space to write a batch: none of it stays; make space, and try again."""

    retryable = True


class OutputUnavailable(OutputError):
    """This machine is out of descriptors or memory to write with: none of the batch stays."""

    retryable = True


class LocalFault(OutriderError):
    """This machine is out of something, or has no network: no fault of a page or a host.

    A handler that raises it has its visit released, unpunished, and the executor pauses. `reason`
    is short and stable, the message says what is wrong and what to do.
    """

    retryable = True

    def __init__(self, message: str, reason: str = "local: machine") -> None:
        super().__init__(message)
        self.reason = reason
