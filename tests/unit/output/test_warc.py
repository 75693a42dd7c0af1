"""WARC 1.1 as others read it: by warcio, record by record, digests checked."""

import gzip
import itertools
import os
import subprocess
import sys
import zlib

import pytest
from warcio.archiveiterator import ArchiveIterator

from outrider import Frontier
from outrider.errors import OutputError
from outrider.output.sink import recover
from outrider.output.warc import warc_sink

INFO = {"software": "Outrider/1", "format": "WARC File Format 1.1", "robots": "obey"}
HTML = (("Content-Type", "text/html"),)


@pytest.fixture
def opened(tmp_path):
    """The same archive, again and again."""
    return lambda **how: warc_sink(tmp_path / "news", info=INFO, **how)


@pytest.fixture
def written(opened, tmp_path):
    """What visits become."""

    def write(*visits):
        sink = opened()
        for visit in visits:
            sink.write([visit])
            sink.settle([True])
        sink.close()
        return records_of(tmp_path / "news-00001.warc.gz")[1:]

    return write


def records_of(path):
    """As warcio reads them, digests checked: heads, HTTP and content."""
    found = []
    with path.open("rb") as file:
        for record in ArchiveIterator(file, check_digests="raise"):
            content = record.content_stream().read()
            found.append((record.rec_headers, record.http_headers, content))
    return found


def members_of(path):
    """How many gzip members a file has."""
    data, count = path.read_bytes(), 0
    while data:
        one = zlib.decompressobj(wbits=31)
        one.decompress(data)
        assert one.eof
        data, count = one.unused_data, count + 1
    return count


def kinds(records):
    """Of each record, its type."""
    return [head.get_header("WARC-Type") for head, _, _ in records]


def targets(folder):
    """URLs of all responses, file by file."""
    return [
        head.get_header("WARC-Target-URI")
        for path in sorted(folder.glob("*.warc.gz"))
        for head, _, _ in records_of(path)
        if head.get_header("WARC-Type") == "response"
    ]


def test_a_response_is_archived_as_it_came(written, leases, kit):
    """Status line, fields in their order, body; when, from whom, and its digest."""
    fields = (*HTML, ("X-Two", "1"), ("x-two", "2"))

    ((head, http, content),) = written(kit.responded(leases[0], b"<p>hi</p>", fields))

    assert head.protocol == "WARC/1.1"
    assert head.get_header("WARC-Type") == "response"
    assert head.get_header("WARC-Target-URI") == leases[0].url
    assert head.get_header("WARC-Date") == "2023-11-14T22:13:20.125000Z"
    assert head.get_header("WARC-IP-Address") == "192.0.2.7"
    assert head.get_header("WARC-Payload-Digest").startswith("sha1:")
    assert head.get_header("Content-Type") == "application/http; msgtype=response"
    assert (http.protocol, http.statusline) == ("HTTP/1.1", "200 OK")
    assert http.headers == list(fields)
    assert content == b"<p>hi</p>"


SENT = b"GET /x?y HTTP/1.1\r\nHost: a.test\r\nUser-Agent: Otter/1\r\n\r\n"


def test_a_kept_request_is_archived_byte_by_byte_behind_its_response(written, leases, kit):
    """K4: both name the other as concurrent, with one date and one address."""
    visit = kit.responded(leases[0], b"<p>hi</p>", HTML, request=SENT)

    response, request = written(visit, kit.responded(leases[1]))[:2]

    head, http, content = request
    assert head.get_header("WARC-Type") == "request"
    assert head.get_header("Content-Type") == "application/http; msgtype=request"
    assert http.statusline == "/x?y HTTP/1.1"
    assert (http.protocol, content) == ("GET", b"")
    assert int(head.get_header("Content-Length")) == len(SENT)
    for name in ("WARC-Target-URI", "WARC-Date", "WARC-IP-Address"):
        assert head.get_header(name) == response[0].get_header(name)
    pairs = [
        (one.get_header("WARC-Record-ID"), one.get_header("WARC-Concurrent-To"))
        for one in (head, response[0])
    ]
    assert pairs[0] == pairs[1][::-1]
    assert len({*pairs[0]}) == 2


def test_requests_of_unchanged_pages_are_archived_too(written, leases, kit):
    """K4: with a 304 and with the same body, beside the revisit record; without a request none."""
    records = written(
        kit.responded(leases[0], b"one", HTML, request=SENT),
        kit.responded(leases[0], b"one", HTML, request=SENT),
        kit.responded(leases[0], b"", status=304, request=SENT),
        kit.responded(leases[1], b"two", HTML),
    )

    assert kinds(records) == [
        *("response", "request", "revisit", "request", "revisit", "request", "response"),
    ]
    assert records[-1][0].get_header("WARC-Concurrent-To") is None


