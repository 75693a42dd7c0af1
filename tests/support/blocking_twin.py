"""Generate `outrider.blocking` from the async frontier: `python tests/support/blocking_twin.py`.

The signatures and docstrings of `outrider.Frontier` and its `QueueHandle` are read from their
source and written again without `await`, as plain files, so that type checkers and editors see
them. The return annotation decides how a method is called:

- a coroutine, and any other result: run in the loop's thread;
- `AsyncIterator`: a plain iterator, each item of which is awaited in the loop's thread;
- `Callable[[], None]`, the function that ends something: called in the loop's thread, too;
- `Claim` and `Lease`: the blocking frontier becomes the holder of the leases;
- `QueueHandle`: the blocking one.

What these rules cannot say is in `BODIES`. A test compares the result with the files.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src" / "outrider"

FRONTIER_HEAD: Final = '''
class Frontier:
    """`outrider.Frontier` without `await`; use it in a `with`, or `close` it.

    Its methods run in the event loop of a thread of its own. Functions that are given to it, such
    as listeners, are called in that thread.
    """

    def __init__(self, frontier: AsyncFrontier) -> None:
        self._loop = LoopThread()
        try:
            self._frontier = self._loop.run(_open(frontier))
        except BaseException:
            self._loop.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<blocking {self._frontier!r}>"

    def _hold(self, claim: Claim) -> Claim:
        """Make this the holder of leases, so that `with lease:` releases them without `await`."""
        for lease in claim:
            msgspec.structs.force_setattr(lease, "holder", self)
        return claim

    def _hold_each(self, leases: Iterator[Lease]) -> Iterator[Lease]:
        for lease in leases:
            msgspec.structs.force_setattr(lease, "holder", self)
            yield lease

    def _hold_each_view(self, views: Iterator[LeaseView]) -> Iterator[LeaseView]:
        for view in views:
            msgspec.structs.force_setattr(view.lease, "holder", self)
            yield view

    def _hold_one(self, lease: Lease | None) -> Lease | None:
        if lease is not None:
            msgspec.structs.force_setattr(lease, "holder", self)
        return lease
'''
# What becomes the holder of the leases in an answer.
HOLDS: Final = {"Claim": "_hold", "Lease | None": "_hold_one"}
FRONTIER_TAIL: Final = """

async def _open(frontier: AsyncFrontier) -> AsyncFrontier:
    if not isinstance(frontier, AsyncFrontier):
        raise InvalidInput("a blocking frontier is made by outrider.blocking.Frontier.open(...)")
    return await frontier
"""
FRONTIER_IMPORTS: Final = """
import msgspec
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self
from outrider.blocking.loop_thread import LoopThread
from outrider.blocking.queue import QueueHandle
from outrider.errors import Closed, InvalidInput
from outrider.frontier import Frontier as AsyncFrontier
"""
TYPE_IMPORTS: Final = """
if TYPE_CHECKING:
    from types import TracebackType
"""
QUEUE_HEAD: Final = '''
class QueueHandle:
    """A queue, or all queues of a suffix: every action is durable and returns the new view."""

    def __init__(self, loop: LoopThread, handle: AsyncQueueHandle) -> None:
        self.key = handle.key
        self._loop = loop
        self._handle = handle
'''
QUEUE_IMPORTS: Final = """
from outrider.blocking.loop_thread import LoopThread
from outrider.frontier.admin import QueueHandle as AsyncQueueHandle
"""

# Bodies that do not follow from the signature.
BODIES: Final = {
    "open": "return cls(AsyncFrontier.open({arguments}))",
    "attach": "return cls(AsyncFrontier.attach({arguments}))",
    # Closing twice is allowed, and ends the thread.
    "close": """try:
    self._loop.run(self._frontier.close())
except Closed:
    return
self._loop.stop()""",
    # It listens from the call on, not from the first item on.
    "events": "return self._loop.iterate(self._loop.call(self._frontier.events))",
}
WORDS: Final = {
    "enter it with `async with`, or `await` it and `close` it": "use it in a `with`, or `close` it"
}

Method = ast.FunctionDef | ast.AsyncFunctionDef


def frontier_source() -> str:
    """Return the text of `outrider/blocking/frontier.py`."""
    module = ast.parse((SOURCE / "frontier" / "frontier.py").read_text("utf-8"))
    methods = "\n".join(twin_of(method, "_frontier") for method in methods_of(module, "Frontier"))
    imports = FRONTIER_IMPORTS + imports_for(module, methods) + TYPE_IMPORTS
    head = header("The frontier without `await`", "outrider/frontier/frontier.py")
    text = head + imports + FRONTIER_HEAD + methods + FRONTIER_TAIL
    return formatted(text, "src/outrider/blocking/frontier.py")


def queue_source() -> str:
    """Return the text of `outrider/blocking/queue.py`."""
    module = ast.parse((SOURCE / "frontier" / "admin.py").read_text("utf-8"))
    methods = "\n".join(twin_of(method, "_handle") for method in methods_of(module, "QueueHandle"))
    head = header("The handle of a queue without `await`", "outrider/frontier/admin.py")
    text = head + QUEUE_IMPORTS + imports_for(module, methods) + QUEUE_HEAD + methods
    return formatted(text, "src/outrider/blocking/queue.py")


def header(title: str, source: str) -> str:
    """Return the docstring of a generated file."""
    return (
        f'"""{title}: generated from {source}; do not edit.\n\n'
        'After a change there, run `make twin`.\n"""\n\nfrom __future__ import annotations\n'
    )


