"""ARCHITECTURE.md is true: its layers, packages, walk of a page, and tests of invariants."""

import ast
import re
import tomllib
from pathlib import Path

from outrider.testing import conformance

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "outrider"
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
LAYERS = TEXT.split("## Layers")[1].split("```")[1]
PACKAGES = TEXT.split("## Packages")[1].split("\n## ")[0]
WALK = TEXT.split("## The walk of one page")[1].split("```")[1]


def modules(package):
    """List the modules right inside a package."""
    return {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}


def test_every_package_is_listed_with_its_modules():
    """A newcomer finds every module in the table, and no module that is gone."""
    found = {
        path.parent.relative_to(SOURCE).as_posix(): modules(path.parent)
        for path in SOURCE.rglob("__init__.py")
    }
    found["outrider"] = found.pop(".")
    rows = re.findall(r"^\| `([\w/]+)` \| [^|]* \| (.*) \|$", PACKAGES, re.MULTILINE)
    listed = {name: set(re.findall(r"`(\w+)`(?= \(| ·|$)", cell)) for name, cell in rows}

    assert listed == {name: names for name, names in found.items() if names}


def test_layers_are_those_of_the_import_contract():
    """The page and the linter agree; packages in brackets are not built yet."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    (contract,) = (c for c in tools["importlinter"]["contracts"] if c["id"] == "layers")
    layers = [[name for name in row.split(" | ") if "(" not in name] for row in contract["layers"]]

    assert [row.split(" | ") for row in LAYERS.split("\n") if row] == [row for row in layers if row]


def test_steps_of_the_walk_exist():
    """Each step names a module, and a function or class in it."""
    steps = re.findall(r"^ *\d* +([\w/]+\.py) +([\w.]+)", WALK, re.MULTILINE)

    assert len(steps) > 20
    assert [step for step in steps if not is_defined(*step)] == []


def is_defined(path, name):
    """Tell whether a module defines a name such as `Class.method`."""
    if not (SOURCE / path).is_file():
        return False
    body = ast.parse((SOURCE / path).read_text("utf-8")).body
    for part in name.split("."):
        node = next((one for one in body if getattr(one, "name", None) == part), None)
        if node is None:
            return False
        body = node.body
    return True


def test_named_files_exist():
    """Every path on the page is one of the package or of the repository."""
    named = re.findall(r"`((?:\w+/)+(?:\w+\.(?:py|md|sql|lua))?)`", TEXT)

    assert [
        path for path in named if not ((SOURCE / path).exists() or (ROOT / path).exists())
    ] == []


def test_invariants_name_modules_of_the_conformance_suite():
    """Each topic beside an invariant is a module of the suite."""
    table = TEXT.split("| invariant |")[1].split("\n\n")[0]
    topics = {
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[-2])
    }

    assert topics
    assert topics <= modules(Path(conformance.__file__).parent)


def test_page_can_be_read_in_ten_minutes():
    """A page that grows must lose something."""
    assert TEXT.count("\n") <= 350