def test_request_is_in_the_file_as_it_was_sent(opened, leases, kit, tmp_path):
    """K4: not as a library would write it."""
    odd = SENT.replace(b"Otter/1", b"\xff\xfe  two  blanks")
    sink = opened()
    sink.write([kit.responded(leases[0], b"one", HTML, request=odd)])
    sink.settle([True])
    sink.close()

    plain = gzip.decompress((tmp_path / "news-00001.warc.gz").read_bytes())
    assert b"\r\n\r\n" + odd + b"\r\n\r\n" in plain
    assert members_of(tmp_path / "news-00001.warc.gz") == 3


def test_each_file_begins_with_what_made_it(opened, visits, tmp_path, leases, kit):
    """And nothing about the machine."""
    sink = opened()
    sink.write([kit.responded(leases[0])])
    sink.settle([True])
    sink.close()

    (head, _, content), _ = records_of(tmp_path / "news-00001.warc.gz")
    assert head.get_header("WARC-Type") == "warcinfo"
    assert head.get_header("WARC-Filename") == "news-00001.warc.gz"
    lines = content.decode().splitlines()
    assert lines == ["software: Outrider/1", "format: WARC File Format 1.1", "robots: obey"]


def test_every_record_is_a_gzip_member_of_its_own(opened, leases, kit, tmp_path):
    """So that readers can go to any of them."""
    sink = opened()
    sink.write([kit.responded(lease) for lease in leases])
    sink.settle([True] * 6)
    sink.close()

    assert members_of(tmp_path / "news-00001.warc.gz") == 7


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_packed_body_is_archived_packed_and_read_unpacked(
    coding, pack, chunked, written, leases, kit
):
    """How it was cut on the way is kept aside: readers would look for chunks."""
    body = b"<p>hello</p>" * 100
    packed = pack(body)
    size = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(packed)))
    fields = (("Content-Encoding", coding), size)

    ((_, http, content),) = written(kit.responded(leases[0], body, fields, packed=packed))

    assert content == body
    assert http.get_header("Content-Length") == str(len(packed))
    assert http.get_header("Content-Encoding") == coding
    assert http.get_header("Transfer-Encoding") is None
    assert http.get_header("X-Crawler-Transfer-Encoding") == ("chunked" if chunked else None)


def test_a_body_that_is_no_longer_packed_does_not_say_it_is(written, leases, kit):
    """The fetcher may have kept only the decompressed body."""
    fields = (("Content-Encoding", "gzip"), ("Content-Length", "7"))

    ((_, http, content),) = written(kit.responded(leases[0], b"<p>hello</p>", fields))

    assert content == b"<p>hello</p>"
    assert http.headers == [
        ("X-Crawler-Content-Encoding", "gzip"),
        ("X-Crawler-Content-Length", "7"),
        ("Content-Length", "12"),
    ]


@pytest.mark.parametrize("coding", ["br", "gzip, br"])
def test_what_not_every_reader_can_unpack_is_archived_unpacked(coding, written, leases, kit):
    """The header says how it came, and no longer that it is packed."""
    fields = (("Content-Encoding", coding), ("Content-Length", "5"))

    ((_, http, content),) = written(kit.responded(leases[0], b"hello!", fields, packed=b"\x0b\x02"))

    assert content == b"hello!"
    assert http.get_header("Content-Encoding") is None
    assert http.get_header("X-Crawler-Content-Encoding") == coding
    assert http.get_header("Content-Length") == "6"


def test_bytes_of_a_header_that_are_no_ascii_stay_as_they_were(written, leases, kit, tmp_path):
    """UTF-8 or not; a line break in one cannot forge another field."""
    fields = (("X-Name", "ü"), ("X-Raw", "\udce9"), ("X-Forged", "a\r\nSet-Cookie: b"))

    ((_, http, _),) = written(kit.responded(leases[0], b"x", fields, reason="très\nbien"))

    data = gzip.decompress((tmp_path / "news-00001.warc.gz").read_bytes())
    assert "X-Name: ü\r\nX-Raw: ".encode() + b"\xe9\r\nX-Forged: a Set-Cookie: b\r\n" in data
    assert http.get_header("Set-Cookie") is None


@pytest.mark.parametrize("address", ["", "unix:/tmp/x", "proxy.test"])
def test_what_is_no_address_is_left_out(address, written, leases, kit):
    """Only addresses may stand there."""
    ((head, _, _),) = written(kit.responded(leases[0], address=address))

    assert head.get_header("WARC-IP-Address") is None


