"""Log lines: text of stores and pages reaches no handler unescaped."""

import io
import logging
import re
from pathlib import Path

import pytest

import outrider
from outrider import Frontier
from outrider.cli.app import LogLines
from outrider.frontier.context import log_failure
from outrider.frontier.live_settings import RUNTIME_SETTINGS
from outrider.logs import logger_of
from outrider.store.memory import MemoryStore
from outrider.store.protocol import SharedValueWrite
from outrider.testing import FakeClock
from outrider.testing.conformance.steps import configure

EVIL = "\x1b]0;owned\x07\x9b2J\x7f\u202e\u2066\u2028\r\nWARNING forged"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture
def written():
    """What a handler of the usual kind writes, line by line."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logging.getLogger("outrider").addHandler(handler)
    yield stream.getvalue
    logging.getLogger("outrider").removeHandler(handler)


def assert_safe(text, lines=1):
    """No control character but the end of each line, and no line that was not logged."""
    assert not CONTROLS.search(text), ascii(text)
    assert text.count("\n") == lines
    assert not re.search("^WARNING forged", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("politeness.delay", f'{{"value": "{EVIL}"}}'),
        (EVIL, '{"value": 1}'),
        (f'keys."{EVIL}".delay', '{"value": 1}'),
        ("scoring.scorer", f'{{"value": {[EVIL]!r}}}'.replace("'", '"')),
        ('scoring.weights."\\u001b[2J"', '{"value": "x"}'),
    ],
    ids=["text", "name", "key", "value", "type"],
)
async def test_hostile_runtime_setting_is_logged_without_control_characters(name, text, written):
    """N1: a note is anybody's who can write to the store."""
    store = MemoryStore(FakeClock())
    await configure(store)
    await store.put_values("default", [SharedValueWrite(RUNTIME_SETTINGS, name, text)])
    async with Frontier.open(store, clock=FakeClock()):
        pass

    assert_safe(written())
    assert "a setting is ignored" in written()


async def test_failing_watcher_is_logged_without_control_characters(written):
    """The text of an exception may be a page's or a store's."""

    def fails(_old, _new):
        raise ValueError(EVIL)

    async with Frontier.open("memory://", clock=FakeClock()) as frontier:
        frontier.watch_settings(fails)
        await frontier.configure({"lease": {"seconds": 5.0}})

    assert "ValueError" in written()
    assert_safe(written(), lines=written().count("\n"))


def test_record_whose_arguments_do_not_fit_is_still_logged(written):
    """A log line never raises."""
    logger_of("outrider.test").warning("100 %d %s", EVIL)

    assert_safe(written())


def test_every_module_takes_its_logger_from_one_place():
    """A logger taken from `logging` itself would not be escaped."""
    sources = Path(outrider.__file__).parent.rglob("*.py")
    using = {
        path.name for path in sources if "getLogger(__name__" in path.read_text(encoding="utf-8")
    }

    assert using == set()


def test_command_line_writes_records_of_libraries_escaped(capsys):
    """Asyncio logs the text of exceptions that no task awaited."""
    error = ValueError(EVIL)
    record = logging.getLogger("asyncio").makeRecord(
        *("asyncio", logging.ERROR, __file__, 1, "never retrieved: %s", (EVIL,)),
        (ValueError, error, None),
    )
    LogLines().handle(record)
    said = capsys.readouterr().err

    assert_safe(said, lines=said.count("\n"))
    assert all(line.startswith("outrider: ") for line in said.splitlines())
    assert "never retrieved" in said


def test_trouble_behind_a_crawl_is_logged_without_control_characters(written):
    """The error may quote a server."""

    class Task:
        def cancelled(self):
            return False

        def exception(self):
            return ValueError(EVIL)

    log_failure(Task())

    assert_safe(written())
