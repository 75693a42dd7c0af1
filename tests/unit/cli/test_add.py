"""`outrider add`: what comes in, and what is said of what does not."""

import asyncio
import io
import os
import threading

import pytest

from loop_turns import cancelled, started
from outrider import Done
from outrider.cli import add
from outrider.errors import InvalidInput, StoreUnavailable

A = "https://a.example/"
B = "https://b.example/"


@pytest.fixture
def file(tmp_path):
    """A file of these bytes."""

    def write(text):
        path = tmp_path / "urls.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


@pytest.fixture
def tasks(crawling):
    """The tasks of the crawl, by URL."""

    async def read(frontier):
        return {task.url: task async for task in frontier.tasks()}

    return lambda: crawling(read)


@pytest.mark.usefixtures("store")
class TestArguments:
    def test_urls_are_added(self, outrider, tasks):
        """And counted."""
        answer = outrider("add", "x", A, B)

        assert (answer.code, answer.out, answer.err) == (0, "added 2, refused 0\n", "")
        assert set(tasks()) == {A, B}

    def test_revisit_keeps_fields_that_are_not_given(self, outrider, tasks, crawling, file, clock):
        """B3: by an option, or by a line of JSON without the fields."""

        async def end(frontier):
            for lease in await frontier.claim(9):
                await frontier.finish(lease, Done(status=200))

        fields = '"type":"article","tag":"t","depth":3,"meta":{"a":1}'
        outrider("add", "x", "--from", file(f'{{"url":"{A}",{fields}}}\n{{"url":"{B}",{fields}}}'))
        before = tasks()
        crawling(end)
        clock.advance(60)
        by_option = outrider("add", "x", A, "--known", "revisit")
        lines = file(f'{{"url":"{B}","known":"revisit","type":"page"}}')
        by_line = outrider("add", "x", "--from", lines)
        after = tasks()

        assert (by_option.out, by_line.out) == ("added 1, refused 0\n",) * 2
        assert after[A].state == after[B].state == "pending"
        assert [(one.type, one.tag, one.depth, one.meta) for one in (after[A], after[B])] == [
            ("article", "t", 3, {"a": 1}),
            ("page", "t", 3, {"a": 1}),
        ]
        assert (after[A].lane, after[A].priority) == (before[A].lane, before[A].priority)

    def test_private_address_is_refused_with_the_option_that_admits_it(self, outrider, tasks):
        """K5: the option sets the crawl's setting, once, for this add and for all workers."""
        private = "http://127.0.0.1/"
        refused = outrider("add", "x", private)
        admitted = [outrider("add", "x", private, "--allow-private") for _ in range(2)]
        later = outrider("add", "x", f"{private}more")
        history = outrider("config", "history", "x", "--json").lines

        assert refused.code == 1
        assert "to visit it, set url.allow_private (--allow-private)" in refused.err
        assert [answer.code for answer in (*admitted, later)] == [0, 0, 0]
        assert set(tasks()) == {private, f"{private}more"}
        assert [(one["path"], one["new"]) for one in history] == [("url.allow_private", True)]

    def test_a_known_url_is_no_mistake(self, outrider):
        """B3: it is in the crawl, which is what was asked."""
        outrider("add", "x", A)
        answer = outrider("add", "x", A)

        assert (answer.code, answer.out) == (0, "added 0, refused 1: 1 duplicate\n")
        assert answer.err == ""

    def test_a_refused_url_is_named_with_its_reason(self, outrider, tasks):
        """A2: and the others go through."""
        answer = outrider("add", "x", "ftp://a.example/", B)

        assert answer.code == 1
        assert answer.out == "added 1, refused 1: 1 scheme\n"
        assert answer.err.startswith("outrider: scheme: ftp://a.example/ (")
        assert set(tasks()) == {B}

    def test_the_answer_as_json(self, outrider):
        """One object of a stable shape."""
        answer = outrider("add", "x", A, A, "ftp://a.example/", "--json")

        assert answer.code == 1
        assert answer.json["added"] == 1
        assert answer.json["refused"] == {"duplicate": 1, "scheme": 1}
        (problem,) = answer.json["problems"]
        assert problem.keys() == {"line", "url", "reason", "detail"}
        assert (problem["line"], problem["reason"]) == (None, "scheme")

    def test_options_hold_for_every_url(self, outrider, tasks):
        """B1."""
        options = ["--type", "article", "--depth", "3", "--priority", "-7.5", "--tag", "t"]
        outrider("add", "x", A, *options, "--key", "k", "--origin", "sitemap", "--delay", "2h")

        task = tasks()[A]
        assert (task.type, task.depth, task.priority) == ("article", 3, -7.5)
        assert (task.tag, task.key, task.origin) == ("t", "k", "sitemap")
        assert task.due_at - task.discovered_at == 7200

    def test_priorities_have_names(self, outrider, tasks):
        """F8."""
        outrider("add", "x", A, "--priority", "critical", "--forced")

        assert tasks()[A].priority == -1000.0
        assert tasks()[A].precedence == 0

    def test_a_known_url_may_be_raised(self, outrider, tasks):
        """B3."""
        outrider("add", "x", A)
        outrider("add", "x", A, "--known", "raise", "--priority", "1")

        assert tasks()[A].priority == 1.0

    @pytest.mark.parametrize(
        ("options", "word"),
        [
            (["--known", "forget"], "known"),
            (["--priority", "soon"], "priority"),
            (["--priority", "nan"], "priority"),
            (["--type", ""], "type"),
            (["--key", "\n"], "key"),
        ],
    )
    def test_an_absurd_option_is_the_links_fault(self, outrider, options, word):
        """Said in words, and nothing is added."""
        answer = outrider("add", "x", A, *options)

        assert answer.code == 1
        assert "added 0, refused 1: 1 bad-link" in answer.out
        assert word in answer.err

    def test_nothing_to_add_is_refused(self, outrider):
        """With the way out."""
        answer = outrider("add", "x")

        assert (answer.code, answer.out) == (2, "")
        assert "--from FILE" in answer.err

    def test_a_crawl_is_made_by_its_name(self, outrider, store):
        """I1."""
        outrider("add", "x", A, "--crawl", "news")

        assert asyncio.run(store.crawls()) == ["news"]

    def test_a_cancelled_crawl_takes_nothing(self, outrider):
        """I1: and says so."""
        outrider("add", "x", A)
        outrider("cancel", "x", "--yes")
        answer = outrider("add", "x", B)

        assert (answer.code, answer.out) == (1, "added 0, refused 1: 1 cancelled\n")


