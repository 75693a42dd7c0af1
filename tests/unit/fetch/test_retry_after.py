import pytest

from outrider.fetch.response import (
    MAX_RETRY_AFTER,
    Response,
    http_date,
    retry_after,
    retry_after_of,
)

NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT
FORMS = [
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Sunday, 06-Nov-94 08:49:37 GMT",
    "Sun Nov  6 08:49:37 1994",
]


def answered(*fields):
    """A response with these header fields."""
    return Response("https://h.example/", 503, fields, b"", 0.1, NOW)


class TestSeconds:
    @pytest.mark.parametrize(
        ("value", "seconds"),
        [("0", 0.0), ("120", 120.0), (" 7\t", 7.0), ("1.5", 1.5), ("+3", 3.0), ("86400", 86_400.0)],
    )
    def test_a_number_is_seconds(self, value, seconds):
        """Plain seconds, with what lenient hosts write around them."""
        assert retry_after(value, None, NOW) == seconds

    def test_negative_seconds_are_no_wait(self):
        """A host that asks for less than nothing asks for nothing."""
        assert retry_after("-30", None, NOW) == 0.0

    @pytest.mark.parametrize("value", ["86401", "999999999999999999"])
    def test_more_than_a_day_is_a_day(self, value):
        """D3: Retry-After is honoured up to 24 h."""
        assert retry_after(value, None, NOW) == MAX_RETRY_AFTER


class TestDates:
    @pytest.mark.parametrize("form", FORMS)
    def test_all_three_forms_are_one_instant(self, form):
        """RFC 9110: recipients read the two obsolete forms too."""
        assert http_date(form, NOW) == NOW

    def test_a_date_counts_from_the_hosts_own_clock(self):
        """The host's clock is an hour fast: the difference to its Date is what it asks for."""
        until = "Sun, 06 Nov 1994 09:51:37 GMT"

        assert retry_after(until, "Sun, 06 Nov 1994 09:49:37 GMT", NOW) == 120.0

    @pytest.mark.parametrize("date", [None, "yesterday", ""])
    def test_without_date_field_it_counts_from_own_clock(self, date):
        """A missing or unreadable Date leaves only our own clock."""
        assert retry_after("Sun, 06 Nov 1994 08:50:37 GMT", date, NOW) == 60.0

    def test_a_date_in_the_past_is_no_wait(self):
        """The time has come already."""
        assert retry_after("Sun, 06 Nov 1994 08:00:00 GMT", None, NOW) == 0.0

    def test_a_date_far_ahead_is_a_day(self):
        """The cap holds for dates too."""
        assert retry_after("Mon, 06 Nov 2094 08:00:00 GMT", None, NOW) == MAX_RETRY_AFTER

    def test_two_digits_of_a_year_that_seem_far_ahead_are_past(self):
        """RFC 9110: more than 50 years in the future means the last such year."""
        assert http_date("Sunday, 06-Nov-94 08:49:37 GMT", 1_700_000_000.0) == NOW

    def test_a_leap_second_is_a_time(self):
        """Second 60 is allowed in HTTP dates."""
        assert http_date("Sat, 31 Dec 2016 23:59:60 GMT", NOW) == 1_483_228_799.0


class TestGarbage:
    @pytest.mark.parametrize(
        "value",
        [
            "",
            "soon",
            "nan",
            "inf",
            "1e9",
            "0x10",
            "12 34",
            "１２０",
            "9" * 10_000,
            "Sun, 06 Nov 1994",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Sun, 06 Nov 0000 08:49:37 GMT",
            "Sun, 06 Nov 1994 25:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT" + " " * 10_000 + "x",
        ],
    )
    def test_garbage_counts_as_absent(self, value):
        """What cannot be read is no answer: a 503 with it is not Throttled."""
        assert retry_after(value, None, NOW) is None


class TestOfAResponse:
    def test_the_field_is_found_whatever_its_case(self):
        """Names of fields have no letter case."""
        response = answered(("RETRY-AFTER", "Sun, 06 Nov 1994 08:50:07 GMT"), ("date", FORMS[0]))

        assert retry_after_of(response, NOW + 9999) == 30.0

    def test_no_field_is_no_answer(self):
        """Nothing is made up."""
        assert retry_after_of(answered(("Date", FORMS[0])), NOW) is None
