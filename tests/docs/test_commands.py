"""The page of commands leaves nothing out: commands, options and words are those of the code."""

import re
from pathlib import Path

import pytest
import typer

from outrider.cli import queues, tasks
from outrider.cli.app import app
from outrider.cli.crawl_report import ENDS
from outrider.executor.watchdog import EXIT_CODE
from outrider.frontier import reports
from outrider.store import protocol

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "commands.md").read_text("utf-8")
COMMANDS = typer.main.get_command(app).commands
COMMON = {"--crawl", "--json", "--help"}


def sections():
    """The sections of the page, by heading."""
    return dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])


def headed(name):
    """The section of a command."""
    (found,) = [text for head, text in sections().items() if f"`{name}`" in head.split(", ")]
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_section_with_its_options(name):
    """An option nobody can look up does not exist."""
    options = {max(p.opts, key=len) for p in COMMANDS[name].params if p.param_type_name == "option"}

    assert {option for option in options - COMMON if f"`{option}" not in headed(name)} == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_made_up(name):
    """What the page shows can be typed."""
    (head,) = [head for head in sections() if f"`{name}`" in head.split(", ")]
    sharing = re.findall(r"`(\w+)`", head)
    known = {o for one in sharing for parameter in COMMANDS[one].params for o in parameter.opts}
    rows = re.findall(r"^\| `(--[a-z-]+)", headed(name), re.MULTILINE)

    assert set(rows) <= known


@pytest.mark.parametrize(("name", "acts"), [("queue", queues.Act), ("dead", tasks.DeadAct)])
def test_every_action_is_documented(name, acts):
    """`queue KEY …` and `dead …`."""
    assert {one for one in acts if f"| `{one}" not in headed(name)} == set()


@pytest.mark.parametrize("name", COMMANDS["config"].commands)
def test_every_config_action_is_documented_with_its_options(name):
    """`config …` is a group of commands."""
    command = COMMANDS["config"].commands[name]
    options = {max(p.opts, key=len) for p in command.params if p.param_type_name == "option"}

    assert f"| `{name} " in headed("config")
    assert {option for option in options - COMMON if f"`{option}" not in headed("config")} == set()


@pytest.mark.parametrize("kind", [reports.SuffixView, protocol.QueueView, protocol.TaskView])
def test_shapes_are_named(kind):
    """JSON is what the reference of the frontier says of the value."""
    assert f"`{kind.__name__}`" in PAGE


def test_exit_codes_of_a_crawl_are_those_of_the_code():
    """A script that goes by them can look them up."""
    table = headed("crawl").split("### Exit codes of `crawl`")[1]
    rows = re.findall(r"^\| (\d+) \| `([a-z]+)` \|", table, re.MULTILINE)

    assert {end: int(code) for code, end in rows} == {end: ENDS[end][1] for end in ENDS}
    assert f"| {EXIT_CODE} | |" in table
