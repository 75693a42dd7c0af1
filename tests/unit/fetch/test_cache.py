import os
import sqlite3

import apsw
import msgspec
import pytest

from outrider.core.outcome import Answer, Last
from outrider.errors import InvalidInput
from outrider.fetch import cache as cache_module
from outrider.fetch.cache import (
    FORMAT_VERSION,
    MAX_CACHED_BODY,
    MAX_VALUE_BYTES,
    CacheFile,
    ResponseCache,
    conditional_headers,
    is_last_answer,
    is_usable,
    merge_not_modified,
)
from outrider.fetch.response import Response

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT
DATE = "Sun, 06 Nov 1994 08:49:37 GMT"
HOUR_LATER = "Sun, 06 Nov 1994 09:49:37 GMT"
TEN_HOURS_BEFORE = "Sat, 05 Nov 1994 22:49:37 GMT"
KEY = b"k" * 16


def page(*fields, body=b"<p>hello</p>" * 100, status=200):
    """A response as the fetcher made it."""
    return Response("https://h.example/", status, fields, body, 0.3, NOW, "OK")


@pytest.fixture
def cache():
    """In memory."""
    return ResponseCache(CacheFile(None))


class TestKeeping:
    def test_a_kept_response_is_found_as_it_was(self, cache):
        """Status, body, time and the fields that matter; before and after it is written."""
        fields = (("Content-Type", "text/html"), ("ETag", '"1"'), ("Link", "<a>"), ("LINK", "<b>"))
        response = page(*fields, ("Set-Cookie", "secret=1"), ("Content-Encoding", "gzip"))

        assert cache.put(KEY, response)
        wanted = msgspec.structs.replace(response, headers=fields, seconds=0.0)
        assert cache.get(KEY) == wanted
        cache.flush()
        assert cache.get(KEY) == wanted

    def test_another_page_is_not_found(self, cache):
        """A miss is None."""
        cache.put(KEY, page())

        assert cache.get(b"x" * 16) is None

    def test_the_last_response_counts(self, cache):
        """Keeping again replaces, whether the first was written or not."""
        cache.put(KEY, page(body=b"one"))
        cache.flush()
        cache.put(KEY, page(body=b"two"))

        assert cache.get(KEY).body == b"two"
        cache.flush()
        assert cache.get(KEY).body == b"two"

    @pytest.mark.parametrize(
        "response",
        [
            page(("Cache-Control", "public, No-Store")),
            page(("Vary", "*")),
            page(status=206),
            page(status=404),
            page(status=301),
            page(body=b"x" * (MAX_CACHED_BODY + 1)),
        ],
        ids=["no-store", "vary", "part", "missing", "redirect", "long"],
    )
    def test_what_may_not_or_need_not_be_kept_is_not(self, cache, response):
        """`no-store` is a word to obey; the rest would be of no use."""
        assert not cache.put(KEY, response)
        assert cache.get(KEY) is None

    def test_the_longest_body_comes_back_whole(self, cache):
        """Unpacking is bounded, but not below what is kept."""
        body = os.urandom(1024) * (MAX_CACHED_BODY // 1024)
        cache.put(KEY, page(body=body))

        assert cache.get(KEY).body == body

    def test_full_batch_is_written_without_flush(self):
        """At most a batch is lost with the process, and no page waits for a write of its own."""
        file = CacheFile(None)
        cache = ResponseCache(file)
        for number in range(cache_module.BATCH):
            assert file.get(b"\0" * 16) is None
            cache.put(number.to_bytes(16, "big"), page())

        assert file.get(b"\0" * 16) is not None

    def test_what_another_release_wrote_is_a_miss(self):
        """A record of another shape is not guessed at."""
        file = CacheFile(None)
        file.put_many([(KEY, msgspec.msgpack.encode([1, 2, 3]))])

        assert ResponseCache(file).get(KEY) is None

    def test_it_outlives_the_process(self, tmp_path):
        """Closing writes the rest."""
        first = ResponseCache(CacheFile(tmp_path / "cache"))
        first.put(KEY, page(body=b"kept"))
        first.close()

        assert ResponseCache(CacheFile(tmp_path / "cache")).get(KEY).body == b"kept"


class TestUsable:
    @pytest.mark.parametrize(
        ("fields", "age", "expected"),
        [
            ([("Cache-Control", "max-age=60")], 60, True),
            ([("Cache-Control", "max-age=60")], 61, False),
            ([("Cache-Control", 'MAX-AGE="60"')], 60, True),
            ([("Cache-Control", "max-age=60"), ("Age", "50")], 11, False),
            ([("Date", DATE), ("Expires", HOUR_LATER)], 3600, True),
            ([("Date", DATE), ("Expires", HOUR_LATER)], 3601, False),
            ([("Expires", "0"), ("Last-Modified", TEN_HOURS_BEFORE)], 1, False),
            ([("Last-Modified", TEN_HOURS_BEFORE)], 3600, True),
            ([("Last-Modified", TEN_HOURS_BEFORE)], 3601, False),
            ([], 0, True),
            ([], 1, False),
            ([], -99, True),
            ([("Cache-Control", "max-age=60, no-cache")], 0, False),
            ([("Cache-Control", "max-age=" + "9" * 30)], 300 * 86_400, True),
        ],
    )
    def test_a_response_is_fresh_as_long_as_its_host_said(self, fields, age, expected):
        """max-age before Expires before a tenth of its time unchanged (RFC 9111)."""
        assert is_usable(page(*fields), NOW + age, max_stale=0.0) is expected

    def test_it_may_be_so_much_too_old(self):
        """Our patience is added to the host's."""
        response = page(("Cache-Control", "max-age=60"))

        assert is_usable(response, NOW + 160, max_stale=100.0)
        assert not is_usable(response, NOW + 161, max_stale=100.0)

    def test_unless_the_host_insists_on_being_asked(self):
        """`must-revalidate` forbids what is too old, and only that."""
        response = page(("Cache-Control", "max-age=60, must-revalidate"))

        assert is_usable(response, NOW + 60, max_stale=100.0)
        assert not is_usable(response, NOW + 61, max_stale=100.0)


class TestConditions:
    LAST = Last(Answer(200, 1, None, '"last"', TEN_HOURS_BEFORE), 60.0)

    def test_a_page_never_seen_is_asked_for_plainly(self):
        """Without validators there is no condition."""
        assert conditional_headers(None) == {}

    def test_the_last_answer_is_asked_about(self):
        """Even without its body a 304 saves one."""
        assert conditional_headers(self.LAST) == {
            "If-None-Match": '"last"',
            "If-Modified-Since": TEN_HOURS_BEFORE,
        }

    def test_stored_response_is_the_last_answer_if_all_its_validators_are(self):
        """Otherwise a 304 would confirm a body of another crawl, or of a lost visit."""
        etag, modified = ("ETag", '"last"'), ("Last-Modified", TEN_HOURS_BEFORE)

        assert is_last_answer(page(etag, modified), self.LAST)
        assert not is_last_answer(page(etag), self.LAST)
        assert not is_last_answer(page(("ETag", '"other"'), modified), self.LAST)
        assert not is_last_answer(page(etag, modified), None)
        assert not is_last_answer(page(), Last(Answer(200, 1, None, None, None), 60.0))

    @pytest.mark.parametrize("etag", ["", 'a"\r\nX-Evil: 1', '"\x00"', '"€"', '"' + "x" * 2000])
    def test_a_validator_that_cannot_be_sent_back_is_not(self, etag):
        """It came from a host: it must not smuggle a field into our requests."""
        assert conditional_headers(Last(Answer(200, 1, None, etag, None), 60.0)) == {}


class TestRenewed:
    def test_a_304_renews_what_was_kept(self):
        """The body stands in; fields that came with the 304 take the place of the old ones."""
        cached = page(("Content-Type", "text/html"), ("ETag", '"1"'), ("Date", DATE), body=b"x")
        unchanged = Response(
            "https://h.example/", 304, (("date", HOUR_LATER), ("Server", "s")), b"", 0.1, NOW + 3600
        )

        found = merge_not_modified(cached, unchanged)

        assert (found.status, found.body, found.at) == (200, b"x", NOW + 3600)
        assert found.headers == (
            ("Content-Type", "text/html"),
            ("ETag", '"1"'),
            ("date", HOUR_LATER),
        )


class TestFile:
    def test_the_oldest_go_first(self, tmp_path):
        """The bound is one of bytes on the disk, and it holds."""
        file = CacheFile(tmp_path / "cache", max_bytes=2**20)
        for number in range(200):
            file.put_many([(b"%d" % number, os.urandom(20_000))])
            assert file.bytes <= 2**20

        assert file.get(b"0") is None
        assert file.get(b"199") is not None
        file.close()
        assert (tmp_path / "cache").stat().st_size < 2 * 2**20

    def test_a_bound_of_nothing_keeps_nothing(self):
        """Every put is forgotten at once."""
        file = CacheFile(None, max_bytes=0)
        file.put_many([(b"a", b"1")])

        assert file.get(b"a") is None

    def test_a_value_that_is_too_long_is_left_out(self):
        """The others of its batch are put."""
        file = CacheFile(None)
        file.put_many([(b"a", b"x" * (MAX_VALUE_BYTES + 1)), (b"b", b"2")])

        assert (file.get(b"a"), file.get(b"b")) == (None, b"2")

    @pytest.mark.parametrize(
        "change", ["data = x'00010203'", "data = 'text'", "data = zeroblob(9)"]
    )
    def test_a_damaged_record_is_a_miss(self, tmp_path, change):
        """Its checksum differs; all others are found."""
        path = tmp_path / "cache"
        file = CacheFile(path)
        file.put_many([(b"a", b"one"), (b"b", b"two")])
        file.close()
        db = apsw.Connection(str(path))
        db.execute(f"UPDATE entry SET {change} WHERE key = ?", (b"a",))  # noqa: S608 - our own words
        db.close()

        file = CacheFile(path)
        assert (file.get(b"a"), file.get(b"b")) == (None, b"two")

    def test_a_record_under_anothers_key_is_a_miss(self, tmp_path):
        """The checksum is over the key too: no page is ever answered by another one's."""
        path = tmp_path / "cache"
        file = CacheFile(path)
        file.put_many([(b"a", b"one")])
        file.close()
        db = apsw.Connection(str(path))
        db.execute("UPDATE entry SET key = ?", (b"b",))
        db.close()

        assert CacheFile(path).get(b"b") is None

    @pytest.mark.parametrize(
        "content", [b"precious words", b"SQLite format 3\0" + b"\1" * 84, b"\0" * 5000]
    )
    def test_foreign_file_is_refused_and_untouched(self, tmp_path, content):
        """Nobody's file is overwritten by a cache."""
        path = tmp_path / "cache"
        path.write_bytes(content)

        with pytest.raises(InvalidInput, match=r"not a cache of Outrider; set fetch.cache"):
            CacheFile(path)
        assert path.read_bytes() == content
        assert list(tmp_path.iterdir()) == [path]

    def test_foreign_database_is_refused_and_untouched(self, tmp_path):
        """Also one that SQLite could well open, such as a crawl."""
        path = tmp_path / "cache"
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE entry (a)")
        db.commit()
        db.close()
        content = path.read_bytes()

        with pytest.raises(InvalidInput, match="not a cache of Outrider"):
            CacheFile(path)
        assert path.read_bytes() == content

    def test_a_newer_format_is_refused(self, tmp_path):
        """An older release cannot know what it means."""
        path = tmp_path / "cache"
        CacheFile(path).close()
        db = apsw.Connection(str(path))
        db.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
        db.close()

        with pytest.raises(InvalidInput, match="newer release"):
            CacheFile(path)

    def test_a_place_that_does_not_exist_is_named(self, tmp_path):
        """The error says which path, and what to do."""
        with pytest.raises(InvalidInput, match=r"nowhere.*set fetch.cache to another file"):
            CacheFile(tmp_path / "nowhere" / "cache")
        with pytest.raises(InvalidInput, match=r"set fetch.cache to another file"):
            CacheFile(tmp_path)

    def test_an_empty_file_is_taken(self, tmp_path):
        """There is nothing in it to lose."""
        (tmp_path / "cache").touch()
        file = CacheFile(tmp_path / "cache")
        file.put_many([(b"a", b"1")])

        assert file.get(b"a") == b"1"

    def test_damaged_cache_is_replaced_and_reported(self, tmp_path):
        """It is only a cache: what it held is fetched again, and the crawl goes on."""
        path = tmp_path / "cache"
        file = CacheFile(path)
        file.put_many([(b"%d" % number, os.urandom(9000)) for number in range(50)])
        file.close()
        with path.open("r+b") as raw:
            raw.seek(4096)
            raw.write(os.urandom(8 * 4096))

        file = CacheFile(path)
        assert [file.get(b"%d" % number) for number in range(50)] == [None] * 50
        assert "was damaged" in file.trouble
        file.put_many([(b"a", b"1")])
        assert file.get(b"a") == b"1"

    def test_truncated_cache_is_replaced(self, tmp_path):
        """Whether it is seen at opening, at reading or at writing."""
        path = tmp_path / "cache"
        file = CacheFile(path)
        file.put_many([(b"%d" % number, os.urandom(9000)) for number in range(50)])
        file.close()
        os.truncate(path, 3 * 4096)

        file = CacheFile(path)
        file.get(b"1")
        file.put_many([(b"a", b"1")])
        file.put_many([(b"a", b"1")])
        assert file.get(b"a") == b"1"

    def test_two_processes_may_share_a_file(self, tmp_path):
        """What one puts, the other finds; a write in its way is left, not waited for."""
        one, other = CacheFile(tmp_path / "cache"), CacheFile(tmp_path / "cache")
        one.put_many([(b"a", b"1")])

        assert other.get(b"a") == b"1"
        with one._db:
            one._db.execute("DELETE FROM entry")
            other.put_many([(b"b", b"2")])
        assert "locked" in other.trouble.lower()
        other.put_many([(b"b", b"2")])
        assert one.get(b"b") == b"2"

    def test_a_closed_file_finds_and_puts_nothing(self):
        """A late visit meets a miss, not an error."""
        file = CacheFile(None)
        file.close()
        file.put_many([(b"a", b"1")])

        assert file.get(b"a") is None
        assert file.bytes == 0