def test_an_answer_by_http_2_can_be_read(written, leases, kit):
    """Archives speak of HTTP/1.1, which has the same meaning."""
    ((_, http, content),) = written(kit.responded(leases[0], b"x", version="2", reason=""))

    assert (http.protocol, http.get_statuscode(), content) == ("HTTP/1.1", "200", b"x")


def test_a_redirect_without_a_body_is_archived(written, leases, kit):
    """The answer is the location."""
    fields = (("Location", "https://b.test/"), ("Content-Length", "0"))

    ((_, http, content),) = written(kit.responded(leases[0], b"", fields, status=301))

    assert (http.get_header("Location"), content) == ("https://b.test/", b"")


def test_a_page_that_was_not_modified_is_a_revisit(written, leases, kit):
    """It refers to what this process archived, if it did."""
    visits = [
        kit.responded(leases[0], b"", status=304, reason="Not Modified"),
        kit.responded(leases[1], b"body"),
        kit.responded(leases[1], b"", (("ETag", '"e"'),), status=304, at=1_800_000_000.0),
    ]

    (unknown, _, _), (first, _, _), (known, http, _) = written(*visits)

    profile = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
    for head in (unknown, known):
        assert head.get_header("WARC-Type") == "revisit"
        assert head.get_header("WARC-Profile") == profile
    assert unknown.get_header("WARC-Refers-To-Date") is None
    assert known.get_header("WARC-Refers-To-Date") == first.get_header("WARC-Date")
    assert known.get_header("WARC-Refers-To-Target-URI") == leases[1].url
    assert (http.get_statuscode(), http.get_header("ETag")) == ("304", '"e"')


def test_the_same_body_again_is_a_revisit_of_the_first(written, leases, kit):
    """And another body is a response."""
    bodies = (b"one", b"one", b"two", b"two")
    visits = [
        kit.responded(leases[0], body, at=1_700_000_000.0 + n) for n, body in enumerate(bodies)
    ]

    records = written(*visits)

    assert kinds(records) == ["response", "revisit", "response", "revisit"]
    for first, again in ((0, 1), (2, 3)):
        original, revisit = records[first][0], records[again][0]
        assert revisit.get_header("WARC-Profile").endswith("/1.1/revisit/identical-payload-digest")
        for name in ("WARC-Payload-Digest", "WARC-Refers-To-Date"):
            source = "WARC-Date" if name.endswith("Date") else name
            assert revisit.get_header(name) == original.get_header(source)


def test_a_record_that_did_not_stay_is_never_referred_to(opened, leases, kit, tmp_path):
    """The lease was lost, so its body must come again in full."""
    sink = opened()
    for answer in (False, True, True):
        sink.write([kit.responded(leases[0], b"one")])
        sink.settle([answer])
    sink.close()

    records = records_of(tmp_path / "news-00001.warc.gz")
    assert kinds(records) == ["warcinfo", "response", "revisit"]


def test_only_answers_are_archived(opened, visits, tmp_path):
    """A page without a response has no record, and no file is started for it."""
    sink = opened()
    sink.write(visits)
    sink.settle([True] * 6)
    sink.close()

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_full_is_followed_by_another(opened, leases, kit, tmp_path):
    """Each begins with its own first record; nothing is split between two."""
    sink = opened(max_bytes=1500)
    for lease in leases:
        sink.write([kit.responded(lease, os.urandom(600))])
        sink.settle([True])
    sink.close()

    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"news-0000{number}.warc.gz" for number in (1, 2, 3)]
    assert targets(tmp_path) == [lease.url for lease in leases]
    assert [kinds(records_of(tmp_path / name))[0] for name in names] == ["warcinfo"] * 3


def test_a_later_crawl_begins_a_file_of_its_own(opened, leases, kit, tmp_path):
    """Without a journal the end of a file is unknown; it is left as it is."""
    (tmp_path / "news-00007.warc.gz").write_bytes(b"theirs")
    for lease in leases[:2]:
        sink = opened()
        sink.write([kit.responded(lease)])
        sink.settle([True])
        sink.close()

    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"news-0000{number}.warc.gz" for number in (7, 8, 9)]
    assert (tmp_path / "news-00007.warc.gz").read_bytes() == b"theirs"


@pytest.mark.parametrize("path", ["news", "news.warc", "news.warc.gz"])
def test_a_path_may_end_as_archives_do(path, tmp_path, leases, kit):
    """All name the same files."""
    sink = warc_sink(tmp_path / path, info=INFO)
    sink.write([kit.responded(leases[0])])
    sink.settle([True])
    sink.close()

    assert [file.name for file in tmp_path.iterdir()] == ["news-00001.warc.gz"]


