"""What is said when SQLite lacks memory or descriptors: a file is neither damaged nor unusable."""

import errno
import os
from pathlib import Path

import apsw
import pytest

from outrider.errors import StoreFull, StoreUnusable
from outrider.store.embedded.file import explain_error

PATH = Path("crawl.outrider")


def test_lack_of_memory_is_not_reported_as_damage():
    """Nothing was changed, and it may be tried again."""
    assert isinstance(explain_error(PATH, apsw.NoMemError("out of memory")), StoreFull)


@pytest.mark.parametrize(("is_short", "kind"), [(True, StoreFull), (False, StoreUnusable)])
def test_file_that_cannot_be_opened_is_unusable_only_if_descriptors_are_left(
    monkeypatch, is_short, kind
):
    """SQLite says the same of both."""

    def opened(*_):
        if is_short:
            raise OSError(errno.EMFILE, "Too many open files")
        return os.dup(0)

    monkeypatch.setattr(os, "open", opened)

    assert type(explain_error(PATH, apsw.CantOpenError("unable to open"))) is kind
