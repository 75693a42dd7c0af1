import gzip

import msgspec
import pytest

from outrider.core.outcome import Dropped, Failed, Unreachable
from outrider.fetch import robots
from outrider.fetch.cache import CacheFile
from outrider.fetch.response import Response
from outrider.fetch.robots import (
    CLOSED_SECONDS,
    MAX_ROBOTS_BYTES,
    MAX_ROBOTS_SITEMAPS,
    RobotsCache,
    RobotsRules,
    robots_url,
    rules_of,
)
from outrider.settings.worker_schema import FetchSettings
from outrider.testing import FakeClock

NOW = 1_700_000_000.0
DAY = 86_400.0
SITE = "https://h.example/robots.txt"
SETTINGS = FetchSettings(user_agent="Outrider/1.0 (+https://us.example)")


def answered(body=b"", status=200, *fields):
    """A response to a request for robots.txt."""
    body = body.encode() if isinstance(body, str) else body
    return Response(SITE, status, fields, body, 0.1, NOW)


def told(text):
    """What a file means for us."""
    return rules_of(answered(text), SETTINGS)


def allowed(text, *paths):
    """Whether each path may be visited, by a file."""
    rules = told(text)
    return [rules.allows(f"https://h.example{path}") for path in paths]


class TestWhoIsMeant:
    def test_our_own_group_wins_over_everybodys(self):
        """RFC 9309: a robot obeys the group that names it, and no other."""
        text = "User-agent: *\nDisallow: /\n\nUser-agent: outrider\nDisallow: /private\n"

        assert allowed(text, "/", "/private/x") == [True, False]

    def test_without_own_group_the_group_for_all_applies(self):
        """The asterisk is for those who are not named."""
        assert allowed(
            "User-agent: other\nDisallow: /a\n\nUser-agent: *\nDisallow: /b", "/a", "/b"
        ) == [
            True,
            False,
        ]

    @pytest.mark.parametrize("name", ["OUTRIDER", "Outrider/2.0", "outrider*", " outrider "])
    def test_our_name_is_known_in_any_spelling(self, name):
        """Letter case and version do not matter."""
        assert allowed(f"User-agent: {name}\nDisallow: /", "/x") == [False]

    @pytest.mark.parametrize("name", ["out", "outriders", "rider", "my-outrider", ""])
    def test_similar_robot_names_do_not_match(self, name):
        """Whole names are compared: a group for `out` neither binds nor frees us."""
        text = f"User-agent: {name}\nAllow: /\n\nUser-agent: *\nDisallow: /"

        assert allowed(text, "/x") == [False]

    def test_groups_of_one_name_are_one(self):
        """RFC 9309: groups that name the same robot are combined."""
        ours = "User-agent: outrider\nDisallow: "
        text = f"{ours}/a\nUser-agent: x\nDisallow: /\n{ours}/b"

        assert allowed(text, "/a", "/b", "/c") == [False, False, True]

    def test_names_in_a_row_share_a_group(self):
        """Also across empty lines, comments and fields that nobody knows."""
        text = (
            "User-agent: outrider\n\n# us and\nNoindex: /\nUser-agent: x\nSitemap: /s\nDisallow: /a"
        )

        assert allowed(text, "/a") == [False]

    def test_rules_before_any_name_are_ignored(self):
        """RFC 9309: a group starts with a user-agent line."""
        assert allowed("Disallow: /\nUser-agent: *\nAllow: /", "/x") == [True]

    def test_empty_own_group_allows_all(self):
        """An empty Disallow forbids nothing, and everybody's rules are not for us."""
        text = "User-agent: *\nDisallow: /\n\nUser-agent: outrider\nDisallow:\n"

        assert allowed(text, "/x") == [True]


