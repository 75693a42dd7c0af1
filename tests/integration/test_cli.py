"""The `outrider` command as users run it: its output and exit codes."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from outrider import __version__
from outrider.cli import app as cli
from outrider.errors import StoreUnavailable
from outrider.simulation import run as simulation

SMALL = ["demo", "--hosts", "4", "--pages", "6", "--delay", "0.1"]


def outrider(*arguments):
    """Run the command in this process."""
    return CliRunner().invoke(cli.app, list(arguments), prog_name="outrider")


def started(code, *arguments):
    """Run Python code as a process of its own."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


MAIN = "from outrider.cli import main; main()"


def test_the_demo_crawls_to_the_end():
    """It prints why it ended, that no host was visited too soon, and what was not crawled."""
    result = outrider(*SMALL)

    assert result.exit_code == 0, result.output
    for text in ("finished", "0 of ", "visits too soon", "not crawled, by reason", "robots"):
        assert text in result.output


def test_the_demo_has_a_live_view_in_a_terminal(monkeypatch):
    """Drawn over and over, gone at the end, and then the same closing table."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    result = outrider(*SMALL)

    assert result.exit_code == 0
    assert "slots busy" in result.output
    assert "visits too soon" in result.output


def test_one_seed_is_shown_in_detail():
    """What it stands for, what happened, and that every promise was kept."""
    result = outrider("simulate", "--seed", "3")

    assert result.exit_code == 0, result.output
    for text in ("seed", "hosts", "workers", "faults end", "Every invariant held."):
        assert text in result.output


def test_one_seed_can_show_every_call():
    """For reading along."""
    result = outrider("simulate", "--seed", "3", "--trace")

    assert result.output.count(" claim ") > 5
    assert " finish " in result.output


def test_many_seeds_are_summed_up():
    """How many were played, what befell them, and that none broke a promise."""
    result = outrider("simulate", "--seeds", "12", "--from", "40")

    assert result.exit_code == 0, result.output
    assert "0 of 12 seeds violated an invariant." in result.output


def test_seeds_may_be_shared_among_processes():
    """The sums are those of one process."""
    alone, shared = (outrider("simulate", "--seeds", "6", "--jobs", n) for n in ("1", "2"))

    assert alone.output == shared.output


def crash(*_):
    """A core that breaks down."""
    raise RuntimeError("out of luck")


@pytest.fixture
def broken_core(monkeypatch):
    """Every seed meets a core that breaks down at its first verdict."""
    play = simulation.simulate
    monkeypatch.setattr(
        simulation, "simulate", lambda seed, **kw: play(seed, decide_with=crash, **kw)
    )


@pytest.mark.usefixtures("broken_core")
def test_a_broken_promise_leaves_with_1_and_the_command_that_repeats_it():
    """Many seeds: each is named with its command."""
    result = outrider("simulate", "--seeds", "2")

    assert result.exit_code == 1
    assert "outrider simulate --seed 0" in result.output
    assert "2 of 2 seeds violated an invariant." in result.output


@pytest.mark.usefixtures("broken_core")
def test_a_broken_seed_shows_its_last_calls():
    """One seed: the way there, then the promise, and no traceback."""
    result = outrider("simulate", "--seed", "3")

    assert result.exit_code == 1
    assert "The last calls before it:" in result.output
    assert "Seed 3 violated breakdown" in result.output
    assert "RuntimeError: out of luck" in result.output
    assert "Traceback" not in result.output


def test_without_arguments_it_helps():
    """The commands, and what the exit codes mean."""
    result = outrider("--help")

    assert result.exit_code == 0
    for text in ("demo", "simulate", "version", "Exit codes: 0"):
        assert text in result.output


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_version_is_shown(arguments):
    """By command and by option."""
    assert outrider(*arguments).output.startswith(f"outrider {__version__}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--hosts", "0"],
        ["demo", "--seed", "x"],
        ["demo", "--pages", "1e9"],
        ["simulate", "--seed", "-1"],
        ["simulate", "--seeds", "none"],
        ["nonsense"],
        ["demo", "--nonsense"],
    ],
)
def test_bad_arguments_are_refused_in_words(arguments):
    """Code 2, and never a traceback."""
    result = outrider(*arguments)

    assert result.exit_code == 2
    assert "Error" in result.output
    assert "Traceback" not in result.output


def test_outrider_error_is_one_line(monkeypatch, capsys):
    """On standard error, with code 2."""

    def unavailable(**_):
        raise StoreUnavailable("the store did not answer")

    monkeypatch.setattr(cli, "app", unavailable)

    assert cli.run() == 2
    assert capsys.readouterr().err == "outrider: the store did not answer\n"


def test_the_command_runs_as_a_process():
    """As the console script starts it."""
    result = started(MAIN, "version")

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("outrider ")


def test_a_process_refuses_without_a_traceback():
    """Bad arguments from a shell."""
    result = started(MAIN, "demo", "--hosts", "-5")

    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_missing_cli_extra_is_named_with_its_fix():
    """The library works; the command tells what it lacks."""
    hidden = "import sys; sys.modules.update(rich=None, typer=None); import outrider; "
    result = started(hidden + MAIN, "demo")

    assert result.returncode == 2
    assert "pip install 'outrider[cli]'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [("aiohttp", "demo", "crawl"), ("selectolax", "demo", "crawl")],
)
def test_missing_extra_of_a_command_is_named(package, command, extra):
    """`outrider stats` runs where pages are never fetched."""
    hidden = f"import sys; sys.modules[{package!r}] = None; "
    result = started(hidden + MAIN, command, "--hosts", "1", "--pages", "1")

    assert result.returncode == 2
    assert f"pip install 'outrider[{extra}]'" in result.stderr
    assert "Traceback" not in result.stderr
    assert started(hidden + MAIN, "version").returncode == 0
