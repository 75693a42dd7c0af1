"""SIGTERM and SIGINT: what is in flight ends first; a second signal ends it at once (J4)."""

import json
import shlex
import signal

import pytest

from outrider.testing.web import Site, Web, violations
from outrider.testing.web.behaviours import linked, slow

HOST = "slow.web.test"
PAGES = [f"/{number}" for number in range(4)]
DELAY = 0.1


@pytest.fixture
def begun(outrider, serve, until):
    """A web whose pages take so many seconds, and a crawl that just asked for the first of them."""

    def begin(seconds):
        asked = []
        page = slow(linked("late"), wait=seconds)
        paths = {path: lambda request: asked.append(request) or page(request) for path in PAGES}
        paths["/"] = linked("root", *PAGES)
        served = serve(Web([Site(HOST, paths=paths, pages=list(paths))]))
        words = outrider.on(served, f"http://{HOST}/", "--quiet", delay=DELAY)
        process = outrider.start(*words)
        until(lambda: asked)
        return served, process

    return begin


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_first_signal_drains_and_the_named_command_resumes(outrider, begun, number):
    """Exit 130, nothing cut short; the last line is a file and a command, which finishes it."""
    served, process = begun(0.4)
    process.send_signal(number)
    stopped = outrider.end(process)
    assert stopped.code == 130
    assert "interrupted" in stopped.out
    assert not any(hit.is_cut for hit in served.hits())
    urls = [line["url"] for line in outrider.lines(f"{HOST}.jsonl")]
    assert urls == [f"http://{HOST}/", f"http://{HOST}/0"]
    name, _, resume = stopped.last.partition(": resume with: ")
    assert name == f"{HOST}.outrider"
    command, *words = shlex.split(resume)
    assert command == "outrider"
    assert outrider(*words).code == 0
    urls = sorted(line["url"] for line in outrider.lines(f"{HOST}.jsonl"))
    assert urls == sorted(served.web.urls())
    assert violations(served.hits(), delay=DELAY, web=served.web) == []


@pytest.mark.slow
def test_the_second_signal_ends_it_at_once(outrider, begun, until):
    """What was in flight goes back unpunished."""
    served, process = begun(30.0)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    stopped = outrider.end(process)
    assert stopped.code == 130
    until(lambda: any(hit.is_cut for hit in served.hits()))  # it did not wait for the page
    listed = outrider("tasks", f"{HOST}.outrider", "--pattern", "/0$", "--json")
    task = json.loads(listed.out)
    assert (task["state"], task["attempts"]) == ("pending", 0)
