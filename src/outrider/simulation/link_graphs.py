"""Link graphs for comparing scorers, each from one seed, and the PageRank of their pages (F10).

A web is a plain value: the links of its pages, the seeds of a crawl, and the rewards of visits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Final

import msgspec

DAMPING: Final = 0.85
_ROUNDS: Final = 100
_SECTIONS: Final = ("news", "shop", "forum", "people", "tags", "files", "events", "help")
_REWARDING: Final = 0.8  # share of a planted group's pages with a reward
_ELSEWHERE: Final = 0.02  # and of all other pages
_PAGE: Final = 20  # links of a listing


class Web(msgspec.Struct, frozen=True):
    """URLs and their links; the rewards of visits; the tag paths of anchors to a page."""

    seeds: tuple[str, ...]
    links: Mapping[str, tuple[str, ...]]
    rewards: Mapping[str, float] = {}
    tag_paths: Mapping[str, str] = {}

    def reachable(self) -> set[str]:
        """Return all pages that a crawl can reach."""
        known, waiting = set(self.seeds), list(self.seeds)
        while waiting:
            fresh = set(self.links[waiting.pop()]) - known
            known |= fresh
            waiting.extend(fresh)
        return known


def planted(seed: int, sites: int = 4, pages: int = 150) -> Web:
    """Return sites with listings and items in sections; one section of each has rewards."""
    dice = Random(seed)
    links: dict[str, tuple[str, ...]] = {}
    rewards: dict[str, float] = {}
    homes = tuple(f"https://site{site}.example/" for site in range(sites))
    for home in homes:
        sections = {name: _section(home, name, pages, dice) for name in _SECTIONS}
        good = dice.choice(_SECTIONS)
        links[home] = (*(f"{home}{name}/" for name in _SECTIONS), *homes)
        for name, items in sections.items():
            _list(links, f"{home}{name}/", items)
            chance = _REWARDING if name == good else _ELSEWHERE
            rewards.update((one, float(dice.random() < chance)) for one in items)
            for one in items:
                near, far = dice.sample(items, 3), dice.choice(sections[dice.choice(_SECTIONS)])
                links[one] = (home, f"{home}{name}/", *near, far)
    return Web(homes, links, rewards)


def _section(home: str, name: str, pages: int, dice: Random) -> list[str]:
    size = dice.randint(pages // 2, pages)
    numbers = dice.sample(range(10_000), size)
    return [f"{home}{name}/{number}-a-title-of-its-own.html" for number in numbers]


def _list(links: dict[str, tuple[str, ...]], hub: str, items: Sequence[str]) -> None:
    """Add the listings of a section, each linked from the one before."""
    parts = [items[start : start + _PAGE] for start in range(0, len(items), _PAGE)]
    names = [hub, *(f"{hub}?page={number}" for number in range(2, len(parts) + 1))]
    for place, part in enumerate(parts):
        links[names[place]] = (*names[place + 1 : place + 2], *part)


def tagged(seed: int, pages: int = 2000) -> Web:
    """Return a web where only the tag path of its anchors shows which page has a reward."""
    dice = Random(seed)
    urls = [f"https://plain.example/p/{number}" for number in dice.sample(range(10**6), pages)]
    kinds = {url: "good" if dice.random() < 0.15 else "other" for url in urls}
    paths = {
        url: "main>ul.results>li>a" if kind == "good" else f"div.{dice.choice('abcde')}>p>a"
        for url, kind in kinds.items()
    }
    chances = {"good": _REWARDING, "other": _ELSEWHERE}
    rewards = {url: float(dice.random() < chances[kind]) for url, kind in kinds.items()}
    links = {
        url: (urls[(place + 1) % pages], *dice.sample(urls, 8)) for place, url in enumerate(urls)
    }
    return Web((urls[0],), links, rewards, paths)


def power_law(seed: int, pages: int = 3000, sites: int = 30) -> Web:
    """Return sites of Zipf sizes, with preferential attachment of links, mostly within a site."""
    dice = Random(seed)
    homes = [f"https://site{site}.example/" for site in range(sites)]
    members: list[list[str]] = [[home] for home in homes]
    liked: list[list[str]] = [[home] * 3 for home in homes]  # one entry per link to it, and more
    links: dict[str, list[str]] = {home: [] for home in homes}
    for earlier, home in pairwise(homes):
        links[earlier].append(home)
    weights = [1 / (site + 1) for site in range(sites)]
    for number in range(sites, pages):
        (site,) = dice.choices(range(sites), weights)
        url = f"{homes[site]}p{number}"
        links[dice.choice(members[site])].append(url)
        members[site].append(url)
        liked[site].append(url)
        links[url] = [homes[site]]
    for url, found in links.items():
        _link(found, homes.index(url[: url.index("/", 8) + 1]), liked, dice)
    return Web((homes[0],), {url: tuple(dict.fromkeys(found)) for url, found in links.items()})


def _link(found: list[str], own: int, liked: list[list[str]], dice: Random) -> None:
    """Add links of one page; a page with more links is chosen more often."""
    for _ in range(min(int(dice.paretovariate(1.2)) + 2, 60)):
        site = own if dice.random() < 0.85 else dice.randrange(len(liked))
        target = dice.choice(liked[site])
        liked[site].append(target)
        found.append(target)


def page_rank(links: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return the PageRank of each page; a dead end leads to any page."""
    urls = list(links)
    place = {url: number for number, url in enumerate(urls)}
    out = [[place[one] for one in set(links[url]) - {url} if one in place] for url in urls]
    ranks = [1 / len(urls)] * len(urls)
    for _ in range(_ROUNDS):
        ranks = _spread(ranks, out)
    return dict(zip(urls, ranks, strict=True))


def _spread(ranks: Sequence[float], out: Sequence[Sequence[int]]) -> list[float]:
    lost = sum(rank for rank, targets in zip(ranks, out, strict=True) if not targets)
    spread = [(1 - DAMPING + DAMPING * lost) / len(ranks)] * len(ranks)
    for rank, targets in zip(ranks, out, strict=True):
        for target in targets:
            spread[target] += DAMPING * rank / len(targets)
    return spread
