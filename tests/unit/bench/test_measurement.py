"""A benchmark tells every figure as it is measured: a run that is cut off leaves what it has."""

import asyncio
import io
import json
import signal
import subprocess
import sys

import pytest

from outrider.bench.measurement import Measure, Results, as_measured, measure_parts, write_json

FIRST = Measure("first", 1234.5, "/s", 1000)
SECOND = Measure("second", 0.25, "×", 0.2, is_most=True)


def measures_of(path):
    """The names in the file, and whether it says that the run was not cut off."""
    report = json.loads(path.read_text())
    return [one["name"] for one in report["measures"]], report["complete"]


def test_figure_is_printed_and_written_before_the_next_is_measured(tmp_path):
    """Line by line, and the file is replaced each time."""
    path, out, seen = tmp_path / "out.json", io.StringIO(), []

    def part():
        yield FIRST
        seen.append((measures_of(path), out.getvalue().splitlines()[1:]))
        yield SECOND

    results = Results(path, {"about": "x"}, out)
    measure_parts(results, [("a part", part)])

    ((written, printed),) = seen
    assert written == (["first"], False)
    assert [line.split() for line in printed] == [["first", "1,234", "/s", "≥", "1,000", "yes"]]
    assert measures_of(path) == (["first", "second"], True)
    assert out.getvalue().splitlines()[2].split() == ["second", "0.25", "×", "≤", "0.2", "no"]
    assert json.loads(path.read_text())["about"] == "x"
    assert list(tmp_path.iterdir()) == [path]


def test_failing_part_leaves_the_figures_before_it(tmp_path):
    """Also one that raises is a run that is cut off."""
    path = tmp_path / "out.json"

    def part():
        yield FIRST
        raise RuntimeError

    with pytest.raises(RuntimeError):
        measure_parts(Results(path, {}, io.StringIO()), [("a part", part)])

    assert measures_of(path) == (["first"], False)


def test_json_is_replaced_whole(tmp_path, monkeypatch):
    """What cannot be written leaves the old figures."""
    path = tmp_path / "out.json"
    write_json(path, [1])

    with pytest.raises(TypeError):
        write_json(path, [object()])

    assert json.loads(path.read_text()) == [1]


def test_asynchronous_figures_come_one_by_one():
    """In one loop, which stays between them."""
    loops = []

    async def measured():
        for number in range(3):
            loops.append(asyncio.get_running_loop())
            yield number

    found = as_measured(measured())
    assert next(found) == 0
    assert len(loops) == 1
    assert list(found) == [1, 2]
    assert len(set(loops)) == 1


@pytest.mark.slow
def test_killed_bench_leaves_its_first_figure(tmp_path):
    """On its output and in its file, whatever it was doing when it was killed."""
    path = tmp_path / "out.json"
    words = ["bench", "--quick", "--only", "scoring", "--json", str(path)]
    with subprocess.Popen(
        [sys.executable, "-m", "outrider", *words], stdout=subprocess.PIPE, text=True
    ) as bench:
        lines = [bench.stdout.readline(), bench.stdout.readline()]
        bench.send_signal(signal.SIGKILL)

    names, is_complete = measures_of(path)
    assert lines[1].startswith("score a task, all features")
    assert names[0] == "score a task, all features"
    assert not is_complete
