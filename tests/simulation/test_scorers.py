"""What scorers find first, on a real frontier (F10)."""

import pytest

from outrider.simulation.link_graphs import Web, page_rank, planted, power_law, tagged
from outrider.simulation.scorers import collected, crawl, main

SEEDS = (1, 2, 3)


async def shares(web, *names):
    """What each scorer collected, by share of pages."""
    worth = web.rewards or page_rank(web.links)
    return [collected(await crawl(web, name, 0.3), worth, len(web.links)) for name in names]


@pytest.mark.parametrize("make", [planted, tagged], ids=lambda make: make.__name__)
async def test_learning_brings_half_as_much_again_as_breadth_first(make):
    """After 20 % of pages, on every one of several webs, by path shape or by tag path."""
    for seed in SEEDS:
        web = planted(seed, 2, 60) if make is planted else tagged(seed, 600)
        plain, learnt = await shares(web, "breadth-first", "learning")
        assert learnt[0.2] >= 1.5 * plain[0.2]


async def test_opic_does_not_lose_to_breadth_first():
    """Of PageRank, at 10 % and 30 % of pages, over several webs."""
    both = [await shares(power_law(seed, 1500, 15), "breadth-first", "opic") for seed in SEEDS]
    for share in (0.1, 0.3):
        plain, rich = (sum(pair[place][share] for pair in both) for place in (0, 1))
        assert rich >= plain


async def test_cash_that_comes_to_a_waiting_page_brings_it_forward():
    """Two poor links outweigh a richer one: what is known and waits gathers."""
    a, b, c, d, e, f, x, y = (f"https://w.example/{name}" for name in "abcdefxy")
    web = Web(
        (a,), {a: (b, c, d, e), b: (x,), c: (f, y), d: (y,), **dict.fromkeys((e, f, x, y), ())}
    )
    visited = await crawl(web, "opic", 1.0)
    assert visited[:4] == [a, b, x, c]
    assert visited.index(y) < visited.index(f)


async def test_breadth_first_and_depth_first_go_as_their_names_say():
    """On a tree: layer by layer, or branch by branch."""
    tree = {n: tuple(m for m in (2 * n, 2 * n + 1) if m < 8) for n in range(1, 8)}
    urls = {n: f"https://t.example/{n}" for n in tree}
    web = Web((urls[1],), {urls[n]: tuple(urls[m] for m in ms) for n, ms in tree.items()})
    order = [
        [int(url[-1]) for url in await crawl(web, f"{name}-first", 1.0)]
        for name in ("breadth", "depth")
    ]
    assert order == [[1, 2, 3, 4, 5, 6, 7], [1, 2, 4, 5, 3, 6, 7]]


async def test_the_largest_site_is_served_first():
    """Of two sites, the one to which more links lead."""
    small, big = "https://small.example/", [f"https://big.example/{n}" for n in range(4)]
    home = "https://home.example/"
    web = Web((home,), {home: (small, *big), small: (), **dict.fromkeys(big, ())})
    visited = await crawl(web, "largest-sites-first", 1.0)
    assert visited == [home, *big, small]


def test_the_comparison_can_be_printed(capsys):
    """By hand, for a look."""
    main(pages=200)
    assert "learning" in capsys.readouterr().out