class TestWhatIsAllowed:
    @pytest.mark.parametrize(
        ("rules", "path", "expected"),
        [
            ("Disallow: /a", "/a/b", False),
            ("Disallow: /a", "/A/b", True),
            ("Disallow: /\nAllow: /a", "/a", True),
            ("Disallow: /a\nAllow: /a", "/a", True),
            ("Allow: /a/b\nDisallow: /a", "/a/b/c", True),
            ("Allow: /a\nDisallow: /a/b", "/a/b/c", False),
            ("Disallow: /*.gif$", "/x/y.gif", False),
            ("Disallow: /*.gif$", "/x/y.gif?z", True),
            ("Disallow: /*?sort=", "/x?sort=a", False),
            ("Disallow: /a$", "/ab", True),
            ("Disallow: /a$", "/a", False),
            ("Disallow: /%7Ejoe/", "/~joe/x", False),
            ("Disallow: /caf%c3%a9", "/caf%C3%A9", False),
            ("Disallow: /café", "/caf%C3%A9", False),
            ("Disallow: /a%2Fb", "/a/b", True),
            ("Disallow: /a # not /b", "/b", True),
            ("DISALLOW : /a", "/a", False),
            ("Disallow /a", "/a", False),
            ("Dissallow: /a", "/a", False),
            ("Disallow: /", "/robots.txt", True),
        ],
    )
    def test_the_longest_match_decides(self, rules, path, expected):
        """RFC 9309, 2.2: the most specific rule wins, and Allow wins a tie."""
        assert allowed(f"User-agent: *\n{rules}\n", path) == [expected]

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_lines_end_as_they_like(self, end):
        """All three ends of lines are known."""
        assert allowed(end.join(["User-agent: *", "Disallow: /a", ""]), "/a", "/b") == [False, True]

    def test_a_byte_order_mark_is_no_part_of_the_first_line(self):
        """Editors of Windows put one there."""
        assert allowed(b"\xef\xbb\xbfUser-agent: *\nDisallow: /a", "/a") == [False]

    def test_null_bytes_do_not_hide_a_rule(self):
        """They are dropped, and the rest is read."""
        assert allowed(b"User-agent: *\nDis\0allow: /a\0", "/a") == [False]

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            bytes(range(256)) * 200,
            gzip.compress(b"User-agent: *", mtime=0),
            b"<html>no</html>",
        ],
    )
    def test_what_is_no_robots_txt_forbids_nothing(self, body):
        """Garbage, or an error page with status 200, holds no rules."""
        assert told(body).allows("https://h.example/x")


class TestStatuses:
    @pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 410, 451])
    def test_no_file_is_no_rules(self, status):
        """K2: 4xx allows all, and so does a redirect that nobody followed to its end."""
        rules = rules_of(answered("User-agent: *\nDisallow: /", status), SETTINGS)

        assert rules.allows("https://h.example/x")
        assert rules.is_valid(NOW + DAY - 1)

    @pytest.mark.parametrize("status", [429, 500, 503, 599, 999])
    def test_a_host_that_cannot_tell_is_closed_for_now(self, status):
        """K2: 5xx forbids all, but is asked again soon."""
        rules = rules_of(answered("User-agent: *\nAllow: /", status), SETTINGS)

        assert not rules.allows("https://h.example/x")
        assert rules.closed == f"status {status}"
        assert rules.is_valid(NOW + CLOSED_SECONDS - 1)
        assert not rules.is_valid(NOW + CLOSED_SECONDS)

    @pytest.mark.parametrize("trouble", [Failed("cut"), Unreachable("dns"), Dropped("size")])
    def test_no_answer_is_closed_for_now(self, trouble):
        """RFC 9309: without an answer, complete disallow is assumed."""
        rules = rules_of(trouble, SETTINGS, now=NOW)

        assert not rules.allows("https://h.example/x")
        assert rules.closed == trouble.reason
        assert rules.fetched_at == NOW


class TestDelays:
    @pytest.mark.parametrize(
        ("lines", "delay"),
        [
            ("Crawl-delay: 7", 7.0),
            ("crawl-delay: 0.5 # s", 0.5),
            ("Crawl-delay: 0", 0.0),
            ("Crawl-delay: 1e300", DAY),
            ("Request-rate: 1/10", 10.0),
            ("Request-rate: 2/1m", 30.0),
            ("Request-rate: 1/10\nCrawl-delay: 3", 10.0),
            ("Request-rate: 1/10 0900-1700", None),
            ("Crawl-delay: soon", None),
            ("Crawl-delay: -1", None),
            ("Crawl-delay: nan", None),
            ("Crawl-delay: inf", None),
            ("Request-rate: 0/0", None),
            ("Disallow: /", None),
        ],
    )
    def test_a_delay_is_read_if_it_makes_sense(self, lines, delay):
        """Crawl-delay or Request-rate, whichever is longer; garbage is ignored."""
        assert told(f"User-agent: *\n{lines}\n").crawl_delay == delay

    def test_crawl_delay_of_other_robots_is_ignored(self):
        """It belongs to its group."""
        text = "User-agent: outrider\nCrawl-delay: 2\nUser-agent: *\nCrawl-delay: 60"

        assert told(text).crawl_delay == 2.0