@pytest.mark.usefixtures("store")
class TestFiles:
    def test_a_url_a_line(self, outrider, file, tasks):
        """Blank lines, comments, a byte order mark and DOS line ends are nothing."""
        path = file(f"\ufeff{A}\r\n\n  # a comment\n\t{B} \r\n".encode())
        answer = outrider("add", "x", "--from", path)

        assert (answer.code, answer.out) == (0, "added 2, refused 0\n")
        assert set(tasks()) == {A, B}

    def test_arguments_come_first(self, outrider, file, tasks):
        """Then the file."""
        outrider("add", "x", B, "--from", file(A))

        assert list(tasks()) == [B, A]

    def test_a_line_may_be_a_link(self, outrider, file, tasks):
        """Its own fields win over the options."""
        lines = f'{{"url": "{A}", "type": "hub", "meta": {{"n": 1}}}}\n{{"url": "{B}"}}\n'
        outrider("add", "x", "--from", file(lines), "--type", "article")

        assert (tasks()[A].type, tasks()[A].meta) == ("hub", {"n": 1})
        assert tasks()[B].type == "article"

    @pytest.mark.parametrize(
        ("line", "fault"),
        [
            (b"{", "truncated"),
            (b'{"url": 1}', "$.url"),
            (b'{"url": {"text": "x"}}', "$.url"),
            (b'{"depth": 1}', "url"),
            (b'{"url": "https://c.example/", "depht": 1}', "did you mean depth?"),
            (b'{"url": "https://c.example/", "zzzz": 1}', "'zzzz' is not a field of a link"),
            (b'{"url": "https://c.example/", "kind": "nav"}', "did you mean type?"),
            (b'{"url": "https://c.example/", "keyword": "tea"}', "did you mean tag?"),
            (b'{"url": "https://c.example/", "depth": "1"}', "$.depth"),
            (b'{"url": "https://c.example/", "forced": "no"}', "$.forced"),
            (b'{"url": "https://c.example/", "known": "x"}', "known"),
            (b"https://c.example/\xff", "not UTF-8"),
            (b'{"url": "https://c.example/\xff"}', "UTF-8"),
            (b'{"url":' + b"[" * 100_000, "recursion"),
            (b"a" * (1 << 20) + b"b", "longer than"),
        ],
    )
    def test_a_bad_line_is_named_and_spoils_no_other(self, outrider, file, tasks, line, fault):
        """By its number; the rest goes through."""
        path = file(A.encode() + b"\n" + line + b"\n" + B.encode())
        answer = outrider("add", "x", "--from", path)

        assert (answer.code, answer.out) == (1, "added 2, refused 1: 1 bad-line\n")
        assert answer.err.startswith("outrider: line 2: bad-line: ")
        assert fault.lower() in answer.err.lower()
        assert answer.err.count("\n") == 1
        assert set(tasks()) == {A, B}

    def test_a_refused_line_is_named_too(self, outrider, file):
        """Its number, its reason."""
        answer = outrider("add", "x", "--from", file(f"{A}\nftp://a.example/\n"), "--json")

        assert answer.json["problems"][0]["line"] == 2

    def test_many_refusals_are_counted_and_the_first_shown(self, outrider, file):
        """Millions of them must fit on a screen."""
        answer = outrider("add", "x", "--from", file("nonsense\n" * 50))

        assert answer.out == "added 0, refused 50: 50 bad-url\n"
        assert answer.err.count("line ") == 20
        assert answer.err.endswith("… and 30 more\n")

    def test_many_lines_stream(self, outrider, file):
        """Line numbers go on from one piece to the next."""
        lines = [f"{A}{n}" for n in range(20_000)]
        lines[15_000] = "ftp://a.example/"
        answer = outrider("add", "x", "--from", file("\n".join(lines)), "--json")

        assert answer.json["added"] == 19_999
        assert answer.json["problems"][0]["line"] == 15_001

    def test_standard_input_is_a_file_too(self, outrider, monkeypatch):
        """As `-`."""
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{A}\n{B}".encode())))

        assert outrider("add", "x", "--from", "-").out == "added 2, refused 0\n"

    def test_a_missing_file_is_refused_by_name(self, outrider, tmp_path):
        """Nothing is added."""
        answer = outrider("add", "x", "--from", str(tmp_path / "none"))

        assert answer.code == 2
        assert answer.err == f"outrider: --from {tmp_path}/none: No such file or directory\n"

    @pytest.mark.parametrize("end", [KeyboardInterrupt, StoreUnavailable("the disk is full")])
    def test_interrupted_add_notes_how_much_was_added(self, outrider, monkeypatch, end):
        """What was acknowledged stays."""

        def cut(*_):
            raise end

        stream = io.BytesIO(f"{A}\n".encode())
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        monkeypatch.setattr(add, "_CHUNK", len(A) + 1)
        monkeypatch.setattr(add._LineNumbers, "rest", cut)
        answer = outrider("add", "x", "--from", "-")

        assert answer.code in (2, 130)
        noted = "outrider: not everything was read; so far added 1, refused 0\n"
        assert answer.err.startswith(noted)

    def test_a_directory_is_no_file(self, outrider, tmp_path):
        """Said in one line."""
        assert outrider("add", "x", "--from", str(tmp_path)).code == 2