async def test_a_process_that_was_killed_is_followed_in_the_same_file(
    opened, leases, kit, tmp_path, frontier
):
    """What was finished stays; its journal vouches for the rest."""
    visits = [kit.responded(lease, os.urandom(50)) for lease in leases]
    sink = opened()
    sink.write(visits[:4])
    await kit.finish(frontier, visits[:2])
    kit.bury(sink)
    again = opened()
    await recover(again, frontier.store)
    again.write(visits[4:])
    again.settle([True, True])
    again.close()

    assert targets(tmp_path) == [leases[place].url for place in (0, 1, 4, 5)]
    assert [path.name for path in tmp_path.iterdir()] == ["news-00001.warc.gz"]


@pytest.mark.parametrize("length", [0, 10, 100])
async def test_file_torn_in_its_first_record_is_started_again(
    length, opened, leases, kit, tmp_path, frontier
):
    """The first record is of no visit, and stays only if it is complete."""
    visits = [kit.responded(lease) for lease in leases]
    sink = opened()
    sink.write(visits[:1])
    kit.bury(sink)
    os.truncate(tmp_path / "news-00001.warc.gz", length)
    again = opened()
    await recover(again, frontier.store)
    again.write(visits[1:2])
    again.settle([True])
    again.close()

    assert kinds(records_of(tmp_path / "news-00001.warc.gz")) == ["warcinfo", "response"]
    assert targets(tmp_path) == [leases[1].url]


async def lived(sink, frontier, kit, step):
    """Batches that fill a file each; one lease of each is lost."""
    for _ in range(3):
        first = (await frontier.stats()).known
        await frontier.add([f"https://h{n}.test/{n}" for n in range(first, first + 3)])
        visits = [kit.responded(lease, os.urandom(200)) for lease in await frontier.claim(3)]
        sink.write(visits)
        step()
        await frontier.release([visits[0].lease])
        answers = await kit.finish(frontier, visits)
        step()
        sink.settle(answers)
    sink.close()


async def check(frontier, folder):
    """All that was finished stands there, and every member is whole."""
    done = [view.url async for view in frontier.tasks(state="done")]
    assert sorted(targets(folder)) == sorted(done)
    for path in folder.glob("*.warc.gz"):
        members_of(path)
        assert kinds(records_of(path))[:1] in ([], ["warcinfo"])


async def dies(calls, torn, frontier, opened, kit, system):
    """Whether a process does, and what is left is whole again afterwards."""
    mortal, sinks = system(kit.Mortal(calls, torn=torn)), []
    try:
        sinks.append(opened(max_bytes=500))
        await lived(sinks[0], frontier, kit, mortal.step)
    except kit.Killed:
        for sink in sinks:
            kit.bury(sink)
        return True
    finally:
        system(os)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("torn", [False, True])
async def test_a_death_at_any_instant_leaves_archives_that_others_can_read(
    torn, opened, kit, system, tmp_path
):
    """Every finished visit once, whole records only, also where a file was just begun."""
    for calls in itertools.count(1):
        async with Frontier.open("memory://", settings=kit.settings) as frontier:
            was_killed = await dies(calls, torn, frontier, opened, kit, system)
            sink = opened(max_bytes=500)
            await recover(sink, frontier.store)
            await check(frontier, tmp_path)
            await lived(sink, frontier, kit, lambda: None)
            await check(frontier, tmp_path)
        for path in tmp_path.iterdir():
            path.unlink()
        if not was_killed:
            break
    assert calls > 20


@pytest.mark.slow
def test_the_checker_of_warcio_finds_nothing_wrong(opened, leases, kit, tmp_path):
    """By its own command."""
    visits = [
        kit.responded(leases[0], b"one", HTML),
        kit.responded(leases[0], b"one", HTML),
        kit.responded(leases[0], b"", status=304),
        kit.responded(leases[1], b"x" * 9, packed=gzip.compress(b"x" * 9), request=SENT),
    ]
    sink = opened()
    for visit in visits:
        sink.write([visit])
        sink.settle([True])
    sink.close()
    command = [sys.executable, "-m", "warcio.cli", "check", "-v"]
    checked = subprocess.run(
        [*command, str(tmp_path / "news-00001.warc.gz")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count("digest pass") == 4  # the first record, two responses, a request


def test_archive_shorter_than_its_journal_is_refused(opened, leases, kit, tmp_path):
    """As for any output."""
    sink = opened()
    sink.write([kit.responded(leases[0])])
    sink.settle([True])
    kit.bury(sink)
    os.truncate(tmp_path / "news-00001.warc.gz", 10)

    with pytest.raises(OutputError, match=r"news-00001\.warc\.gz is not what its journal says"):
        opened()