class TestSitemaps:
    def test_sitemaps_are_the_whole_files(self):
        """They stand outside the groups; each is told once, in its order."""
        text = "Sitemap: https://a.example/1.xml\nUser-agent: x\nSitemap: HTTP://b/2\nSITEMAP:https://a.example/1.xml"

        assert told(text).sitemaps == ("https://a.example/1.xml", "HTTP://b/2")

    def test_only_absolute_addresses_of_the_web_count(self):
        """Anything else is no place that can be visited."""
        text = "Sitemap: /s.xml\nSitemap: ftp://h/s\nSitemap: javascript:1\nSitemap:"

        assert told(text).sitemaps == ()

    def test_there_is_an_end_to_sitemaps(self):
        """A file of nothing else is cut."""
        text = "\n".join(f"Sitemap: https://h/{n}" for n in range(3 * MAX_ROBOTS_SITEMAPS))

        assert len(told(text).sitemaps) == MAX_ROBOTS_SITEMAPS


class TestBounds:
    def test_the_first_500_kib_are_read_to_the_end_of_a_line(self):
        """A rule that is cut in the middle would be another rule."""
        head = "User-agent: *\nDisallow: /a\n"
        pad = "#" * (MAX_ROBOTS_BYTES - len(head) - len("\nDisallow: /b"))
        text = f"{head}{pad}\nDisallow: /bcd\nDisallow: /e"

        assert allowed(text, "/a", "/bxx", "/e") == [False, True, True]

    def test_a_line_without_end_is_ignored(self):
        """No URL is that long, so no rule of that length is for one of ours."""
        text = (
            f"User-agent: *\nDisallow: /a{'*' * 9000}\nDisallow: /b\nDisallow: /{'c' * 5_000_000}"
        )

        assert allowed(text, "/a", "/b", "/c") == [True, False, True]

    @pytest.mark.parametrize(
        "text",
        [
            "User-agent: *\n" + "".join(f"Disallow: /*{'a' * 40}b{n}\n" for n in range(9_000)),
            "User-agent: *\n" + "".join(f"Disallow: /{'*a' * 1000}*b{n}\n" for n in range(240)),
            "User-agent: *\n" + "".join(f"Disallow:/*z{n}\n" for n in range(30_000)),
        ],
        ids=["needles", "asterisks", "rules"],
    )
    def test_patterns_that_would_take_long_are_not_tried(self, text, monkeypatch):
        """A URL that cannot be judged in bounded time is not allowed; short ones may still be."""
        rules = told(text)
        monkeypatch.setattr(robots, "_matcher", lambda _: pytest.fail("this may take a second"))

        assert not rules.allows("https://h.example/" + "a" * 8000)

    def test_many_asterisks_are_judged_where_that_is_quick(self):
        """An ordinary file with a thousand patterns works as it should."""
        text = "User-agent: *\n" + "".join(f"Disallow: /*?p{n}=\n" for n in range(1000))

        assert allowed(text, "/x?p999=1", "/x?q=1", "/" + "a" * 8000) == [False, True, True]

    def test_groups_of_ten_thousand_robots_cost_nothing(self):
        """Names × rules of others would be a hundred million, and minutes."""
        names = "".join(f"User-agent: b{n}\n" for n in range(10_000))
        text = (
            names
            + "".join(f"Disallow: /{n}\n" for n in range(20_000))
            + "User-agent: *\nDisallow: /x"
        )

        assert allowed(text, "/1", "/x") == [True, False]

    def test_equal_rules_are_kept_once(self):
        """A file that repeats itself is not longer for it."""
        assert told("User-agent: *\n" + "Disallow: /a\n" * 10_000).text == "disallow: /a"


class TestAge:
    @pytest.mark.parametrize(
        ("control", "age"),
        [
            ("max-age=7200", 7200.0),
            ("max-age=0, no-cache", 3600.0),
            ("max-age=99999999", DAY),
            ("max-age=soon", DAY),
            ("private", DAY),
        ],
    )
    def test_a_host_may_ask_to_be_asked_sooner(self, control, age):
        """Cache-Control is honoured between an hour and the setting."""
        response = answered("", 200, ("Cache-Control", control))

        assert rules_of(response, SETTINGS).max_age == age

    def test_the_setting_is_the_limit(self):
        """`robots_max_age` holds whatever the host says."""
        settings = msgspec.structs.replace(SETTINGS, robots_max_age=60.0)

        assert rules_of(answered(), settings).max_age == 60.0