def methods_of(module: ast.Module, name: str) -> Iterator[Method]:
    """Yield the public methods and properties of a class."""
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for member in node.body:
                if isinstance(member, Method) and not member.name.startswith("_"):
                    yield member


def twin_of(method: Method, inner: str) -> str:
    """Return the source of a method of the blocking class, indented."""
    result = "None" if method.returns is None else ast.unparse(method.returns)
    docstring = blocking_docstring(ast.get_docstring(method) or "")
    decorators = [f"@{ast.unparse(one)}" for one in method.decorator_list]
    body = body_of(method, result, inner)
    twin = Blocking().visit(method)
    lines = [
        *decorators,
        f"def {twin.name}({ast.unparse(twin.args)}) -> {ast.unparse(twin.returns)}:",
        *indented(f'"""{docstring}' + ('\n"""' if "\n" in docstring else '"""')),
        *indented(body),
    ]
    return "\n".join(indented("\n".join(lines))) + "\n"


def blocking_docstring(text: str) -> str:
    """Return the docstring that the twin of a method has."""
    for old, new in WORDS.items():
        text = text.replace(old, new)
    return text


def body_of(method: Method, result: str, inner: str) -> str:
    """Return the statements of the twin, by what the method returns."""
    target = f"self.{inner}.{method.name}"
    if is_property(method):
        return f"return {target}"
    call = f"{target}({arguments_of(method)})"
    if method.name in BODIES:
        return BODIES[method.name].format(arguments=arguments_of(method))
    if result.startswith("AsyncIterator"):
        items = f"self._loop.iterate({call})"
        if "[LeaseView]" in result:
            return f"return self._hold_each_view({items})"
        return f"return self._hold_each({items})" if "[Lease]" in result else f"return {items}"
    if result == "QueueHandle":
        return f"return QueueHandle(self._loop, {call})"
    is_coroutine = isinstance(method, ast.AsyncFunctionDef)
    run = f"self._loop.run({call})" if is_coroutine else f"self._loop.call(lambda: {call})"
    if result == "Callable[[], None]":
        return f"return self._loop.bind({run})"
    if result in HOLDS:
        return f"return self.{HOLDS[result]}({run})"
    return run if result == "None" else f"return {run}"


def is_property(method: Method) -> bool:
    """Tell whether a method is a property."""
    return any(ast.unparse(one) == "property" for one in method.decorator_list)


def arguments_of(method: Method) -> str:
    """Return the arguments that pass on the parameters of a method."""
    given = method.args
    passed = [one.arg for one in (*given.posonlyargs, *given.args)][1:]
    passed += [] if given.vararg is None else [f"*{given.vararg.arg}"]
    passed += [f"{one.arg}={one.arg}" for one in given.kwonlyargs]
    passed += [] if given.kwarg is None else [f"**{given.kwarg.arg}"]
    return ", ".join(passed)


class Blocking(ast.NodeTransformer):
    """Rewrites annotations: no async iterables are taken, and plain iterators returned."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Take the async iterables out of a union."""
        for kept, other in ((node.left, node.right), (node.right, node.left)):
            if ast.unparse(other).startswith("AsyncIterable["):
                return self.visit(kept)  # type: ignore[no-any-return]
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Say Iterator for AsyncIterator."""
        return ast.Name("Iterator") if node.id == "AsyncIterator" else node


def indented(text: str) -> list[str]:
    """Return the lines of a text, indented by one level."""
    return [f"    {line}" if line else "" for line in text.split("\n")]


def imports_for(module: ast.Module, methods: str) -> str:
    """Return the imports of a module that the text of methods needs."""
    used = {
        node.id
        for node in ast.walk(ast.parse(f"class _:\n{methods}"))
        if isinstance(node, ast.Name)
    }
    lines = []
    for node in module.body:
        if isinstance(node, ast.Import):
            lines += [f"import {one.name}" for one in node.names if one.name in used]
        elif isinstance(node, ast.ImportFrom):
            names = [
                one for one in node.names if (one.asname or one.name) in used - {"QueueHandle"}
            ]
            lines += [f"from {node.module} import {ast.unparse(one)}" for one in names]
    return "\n".join(lines) + "\n"


def formatted(text: str, name: str) -> str:
    """Sort the imports and format the text as the house does."""
    for command in (["check", "--select", "I", "--fix"], ["format"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", name, "-"]
        done = subprocess.run(
            ruff, input=text, capture_output=True, text=True, cwd=ROOT, check=True
        )
        text = done.stdout
    return text


def main() -> None:
    """Write the generated files."""
    (SOURCE / "blocking" / "frontier.py").write_text(frontier_source(), "utf-8")
    (SOURCE / "blocking" / "queue.py").write_text(queue_source(), "utf-8")


if __name__ == "__main__":
    main()
