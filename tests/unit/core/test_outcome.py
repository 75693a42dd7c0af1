"""G0: what a status means for the crawl."""

import pytest

from outrider import Done, Failed, Throttled, outcome_of


@pytest.mark.parametrize("status", [200, 204, 206, 301, 304, 401, 403, 404, 410, 418, 451, 499])
def test_an_answer_is_done(status):
    """2xx, 304, 3xx handed on and most of 4xx are answers, and keep their status."""
    assert outcome_of(status, seconds=0.5, bytes=7, etag="e") == Done(status, 0.5, 7, None, "e")


@pytest.mark.parametrize("status", [100, 408, 425, 500, 502, 503, 504, 599, 999])
def test_a_failure_may_be_tried_again(status):
    """408, 425, 5xx and what is no status at all count as failures."""
    assert outcome_of(status, seconds=0.5) == Failed(f"status {status}", 0.5)


def test_too_many_requests_throttle_with_and_without_retry_after():
    """429 always asks for patience."""
    assert outcome_of(429) == Throttled()
    assert outcome_of(429, retry_after=7.0, seconds=0.1) == Throttled(7.0, 0.1)


def test_unavailable_throttles_only_if_it_says_for_how_long():
    """503 with Retry-After is throttling, without it a failure."""
    assert outcome_of(503, retry_after=0.0) == Throttled(0.0)
    assert outcome_of(503) == Failed("status 503")


def test_retry_after_wins_over_the_backoff():
    """G1: a failure that names its wait keeps it."""
    assert outcome_of(500, retry_after=9.0) == Failed("status 500", 0.0, 9.0)
