"""The shape of the code base in figures: modules, packages, inheritance, and the walk of one page.

python benchmarks/shape.py [--json OUT]

Everything is measured on the `outrider` package that Python imports; put another tree first on
PYTHONPATH to measure that one.

- **Code lines**: lines of Python files that are neither blank, nor a comment, nor a docstring.
- **Depth**: the longest chain of base classes of the project that bring implementation, that is, a
  function written in their body. A class without such a base has depth 0. Protocols and exceptions
  do not count; neither do bases without functions, such as a `Struct` that only declares fields.
- **Largest class**: by the number of methods, over all classes of the project among its ancestors,
  itself included. Attributes are the names assigned on `self` in them.
- **Walk of one page**: a page with ten links on a local host is crawled into an embedded file: the
  seed is added, leased, robots.txt and the page are fetched, the page is parsed, written to the
  output and finished with its links. Counting begins at the call of `Frontier.add` with the seed
  and ends when the executor reports the visit as finished. *Modules* are those in which a function
  was entered. A *switch* is an entry of a function in another package than that of the entry
  before it in the same thread (`outrider.store` and `outrider.store.embedded` are two packages); a
  coroutine that resumes counts as entered, a return does not count. One crawl runs first, so that
  imports and caches are not part of the walk, and of five walks the shortest is taken: a body that
  arrives in two pieces makes one longer. `to_first_byte` is the part before the host received the
  request for the page.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import importlib
import inspect
import json
import pkgutil
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import outrider
from outrider import wiring

ROOT = Path(outrider.__file__).parent
LINKS = 10
WALKS = 5
NOT_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


# Modules and lines


def modules() -> list[Path]:
    """List the package's Python files."""
    return sorted(ROOT.rglob("*.py"))


def package_of(path: Path) -> str:
    """Name the package a file is in."""
    return ".".join(("outrider", *path.relative_to(ROOT).parts[:-1]))


def code_lines(path: Path) -> int:
    """Count the lines with code on them."""
    with path.open("rb") as file:
        lines = {
            line
            for token in tokenize.tokenize(file.readline)
            if token.type not in NOT_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
    return len(lines - docstring_lines(path))


def docstring_lines(path: Path) -> set[int]:
    """List the lines of docstrings."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            found.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return found


# Classes


def classes() -> list[type]:
    """Import every module and list the classes it defines."""
    found: dict[type, None] = {}
    for info in pkgutil.walk_packages(outrider.__path__, "outrider."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        found |= dict.fromkeys(
            value
            for value in vars(module).values()
            if inspect.isclass(value) and value.__module__ == info.name
        )
    return list(found)


def is_of_project(cls: type) -> bool:
    """Tell whether a class is defined in the package."""
    return cls.__module__.split(".")[0] == "outrider"


def functions_of(cls: type) -> dict[str, FunctionType]:
    """Give the functions written in a class's own body, properties included."""
    file = getattr(sys.modules[cls.__module__], "__file__", None)
    found = {name: _function(value) for name, value in vars(cls).items()}
    return {
        name: function
        for name, function in found.items()
        if function is not None and function.__code__.co_filename == file
    }


def _function(value: object) -> FunctionType | None:
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, cached_property):
        value = value.func
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, FunctionType) else None


def implements(cls: type) -> bool:
    """Tell whether a base brings implementation."""
    if not is_of_project(cls) or getattr(cls, "_is_protocol", False):
        return False
    return not issubclass(cls, BaseException) and bool(functions_of(cls))


def depth(cls: type) -> int:
    """Count the longest chain of bases with implementation."""
    return max((depth(base) + implements(base) for base in cls.__bases__), default=0)


def name_of(cls: type) -> str:
    """Give a class's full name."""
    return f"{cls.__module__}.{cls.__qualname__}"


def size(cls: type) -> dict[str, Any]:
    """Count a class with its ancestors: classes, methods, attributes."""
    line = [one for one in cls.__mro__ if is_of_project(one)]
    return {
        "name": name_of(cls),
        "classes": len(line),
        "methods": sum(len(functions_of(one)) for one in line),
        "attributes": len(set().union(*map(attributes_of, line))),
    }


