"""Types of links that bring none, through the frontier: every way in, lanes, weights, explain."""

from outrider import Done, Link
from outrider.settings import settings_of, to_mapping

HOME = "https://a.example/"
STORY = HOME + "2024/05/31/a-story.html"
NEWS = {"types": {"builtin": "news"}}
RULES = {
    "types": {
        "rules": [
            {"type": "product", "pattern": "/p/", "found": "main"},
            {"type": "menu", "found": ["nav", "footer"]},
        ]
    }
}


async def types_of(frontier):
    """Path → the type of each task."""
    return {task.url.removeprefix(HOME): task.type async for task in frontier.tasks()}


async def test_links_get_types_however_they_come(opened):
    """B1, F1: added as text or Link, with a finish, and scored without being added."""
    frontier = await opened(NEWS | {"politeness": {"delay": 0.0}})
    await frontier.add([HOME, Link(STORY, depth=1)])
    (lease,) = await frontier.claim(1)
    await frontier.finish(lease, Done(200), links=[HOME + "about", Link(HOME + "2024/05/")])
    (scored,) = (await frontier.score([Link(STORY + "?x", depth=1)])).answers

    assert await types_of(frontier) == {
        "": "hub-seed",
        "2024/05/31/a-story.html": "article",
        "about": "nav",
        "2024/05/": "history",
    }
    assert scored.type == "article"


async def test_type_that_was_given_is_never_replaced(opened):
    """B1: not even the one that is the default."""
    frontier = await opened(NEWS)
    await frontier.add([Link(STORY, type="page"), Link(HOME, type="own", depth=1)])

    assert await types_of(frontier) == {"2024/05/31/a-story.html": "page", "": "own"}
    assert (await frontier.explain(STORY)).typed_by == "the default"
    assert (await frontier.explain(HOME)).typed_by == "its link, or a visit"


async def test_without_settings_links_have_the_default(opened):
    """B1: nothing changes for a crawl that names no types."""
    frontier = await opened()
    await frontier.add([STORY, Link(HOME, found="nav")])

    assert set((await types_of(frontier)).values()) == {"page"}
    assert (await frontier.explain(STORY)).typed_by == "the default"


async def test_types_choose_lane_weight_and_cell_of_the_heatmap(opened):
    """C4, F1, O2: that is what they are for."""
    frontier = await opened(NEWS | {"politeness": {"delay": 0.0}})
    await frontier.add([Link(url, depth=1) for url in (STORY, HOME + "about", HOME + "topics/x")])
    lanes = {task.type: (task.lane, task.priority) async for task in frontier.tasks()}
    heatmap = await frontier.heatmap()

    assert lanes == {
        "article": ("acquisition", 1.0),
        "nav": ("discovery", 11.0),
        "hub": ("discovery", 13.0),
    }
    assert heatmap.cells == {"opportunistic": {"article": 1, "hub": 2, "other": 0}}


async def test_place_and_type_of_page_decide_where_rules_say_so(opened):
    """B1: of links of a page, as of links that name their page."""
    rules = [
        {"type": "pagination", "on": ["search", "pagination"], "found": "next"},
        {"type": "product", "on": ["search", "pagination"], "found": "main"},
    ]
    frontier = await opened({"types": {"rules": rules}})
    await frontier.add([Link(HOME + "?q=tea", type="search")])
    (lease,) = await frontier.claim()
    links = [
        Link(HOME + "?q=tea&page=2", found="main next"),
        Link(HOME + "tea", found="main"),
        Link(HOME + "terms", found="footer"),
    ]
    await frontier.finish(lease, Done(200), links=links)
    await frontier.add([Link(HOME + "x", found="main", via=HOME + "?q=tea")])

    assert await types_of(frontier) == {
        "?q=tea": "search",
        "?q=tea&page=2": "pagination",
        "tea": "product",
        "terms": "page",
        "x": "page",
    }


async def test_explain_names_the_rule_that_gave_the_type(opened):
    """O4: of known URLs and of others; also when the rules were changed since."""
    frontier = await opened(RULES)
    await frontier.add([Link(HOME + "p/1", found="main"), Link(HOME + "a", found="nav")])
    known = await frontier.explain(HOME + "p/1")
    unknown = await frontier.explain(Link(HOME + "p/2", found="main"))
    plain = await frontier.explain(HOME + "p/3")

    assert (known.type, known.typed_by) == (
        "product",
        "types.rules.0, pattern '/p/', found in main",
    )
    assert (unknown.admission, unknown.type) == ("admissible", "product")
    assert unknown.typed_by == known.typed_by
    assert (plain.type, plain.typed_by) == ("page", "the default")

    await frontier.configure({"types": {"rules": [{"type": "menu", "pattern": "/p/"}]}})
    assert (await frontier.explain(HOME + "p/1")).typed_by == "types.rules.0 when it was added"
    assert (await frontier.explain(HOME + "p/3")).typed_by == "types.rules.0, pattern '/p/'"
    assert (await frontier.explain(HOME + "a")).typed_by == "types.rules.1 when it was added"


async def test_changed_rules_hold_for_links_added_afterwards(opened):
    """N1: what is known keeps its type."""
    frontier = await opened(RULES)
    await frontier.add([Link(HOME + "a", found="nav")])
    await frontier.configure({"types": {"rules": [{"type": "section", "found": ["nav"]}]}})
    await frontier.add([Link(HOME + "b", found="nav"), Link(HOME + "a", found="nav")])

    assert await types_of(frontier) == {"a": "menu", "b": "section"}


async def test_revisit_keeps_the_type_of_its_task(opened):
    """B3: a link that asks for a visit and names no type leaves the task's."""
    frontier = await opened({"politeness": {"delay": 0.0}})
    await frontier.add([STORY])
    (lease,) = await frontier.claim()
    await frontier.finish(lease, Done(200))
    await frontier.configure(NEWS)
    await frontier.add([Link(STORY, known="revisit")])

    assert await types_of(frontier) == {"2024/05/31/a-story.html": "page"}


async def test_function_that_fails_refuses_its_own_links(opened):
    """B4: with the function and the fix; other links are added."""

    def odd(link, url, page):
        if "boom" in url.text:
            raise RuntimeError("no idea")
        return 3 if "three" in url.text else None

    frontier = await opened({"types": {"function": odd}})
    report = await frontier.add([HOME + "boom", HOME + "three", HOME])
    first, second, _ = report.answers

    assert report.refused == {"bad-link": 2}
    assert first.detail.startswith("types.function ")
    assert first.detail.endswith("odd raised RuntimeError: no idea")
    assert "types.function" in second.detail
    assert "odd returned 3" in second.detail


async def test_export_and_restore_keep_what_gave_a_type(opened):
    """I5: explain answers the same in the copy."""
    frontier = await opened(RULES)
    await frontier.add([Link(HOME + "a", found="nav")])
    other = await opened(RULES)
    await other.restore(frontier.export())

    assert (await other.explain(HOME + "a")).typed_by == "types.rules.1, found in nav, footer"


def test_rules_are_shown_as_they_are_given():
    """N5: as tables, without what is not given; a place alone is a list of one."""
    shown = to_mapping(settings_of(RULES))

    assert shown == {
        "types": {
            "rules": [
                {"type": "product", "pattern": "/p/", "found": ["main"]},
                {"type": "menu", "found": ["nav", "footer"]},
            ]
        }
    }
    assert settings_of(shown) == settings_of(RULES)