@pytest.fixture
def pipe(monkeypatch):
    """A pipe as standard input: its two ends, of which a test may close the second."""
    out, into = os.pipe()
    with os.fdopen(out, "rb") as reading, os.fdopen(into, "wb", buffering=0) as writing:
        stdin = io.TextIOWrapper(reading)
        monkeypatch.setattr("sys.stdin", stdin)
        yield reading, writing
        stdin.detach()


async def test_a_slow_pipe_is_read_as_it_comes(pipe):
    """A single line is read without waiting for more; the loop continues meanwhile."""
    _, writing = pipe
    lines = add.read_lines("-", {})
    writing.write(f"{A}\nhttps://b.ex".encode())
    first = await anext(lines)
    writing.write(b"ample/\n")
    second = await anext(lines)
    await lines.aclose()

    assert [line.link for line in first] == [A]
    assert second == [add.Line(2, B)]


async def test_waiting_reader_does_not_block_the_end(pipe):
    """A cancelled command does not wait for a pipe that never ends."""
    _, writing = pipe
    before = set(threading.enumerate())
    waiting = await started(anext(add.read_lines("-", {})))
    (reader,) = set(threading.enumerate()) - before
    await cancelled(waiting)

    assert reader.is_alive()
    assert reader.daemon
    writing.close()
    reader.join()


async def test_an_input_that_does_not_wait_is_refused(pipe):
    """Nothing to read is not the end."""
    reading, _ = pipe
    os.set_blocking(reading.fileno(), False)

    with pytest.raises(InvalidInput, match="not allowed to wait"):
        await anext(add.read_lines("-", {}))
