"""Files of every release are read by this one: all that is in them, and who comes next."""

import json
import runpy
from pathlib import Path

import pytest

from outrider.store.embedded.file import FORMAT
from outrider.store.embedded.log_pages import VERSION
from outrider.store.factory import examine, open_store
from outrider.testing import FakeClock
from outrider.testing.audit import check

HERE = Path(__file__).parent
MAKE = runpy.run_path(str(HERE / "make.py"))
RELEASES = {path.stem: json.loads(path.read_text("utf-8")) for path in HERE.glob("*.json")}
FILES = [(stem, name) for stem, release in RELEASES.items() for name in release["files"]]


@pytest.mark.parametrize(("stem", "name"), FILES, ids=[name for _, name in FILES])
async def test_golden_file_shows_what_it_showed_its_own_release(stem, name, tmp_path):
    """Statistics, queues, tasks, heatmap, changes, roots, and the next claims in their order."""
    found = await MAKE["told"](MAKE["copied"](name, tmp_path))

    for crawl, views in RELEASES[stem]["told"]["views"].items():
        for what, told in views.items():
            shown = found["views"][crawl][what]
            if what in ("queues", "tasks", "changes"):
                pairs = zip(shown, told, strict=True)
                shown = [without_newer_fields(new, old) for new, old in pairs]
            if what == "leases":
                shown = [
                    lease_without_newer_fields(*pair) for pair in zip(shown, told, strict=True)
                ]
            if what in ("crawl", "worker totals"):
                shown = without_newer_fields(shown, told)
            assert shown == told, (crawl, what)
    assert found["views"].keys() == RELEASES[stem]["told"]["views"].keys()
    assert found["claims"] == RELEASES[stem]["told"]["claims"]


def without_newer_fields(shown, told):
    """Leave out of a view the fields that its release did not have."""
    return {name: value for name, value in shown.items() if name in told}


def lease_without_newer_fields(shown, told):
    """Leave them out of a lease's view, of the lease in it, and of its task, which is a list."""
    lease = without_newer_fields(shown["lease"], told["lease"])
    lease["about"] = lease["about"][: len(told["lease"]["about"])]
    return {**without_newer_fields(shown, told), "lease": lease}


@pytest.mark.parametrize("name", [name for _, name in FILES])
async def test_file_without_counts_is_counted_when_it_is_opened(name, tmp_path):
    """O5: queues by state and tasks by priority, which the release did not write."""
    store = await open_store(str(MAKE["copied"](name, tmp_path)), FakeClock())
    for crawl in await store.crawls():
        await check(store, crawl)
    await store.close()


@pytest.mark.parametrize("name", [name for _, name in FILES])
def test_golden_file_is_healthy(name, tmp_path):
    """Also the one whose process was killed: its log is whole."""
    found = examine(MAKE["copied"](name, tmp_path), FakeClock())

    assert found.is_healthy, found.findings


def test_current_format_has_a_golden_file():
    """Whoever changes the format adds one: `.venv/bin/python tests/golden/make.py`."""
    assert (FORMAT, VERSION) in {(r["format"], r["pages"]) for r in RELEASES.values()}


def test_every_golden_file_has_expected_content():
    """None is there that no test reads."""
    assert {path.name for path in HERE.glob("*.outrider")} == {name for _, name in FILES}
