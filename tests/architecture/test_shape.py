"""Objects are composed: inheritance shares at most one level of implementation.

`benchmarks/shape.py` measures it, and says what counts as implementation.
"""

import ast
import importlib.util
import pathlib
import sys

import pytest

import outrider

ROOT = pathlib.Path(__file__).parents[2]
SOURCE = pathlib.Path(outrider.__file__).parent

# Packages in which a class may inherit implementation over more than one level. The naive model is
# one object on purpose: it is read from its first rule to its last, and its parts are chapters.
DEEPER_THAN_ONE = {"outrider.testing.model"}


def load_shape():
    """Import the script that measures the shape."""
    spec = importlib.util.spec_from_file_location("shape", ROOT / "benchmarks" / "shape.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_no_class_inherits_implementation_deeper_than_one_level():
    """An object that is too big is several objects, handed to each other in constructors."""
    shape = load_shape()
    deep = {shape.name_of(cls): shape.depth(cls) for cls in shape.classes()}
    deep = {name: depth for name, depth in deep.items() if depth > 1}

    found = {sys.modules[name.rpartition(".")[0]].__package__ for name in deep}

    assert found - DEEPER_THAN_ONE == set(), deep
    assert DEEPER_THAN_ONE - found == set(), "take these off the list: nothing in them is deep"


def test_no_object_asks_whether_it_is_half_built():
    """A constructor leaves a whole object, so no method guards against a missing attribute."""
    found = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if has_guard(path)
    }

    assert found == set()


def has_guard(path):
    """Tell whether a module calls `getattr(self, "name", default)`."""
    return any(
        isinstance(node.func, ast.Name)
        and node.func.id == "getattr"
        and len(node.args) == 3
        and isinstance(node.args[0], ast.Name)
        and node.args[0].id == "self"
        and isinstance(node.args[1], ast.Constant)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
    )