class TestPlace:
    @pytest.mark.parametrize(
        ("url", "place"),
        [
            ("https://h.example/a/b?c#d", "https://h.example/robots.txt"),
            ("http://h.example:8080/", "http://h.example:8080/robots.txt"),
            ("http://[::1]:80/x", "http://[::1]:80/robots.txt"),
        ],
    )
    def test_there_is_one_for_each_scheme_host_and_port(self, url, place):
        """RFC 9309: rules hold for one authority."""
        assert robots_url(url) == place


@pytest.fixture
def clock():
    """Stands where the responses were sent."""
    return FakeClock(NOW)


class TestShelf:
    def test_rules_are_found_until_they_expire(self, clock):
        """A day later the host is asked again."""
        shelf, rules = RobotsCache(clock, "Outrider"), told("User-agent: *\nDisallow: /a")
        shelf.put(SITE, rules)

        assert shelf.get(SITE) == rules
        assert shelf.get("http://h.example/robots.txt") is None
        clock.advance(DAY)
        assert shelf.get(SITE) is None

    def test_new_rules_take_the_place_of_old_ones(self, clock):
        """The last word counts."""
        shelf = RobotsCache(clock, "Outrider")
        shelf.put(SITE, told("User-agent: *\nDisallow: /a"))
        shelf.put(SITE, told("User-agent: *\nDisallow: /b"))

        found = shelf.get(SITE)
        assert found is not None
        assert found.text == "disallow: /b"

    def test_the_host_not_asked_for_longest_goes_first(self, clock, monkeypatch):
        """Memory is bounded by hosts."""
        monkeypatch.setattr(robots, "MAX_HOSTS", 2)
        shelf, rules = RobotsCache(clock, "Outrider"), told("")
        shelf.put("a", rules)
        shelf.put("b", rules)
        shelf.get("a")
        shelf.put("c", rules)

        assert [shelf.get(site) is not None for site in "abc"] == [True, False, True]

    def test_long_rules_make_room_for_themselves(self, clock, monkeypatch):
        """Memory is bounded by text too."""
        monkeypatch.setattr(robots, "MAX_RULES_TEXT", 1000)
        shelf = RobotsCache(clock, "Outrider")
        for site in "abc":
            shelf.put(site, RobotsRules("x" * 400, fetched_at=NOW, max_age=DAY))

        assert [shelf.get(site) is not None for site in "abc"] == [False, True, True]

    def test_rules_outlive_the_process(self, clock, tmp_path):
        """A restart asks no host again, and a learnt Crawl-delay is kept."""
        rules = told("User-agent: *\nDisallow: /a\nCrawl-delay: 9\nSitemap: https://h/s")
        with_file(tmp_path, clock, lambda shelf: shelf.put(SITE, rules))

        assert with_file(tmp_path, clock, lambda shelf: shelf.get(SITE)) == rules

    def test_another_user_agent_requests_robots_txt_again(self, clock, tmp_path):
        """What one robot was told is not for another."""
        with_file(tmp_path, clock, lambda shelf: shelf.put(SITE, told("")))

        assert with_file(tmp_path, clock, lambda shelf: shelf.get(SITE), "Other/2") is None

    def test_rules_of_another_release_are_asked_for_again(self, clock):
        """What cannot be read is a miss."""
        file = CacheFile(None)
        shelf = RobotsCache(clock, "Outrider", file)
        file.put_many([(shelf._key(SITE), msgspec.msgpack.encode({"text": 7}))])

        assert shelf.get(SITE) is None

    def test_rules_are_written_at_once(self, clock):
        """A killed crawl does not ask its hosts again."""
        file = CacheFile(None)
        RobotsCache(clock, "Outrider", file).put(SITE, told(""))

        assert RobotsCache(clock, "Outrider", file).get(SITE) is not None


def with_file(tmp_path, clock, act, agent="Outrider"):
    """What a shelf of one process answers; the file stays."""
    file = CacheFile(tmp_path / "crawl.robots")
    shelf = RobotsCache(clock, agent, file)
    try:
        return act(shelf)
    finally:
        file.close()


@pytest.mark.parametrize(
    "text",
    [
        "a: b\n" * 100_000,
        "User-agent:" * 50_000,
        "User-agent: *\n" * 36_000,
        "allow" + " " * 500_000,
        "User-agent: *\nDisallow: /a" + "*" * 8000 + "\n",
        "User-agent: *\nDisallow: /" + "%zz%41" * 1300 + "\n",
    ],
    ids=["unknown", "no-value", "names", "spaces", "asterisks", "escapes"],
)
def test_hostile_files_are_read_to_the_end(text):
    """Nothing here takes quadratic time; were it so, this test would take minutes."""
    assert told(text).allows("https://h.example/xyz")
