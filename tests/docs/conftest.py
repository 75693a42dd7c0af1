"""What pages need to be run: example.org on this machine, and commands that find it."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for example_web, which the commands of a page import as well

import example_web  # noqa: E402 - see above


class Here(NamedTuple):
    """Where example.org is served, and the commands that know it."""

    port: int
    commands: Path


@pytest.fixture(scope="session")
def here(tmp_path_factory):
    """One web for all pages."""
    folder = tmp_path_factory.mktemp("bin")
    command = [sys.executable, example_web.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        port = int(process.stdout.readline())
        example_web.put_commands(folder, port)
        yield Here(port, folder)
        process.stdin.close()
