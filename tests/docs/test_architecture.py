"""ARCHITECTURE.md shows the house as it is: its rooms, its floors, and who tests what."""

import re
import tomllib
from pathlib import Path

from outrider.testing import conformance

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
TREE = TEXT.split("## The rooms")[1].split("```")[1]
FLOORS = TEXT.split("## The rooms")[1].split("```")[3]


def modules(package):
    """The modules and packages right inside a package."""
    found = [*package.glob("*.py"), *(path.parent for path in package.glob("*/__init__.py"))]
    return {path.stem for path in found} - {"__init__", "__main__"}


def test_the_tree_names_every_room():
    """A newcomer finds every module of the package, the core and the memory store on the map."""
    package = ROOT / "src" / "outrider"
    rooms = modules(package) | modules(package / "core") | modules(package / "core" / "policy")
    rooms |= modules(package / "store") | modules(package / "store" / "memory")
    rooms |= modules(package / "frontier")

    assert rooms - set(re.findall(r"\w+", TREE)) == set()


def test_the_floors_are_those_of_the_import_contract():
    """The page and the linter say the same; rooms in brackets are not built yet."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    (rooms,) = (c for c in tools["importlinter"]["contracts"] if c["id"] == "rooms")
    floors = [[room for room in floor.split(" | ") if "(" not in room] for floor in rooms["layers"]]

    assert [line.split(" | ") for line in FLOORS.split("\n") if line] == [f for f in floors if f]


def test_the_invariants_point_to_real_topics():
    """Each topic named beside an invariant is a module of the suite."""
    table = TEXT.split("| invariant |")[1].split("\n\n")[0]
    topics = {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[-2])
    }

    assert topics
    assert topics <= modules(Path(conformance.__file__).parent)


def test_it_is_short_enough_to_be_read():
    """Ten minutes: a page that grows must lose something."""
    assert TEXT.count("\n") <= 350
