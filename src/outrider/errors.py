"""Every exception that Outrider raises: each says whose fault it is and whether to retry.

Expected answers (a refused URL, a lost lease, an empty claim) are values, not exceptions.
"""

from __future__ import annotations

from typing import Any


class OutriderError(Exception):
    """The base class of every error of Outrider."""

    retryable = False


class InvalidInput(OutriderError, ValueError):
    """The caller's fault: the message names the value and the fix; nothing was changed."""


class SettingsError(InvalidInput):
    """A setting is unknown, of the wrong type or out of range; the whole change was refused."""


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
    """The store failed."""


class StoreUnavailable(StoreError):
    """The store did not answer; whether the call was applied is unknown, but it can be repeated."""

    retryable = True


class StoreUnattended(StoreUnavailable):
    """No process holds the file any more: open it again, to hold it yourself."""


class StoreUnresponsive(StoreUnavailable):
    """The process that holds the file does not answer; the message names it."""


class StoreFull(StoreError):
    """There is no space to write: nothing was changed; make space, and try again."""

    retryable = True


class StoreUnusable(StoreError):
    """The file cannot be used as it is: the message says why, and what to do."""


class StoreDamaged(StoreUnusable):
    """Part of a file is not what was written; nothing is guessed, nothing is deleted."""


class PageTooCostly(OutriderError):
    """A page's tree takes too much memory or time to be built in the crawl's process.

    The message says what was measured. The page's body and text can still be read.
    """


class OutputError(OutriderError):
    """An output file is not what it should be: the message names it and the fix."""


class OutputFull(OutputError):
    """There is no space to write a batch: none of it stays; make space, and try again."""

    retryable = True


class OutputUnavailable(OutputError):
    """This machine has no descriptors or memory to write with: nothing of the batch was written."""

    retryable = True


class LocalFault(OutriderError):
    """This machine lacks a resource or its network: no fault of a page or a host.

    The visit of a handler that raises it is released without a penalty, and the executor pauses.
    `reason` is short and stable, the message says what is wrong and what to do.
    """

    retryable = True

    def __init__(self, message: str, reason: str = "local: machine") -> None:
        super().__init__(message)
        self.reason = reason