def attributes_of(cls: type) -> set[str]:
    """List the names that a class's own functions assign on `self`."""
    tree = ast.parse(Path(inspect.getfile(cls)).read_text("utf-8"))
    body = next(
        (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == cls.__name__), tree
    )
    return {
        node.attr
        for node in ast.walk(body)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


# The walk of one page


class Walk:
    """Counts entries of functions of the package, by thread, while it is on."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.entries = 0
        self.switches = 0
        self.path: list[str] = []  # the packages in the order of entry
        self.to_first_byte: dict[str, int] = {}
        self._last = threading.local()

    def figures(self) -> dict[str, int]:
        """Give the counts so far."""
        packages = {module.rpartition(".")[0] for module in self.modules}
        return {
            "modules": len(self.modules),
            "packages": len(packages),
            "switches": self.switches,
            "entries": self.entries,
        }

    def note_first_byte(self) -> None:
        """Keep the counts of the way to the host."""
        self.to_first_byte = self.to_first_byte or self.figures()

    def start(self) -> None:
        """Count from now on, in this thread and in those started later."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def stop(self) -> None:
        """Count no more."""
        sys.setprofile(None)
        threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event != "call" or not isinstance(module, str) or module.split(".")[0] != "outrider":
            return
        if frame.f_code.co_name == "<module>":
            return
        if module == "outrider" or frame.f_globals.get("__path__"):
            module += ".__init__"
        package = module.rpartition(".")[0]
        self.modules.add(module)
        self.entries += 1
        if package != getattr(self._last, "package", package):
            self.switches += 1
        if package != getattr(self._last, "package", None):
            self.path.append(module)
        self._last.package = package


@contextmanager
def served(on_page: Callable[[], None]) -> Iterator[str]:
    """Serve one page with links, and give its URL."""
    links = "".join(f'<a href="/page/{n}">page {n}</a>' for n in range(LINKS))
    page = f"<!doctype html><title>One page</title><p>{links}".encode()
    answers = {"/": (b"text/html", page), "/robots.txt": (b"text/plain", b"User-agent: *\n")}

    class Host(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/":
                on_page()
            kind, body = answers.get(self.path, (b"text/plain", b""))
            self.send_response(200)
            self.send_header("Content-Type", kind.decode())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Host)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def crawl_one(walk: Walk | None, scratch: Path) -> None:
    """Crawl one page, counting from the add of its seed to its finish."""
    settings = {
        "url": {"allow_private": True},
        "politeness": {"delay": 0.0},
        "limits": {"done": 1},
        "executor": {"slots": 1},
        "output": {"path": str(scratch / "pages")},
    }

    def ended(_visits: object) -> None:
        if walk is not None:
            walk.stop()

    with served(walk.note_first_byte if walk else lambda: None) as url:
        async with wiring.opened(scratch / "crawl.outrider", settings=settings) as crawling:
            crawling.observe(ended)
            if walk is not None:
                walk.start()
            await crawling.frontier.add([url])
            await crawling.run()
            stats = await crawling.frontier.stats()
            if stats.done != 1 or stats.known != 1 + LINKS:
                raise RuntimeError(f"not the walk that was meant: {stats}")


def walk_one() -> Walk:
    """Crawl once to warm up, then count, and give the shortest walk."""
    walks = [Walk() for _ in range(WALKS)]
    for counting in (None, *walks):
        with tempfile.TemporaryDirectory() as scratch:
            asyncio.run(crawl_one(counting, Path(scratch)))
    return min(walks, key=lambda walk: walk.switches)


# All of it


def measure() -> dict[str, Any]:
    """Measure everything."""
    files, known = modules(), classes()
    walk = walk_one()
    sizes = [size(cls) for cls in known]
    deepest = max(known, key=depth)
    return {
        "modules": len(files),
        "code_lines": sum(map(code_lines, files)),
        "packages": dict(Counter(map(package_of, files)).most_common()),
        "classes": len(known),
        "deepest": {"name": name_of(deepest), "depth": depth(deepest)},
        "deeper_than_one": sum(depth(cls) > 1 for cls in known),
        "largest": max(sizes, key=lambda one: one["methods"]),
        "most_attributes": max(sizes, key=lambda one: one["attributes"]),
        "walk": {"to_first_byte": walk.to_first_byte, "to_finish": walk.figures()},
    }


def main() -> None:
    """Print the figures, and write them down."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--path", action="store_true", help="print the walk, switch by switch")
    asked = parser.parse_args()
    if asked.path:
        print("\n".join(walk_one().path))
        return
    text = json.dumps(measure(), indent=2)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
