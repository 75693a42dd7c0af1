"""The warning about what a crash of the server may lose."""

import pytest

from outrider.store.postgres.migrate import durability_warning


class Server:
    """A connection to a server with these settings."""

    def __init__(self, fsync, commits):
        self._settings = [(fsync, commits)]

    def execute(self, _):
        """Return the result."""
        return self

    def fetchall(self):
        """Return all its rows."""
        return self._settings


@pytest.mark.parametrize("commits", ["on", "local", "remote_write", "remote_apply"])
def test_synchronous_commits_need_no_warning(commits):
    """M4: whatever was acknowledged survives a crash."""
    assert not durability_warning(Server("on", commits))


def test_asynchronous_commits_are_reported_with_the_fix():
    """M4: commits that do not wait for the disk."""
    assert "ALTER ROLE name SET synchronous_commit = on" in durability_warning(Server("on", "off"))


def test_missing_fsync_is_reported():
    """M4: whatever synchronous_commit is."""
    assert "lose or damage anything" in durability_warning(Server("off", "on"))
