"""What each scorer finds first, on synthetic webs and on a real set of HTML documentation.

python benchmarks/scorers.py [--docs FOLDER …] [--seeds N] [--pages N] [--json OUT]

Shares of all PageRank after 10 % and 30 % of pages, and of all rewards after 20 %. The real set is
Python's documentation as Debian packs it, fetched with apt-get unless it is installed; `--docs`
names folders of HTML files instead. Ends with 1 if a promise is not kept or the set is missing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from outrider.bench.measurement import write_json
from outrider.core.url import UrlRules
from outrider.fetch.document import Document
from outrider.fetch.extract import extract_rules
from outrider.fetch.reader import extract
from outrider.settings.worker_schema import FetchSettings
from outrider.simulation.link_graphs import Web, planted, power_law, tagged
from outrider.simulation.scorers import compare, shown

HOST = "https://docs.example/"
PACKAGES = ("python3.11-doc", "python3.13-doc", "python3.12-doc")
RANKING = ("breadth-first", "depth-first", "default", "opic")
MANY_SITES = (*RANKING, "largest-sites-first")
LEARNING = ("breadth-first", "depth-first", "opic", "learning")
HTML = (("Content-Type", "text/html; charset=utf-8"),)

Rows = dict[str, dict[float, float]]


def web_of(folder: Path) -> Web:
    """The pages of a folder and their links, read as a crawl reads them."""
    files = {f"{HOST}{path.relative_to(folder).as_posix()}": path for path in pages_of(folder)}
    rules = extract_rules(FetchSettings(), UrlRules())
    links = {}
    for url, path in files.items():
        found = extract(Document(url, HTML, path.read_bytes()), rules)
        texts = (one.text + "index.html" * one.text.endswith("/") for one in found.urls)
        links[url] = tuple(dict.fromkeys(text for text in texts if text in files))
    return Web((f"{HOST}index.html",), links)


def pages_of(folder: Path) -> Iterator[Path]:
    """HTML files, in an order that is the same everywhere."""
    return (path for path in sorted(folder.rglob("*.html")) if path.is_file())


def documentation(asked: list[Path]) -> Iterator[Path]:
    """The folders named, or Python's documentation: installed, else fetched."""
    if asked:
        yield from asked
        return
    installed = sorted(Path("/usr/share/doc").glob("python3*/html/index.html"))
    found = installed[-1].parent if installed else fetched()
    if found is not None:
        yield found


def fetched() -> Path | None:
    """A Debian package, unpacked beside the system's temporary files and kept there."""
    place = Path(tempfile.gettempdir()) / "outrider-docs"
    place.mkdir(exist_ok=True)
    for package in PACKAGES:
        if not list(place.glob(f"{package}_*.deb")):
            _run("apt-get", "download", "-q", package, cwd=place)
        for archive in place.glob(f"{package}_*.deb"):
            _run("dpkg-deb", "-x", str(archive), package, cwd=place)
        for index in place.glob(f"{package}/usr/share/doc/*/html/index.html"):
            return index.parent
    return None


def _run(*command: str, cwd: Path) -> None:
    try:
        subprocess.run(command, cwd=cwd, check=False, capture_output=True, timeout=300)  # noqa: S603 - constants
    except OSError as error:
        print(f"{command[0]}: {error}", file=sys.stderr)


def mean(many: list[Rows]) -> Rows:
    """The same comparison on several webs, averaged."""
    return {
        name: {share: sum(rows[name][share] for rows in many) / len(many) for share in row}
        for name, row in many[0].items()
    }


def measured(asked: argparse.Namespace) -> dict[str, Rows]:
    """Every comparison by its title, printed as it comes."""
    seeds, results = range(1, asked.seeds + 1), {}
    size = asked.pages
    synthetic = {
        "power-law: PageRank": (
            lambda seed: power_law(seed, size, max(2, size // 100)),
            MANY_SITES,
        ),
        "planted: reward": (lambda seed: planted(seed, 4, size // 20), LEARNING),
        "tagged: reward": (lambda seed: tagged(seed, size), LEARNING),
    }
    for title, (make, names) in synthetic.items():
        results[title] = told(title, mean([compare(make(seed), names) for seed in seeds]))
        written(asked, results)
    for folder in documentation(asked.docs):
        web = web_of(folder)
        title = f"{folder.parent.name}: PageRank"
        print(f"{folder}: {len(web.reachable())} pages")
        results[title] = told(title, compare(web, RANKING))
        written(asked, results)
    return results


def told(title: str, rows: Rows) -> Rows:
    """The rows, once they are printed."""
    print(shown(title, rows), flush=True)
    return rows


def written(
    asked: argparse.Namespace, results: Mapping[str, Rows], *, is_complete: bool = False
) -> None:
    """All comparisons so far, in the file that was named."""
    if asked.json:
        about = {"seeds": asked.seeds, "pages": asked.pages, "complete": is_complete}
        write_json(asked.json, {**about, "share collected": results})


def broken(results: Mapping[str, Rows]) -> list[str]:
    """The promises that are not kept, in words."""
    faults = []
    for title, rows in results.items():
        plain = rows["breadth-first"]
        if title.endswith("PageRank"):
            lost = [share for share in (0.1, 0.3) if rows["opic"][share] < plain[share]]
            faults += [f"{title}: opic loses to breadth-first at {share:.0%}" for share in lost]
        elif rows["learning"][0.2] < 1.5 * plain[0.2]:
            faults.append(f"{title}: learning is under 1.5 times breadth-first at 20 %")
    return faults


def main() -> int:
    """Measure, print, write and check the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--docs", type=Path, nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    results = measured(asked)
    faults = broken(results)
    if len(results) == 3:
        faults.append(f"no documentation: install one of {', '.join(PACKAGES)}, or name --docs")
    written(asked, results, is_complete=True)
    print("\n".join(faults) or "all promises are kept")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
