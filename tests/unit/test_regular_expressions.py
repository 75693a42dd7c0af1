"""Every regular expression that meets text from outside takes linear time, or a bounded one."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path
from time import process_time
from types import BuiltinFunctionType
from typing import NamedTuple

import pytest

import outrider
from outrider.fetch.parse_cost import MAX_TAGS

OWNER = "the owner of the crawl writes it, in a command or a settings file of a bounded size"
LOCAL = "it reads names and files of this machine"
OURS = "it reads text that this project wrote"
TESTS = "it serves tests"


class Worst(NamedTuple):
    """How a pattern is led astray: by these beginnings, each before a long run of anything."""

    beginnings: tuple[str, ...] = ("",)
    length: int = 16_384  # characters, unless the pattern relies on a bound of its caller
    seconds: float | None = None  # it takes no more, which is bearable, though not linear


# Every pattern that is compiled when a module is imported: its worst cases, or why it meets none.
PATTERNS = {
    "outrider.cli.crawl_plan:_NOT_IN_NAMES": OWNER,
    "outrider.cli.options:_DURATION": OWNER,
    "outrider.core.link_validation:_PLACE": Worst(("", "a", "a-")),
    "outrider.core.pattern:_escapes": Worst(("", "\\")),
    "outrider.core.pattern:_tokens": Worst(("", "[", "[[:", "(?P<", "{,")),
    "outrider.core.policy.cost:_YEAR_OR_WORD": Worst(("", "/day", "/20")),
    "outrider.core.policy.focus:_words": Worst(),
    "outrider.core.policy.url_groups:_DIGITS": Worst(),
    "outrider.core.policy.url_groups:_EXTENSION": Worst(("", ".", "a.")),
    "outrider.core.policy.url_groups:_HEX": Worst(("", "0123abcd")),
    "outrider.core.policy.queue_key:_PLAIN_HOST": Worst(("", "a.", "1")),
    "outrider.core.policy.queue_key:_PORT": Worst(("", "a", "[", "a:")),
    "outrider.core.policy.traps:_CALENDAR": Worst(("", "/2024/", "/2024/10/")),
    "outrider.core.url:_CONTROL": Worst(),
    "outrider.core.url:_ESCAPE": Worst(("", "%", "%4")),
    "outrider.core.url:_SERIALISED": Worst(
        ("http://", "https://a.b.c.d", "https://a.org/?", "https://a.org/#")
    ),
    "outrider.core.url:_SLASHES": Worst(("", "//", "/\t/")),
    "outrider.fetch.block_detector:LOGIN_WORDS": Worst(("", "log"), 700),
    "outrider.fetch.block_detector:DENIAL_WORDS": Worst(("", "access "), 700),
    "outrider.fetch.block_detector:CHALLENGE_WORDS": Worst(("", "verif", "check"), 700),
    "outrider.fetch.cache:_VALIDATOR": Worst(("", '"')),
    "outrider.fetch.document:_HEADER_CHARSET": Worst(("", "charset", "charset=", 'charset="')),
    "outrider.fetch.document:_PAGE_CHARSET": Worst(
        ("", "<meta ", "<meta charset", "<meta charset=", "<?xml encoding=", "<!--"), 1024
    ),
    "outrider.fetch.http_client:_SENDABLE": Worst(),
    "outrider.fetch.block_detector:_HIDDEN": Worst(("", "<", "<scrip")),
    "outrider.fetch.block_detector:_TAG": Worst(("", "<")),
    "outrider.fetch.cache:_DIRECTIVE": Worst(("", "max-age", "max-age=", 'max-age="')),
    "outrider.fetch.extract:_LINK": Worst(("", "<", "<a>;", "<a>;rel=", '<a>;rel="\\')),
    "outrider.fetch.extract:_PARAMETER": Worst(("", ";rel", ";rel=", ';rel="\\')),
    "outrider.fetch.extract:_REFRESH": Worst(("", "5", "5;", "5; url", "5; url=", "5; url='")),
    "outrider.fetch.http2:_CURL_URL": Worst(("http", "http://")),
    "outrider.fetch.http2:_STATUS_LINE": Worst(("", "HTTP/1.1 200", "HTTP/1.1 200 ")),
    "outrider.fetch.local_faults:_ERRNO": Worst(("", "[Errno ")),
    "outrider.fetch.parse_cost:_crowded_tag": Worst(("<a",), 3 * MAX_TAGS, 2.0),
    "outrider.fetch.parse_cost:_formatting_tags": Worst(("", "<", "</")),
    "outrider.fetch.parse_cost:_plain_rest": Worst((" ", " x", " x=", ' x="', ">")),
    "outrider.fetch.parse_cost:_suspects": Worst(
        ("", "<b>", '<b xx="', "<b><div>", "<a><b>x</b>"), 8192
    ),
    "outrider.fetch.extract:_OTHER_SCHEME": Worst(("", "mailto")),
    "outrider.fetch.response:_DATES": Worst(("", "Sun, 06 ", "Sunday, ", "Sun Nov ")),
    "outrider.fetch.response:_SECONDS": Worst(("", "+", "1.")),
    "outrider.fetch.robots:_FIELD": Worst(("", "Disallow", "Disallow:", "User-agent ")),
    "outrider.fetch.robots:_LINES": Worst(),
    "outrider.fetch.extract:_CLASS": Worst(),
    "outrider.fetch.dns:_ADDRESS_PORT": OWNER,
    "outrider.output.warc:_NEWLINES": Worst(),
    "outrider.output.worker_files:_UNSAFE": LOCAL,
    "outrider.settings.errors:_BARE": Worst(),
    "outrider.settings.code_references:_REFERENCE": Worst(("", "a.", "a.a:", "a:")),
    "outrider.store.address:_URL": OWNER,
    "outrider.store.address:_is_mistyped": OWNER,
    "outrider.store.address:_is_path": OWNER,
    "outrider.store.address:_is_plain": OWNER,
    "outrider.store.address:_scheme_of": OWNER,
    "outrider.store.address:is_option": OWNER,
    "outrider.store.postgres.address:_is_name": OWNER,
    "outrider.store.postgres.address:_is_port": OWNER,
    "outrider.store.postgres.pipeline:_is_special": Worst(),
    "outrider.store.postgres.errors:_sequence_of_crawl": Worst(("", '"tasks_', '"events_1')),
    "outrider.store.postgres.sql:_find_placeholders": OURS,
    "outrider.store.queue_order:_is_wake_cursor": Worst(("", "1", "1.")),
    "outrider.store.redis.connect:_is_prefix": OWNER,
    "outrider.store.export_items:_is_plain_url": Worst(
        ("http", "https://", "https://a.a", "https://a/")
    ),
}

# Every other use of `re`: where a pattern is made when it is needed.
MADE_LATER = {
    "outrider/cli/crawl_plan.py:_escape_glob": OWNER,
    "outrider/output/worker_files.py:worker_names": LOCAL,
    "outrider/core/policy/queue_key.py:_buckets": OWNER,
    "outrider/core/signals.py:Signals._index": "an escaped text, looked for as it is",
    "outrider/core/signals.py:finder": "escaped texts in a tree: no two ways to match",
    "outrider/core/url.py:_untracked": "escaped names of parameters, each to the next `&`",
    "outrider/fetch/extract.py:robot_name": "one set of characters, once",
    "outrider/output/warc.py:Warc._number_in": LOCAL,
    "outrider/store/address.py:_secrets": OWNER,
    "outrider/store/address.py:hide_secrets": "an escaped text, looked for as it is",
    "outrider/store/embedded/lock.py:_locking_process": LOCAL,
    "outrider/store/redis/connect.py:_check_database": OWNER,
    "outrider/store/redis/script_client.py:_assemble": OURS,
}

UNITS = [
    " ",
    "\t",
    "\n",
    "a",
    "1",
    "x=",
    ".",
    "/",
    "-",
    "%4",
    "&",
    "=",
    ";",
    ",",
    '"',
    "'",
    "\\",
    '\\"',
]
UNITS += ["<", ">", "<a ", "<b>", "</b>", "<p>x", "[", "{", "charset=", "<meta ", "<!--", '; a="b"']
UNITS += ["<a>;", ' xx="y"', "<b>x</b>", "2024/", "http://", "é", "\r\n"]


def modules():
    """All of the project, but for what runs when it is imported."""
    for found in pkgutil.walk_packages(outrider.__path__, "outrider."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def pattern_of(value):
    """The pattern that a value is, or is a method of."""
    owner = value.__self__ if isinstance(value, BuiltinFunctionType) else value
    return owner if isinstance(owner, re.Pattern) else None


def compiled():
    """Module and name of every pattern at the top of a module → what is called there."""
    found = {}
    for module in modules():
        for name, value in vars(module).items():
            several = value if isinstance(value, tuple | list) else [value]
            patterns = [one for one in several if pattern_of(one) is not None]
            if patterns:
                found[f"{module.__name__}:{name}"] = patterns
    return found


COMPILED = compiled()


def own(names):
    """Less those that are imported from another module, or that serve tests."""
    seen = {}
    for name in sorted(names):
        module = name.partition(":")[0]
        if not module.startswith(("outrider.testing", "outrider.bench", "outrider.simulation")):
            seen.setdefault(id(pattern_of(COMPILED[name][0])), name)
    return seen.values()


def test_every_compiled_pattern_is_listed():
    """A new pattern is held to linear time, or says why it need not be."""
    originals = {name for name in COMPILED if name in PATTERNS}
    known = {id(pattern_of(COMPILED[name][0])) for name in originals}
    strange = {name for name in own(COMPILED) if id(pattern_of(COMPILED[name][0])) not in known}

    assert strange == set()
    assert set(PATTERNS) - set(COMPILED) == set()


def calls_of_re():
    """File and function of every use of `re` inside a function."""
    root = Path(outrider.__file__).parent
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root.parent).as_posix()
        if not relative.startswith(("outrider/testing", "outrider/bench", "outrider/simulation")):
            yield from (f"{relative}:{name}" for name in _functions_with_re(path))


def _functions_with_re(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source if "\nimport re\n" in source else "")
    tops = [(node.name, node) for node in tree.body if isinstance(node, ast.FunctionDef)]
    for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        tops += [
            (f"{kind.name}.{node.name}", node)
            for node in kind.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    return [name for name, node in tops if any(map(_calls_re, ast.walk(node)))]


def _calls_re(node):
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return isinstance(node.func.value, ast.Name) and (
        node.func.value.id == "re" and node.func.attr != "escape"
    )


def test_every_pattern_made_later_is_listed():
    """As above, for those that a function makes."""
    assert set(calls_of_re()) == set(MADE_LATER)


HELD = [name for name, worst in PATTERNS.items() if isinstance(worst, Worst)]


@pytest.mark.parametrize("name", HELD)
def test_pattern_takes_linear_time(name):
    """Each beginning, then one thing over and over: eight times the text, eight times the time.

    Only what takes long enough to be measured is compared; quadratic time would be 64 times.
    """
    for method in COMPILED[name]:
        call = method if isinstance(method, BuiltinFunctionType) else method.match
        for text in texts(PATTERNS[name]):
            taken = best(call, text, 1)
            if PATTERNS[name].seconds is not None:
                assert taken < PATTERNS[name].seconds, text[:50]
            elif taken > 0.02:
                assert best(call, text, 3) < 24 * best(call, text[: len(text) // 8], 3), text[:50]


def best(call, text, times):
    """The least of so many durations."""
    durations = []
    for _ in range(times):
        started = process_time()
        use(call, text)
        durations.append(process_time() - started)
    return min(durations)


def texts(worst):
    """What a pattern is fed: a beginning and a long run, or both over and over."""
    for beginning in worst.beginnings:
        for unit in UNITS:
            yield (beginning + unit * (worst.length // len(unit)))[: worst.length]
            if beginning:
                yield ((beginning + unit) * (worst.length // len(unit)))[: worst.length]


def use(call, text):
    """All that it finds there."""
    if isinstance(pattern_of(call).pattern, bytes):
        text = text.encode()
    if call.__name__ == "sub":
        call("" if isinstance(text, str) else b"", text)
    elif call.__name__ == "finditer":
        list(call(text))
    else:
        call(text)
