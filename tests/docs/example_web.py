"""The example.org of our pages: a small site on this machine, and how a process is led to it.

Readers see only what they would write. `outrider` and `python` on the path of a console block, and
the Python blocks of a page, connect here in place of the real hosts, and wait less between visits.
"""

import asyncio
import sys
from functools import partial
from pathlib import Path

from outrider import wiring
from outrider.clock import SystemClock
from outrider.settings import Settings, layers_of, merged
from outrider.testing.web import Site, Web, WebServer
from outrider.testing.web.behaviours import failing, linked, redirecting, serving
from outrider.testing.web.messages import TEXT, XML, html

HERE = Path(__file__).parent
HOSTS = ("example.org", "example.net")
GOODS = {"tea": "3.50", "coffee": "4.20", "cups": "12.00"}
LEAST = 0.02  # seconds that stand for one

SITEMAP = """\
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
<url><loc>https://example.org/hidden</loc></url>
</urlset>
"""


def page(title, *links, more=""):
    """Some words, some links."""
    items = "\n".join(f'<li><a href="{link}">{link}</a></li>' for link in links)
    return serving(html(title, f"<h1>{title}</h1>\n{more}\n<ul>\n{items}\n</ul>"))


def good(name, price):
    """One page of the shop."""
    return page(name.capitalize(), "/shop/", more=f'<p class="price">{price}</p>')


def example_org():
    """Nineteen URLs: a page for everything that a reader should see once."""
    news = {f"/news/{n}": page(f"News of day {n}", "/news/") for n in range(1, 7)}
    shop = {f"/shop/{name}": good(name, price) for name, price in GOODS.items()}
    first = ("/about", "/news/", "/shop/", "/private/diary", "/old", "/missing", "/broken")
    return {
        "/": page("Example", *first, "https://example.net/", "mailto:me@example.org"),
        "/robots.txt": serving(
            "User-agent: *\nDisallow: /private/\nSitemap: https://example.org/sitemap.xml\n", TEXT
        ),
        "/sitemap.xml": serving(SITEMAP, XML),
        "/hidden": page("Only in the sitemap", "/"),
        "/about": page("About us", "/"),
        "/news/": page("News", *news),
        "/shop/": page("Shop", *shop),
        "/old": redirecting("/about", 301),
        "/broken": failing(500),
        **news,
        **shop,
    }


def web():
    """Both hosts, over TLS."""
    example_net = {"/": linked("Elsewhere", "/more"), "/more": linked("More", "/")}
    sites = (Site("example.org", example_org()), Site("example.net", example_net))
    return Web(sites, tls=HOSTS)


async def serve():
    """Until standard input ends."""
    async with WebServer(web()) as server:
        sys.stdout.write(f"{server.tls_port}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


def hurried(settings, port):
    """The same settings, here: what a reader chose stays, what nobody chose takes less time."""
    usual = Settings()
    changes = {"fetch": {"connect_to": dict.fromkeys(HOSTS, f"127.0.0.1:{port}")}}
    if settings.politeness.min_delay == usual.politeness.min_delay:
        changes["politeness"] = {"min_delay": LEAST}
    if settings.retry.base == usual.retry.base:
        changes["retry"] = {"base": LEAST}
    return merged(settings, changes)


def stand_in(port, put=setattr):
    """Whoever crawls in this process finds these hosts."""

    class Here(wiring.Frontier):
        @classmethod
        def open(cls, store="memory://", *, settings=None, clock=None, **rest):
            """In real time, whatever others do to the clock."""
            settings = hurried(layers_of(settings).base_settings().settings, port)
            return super().open(store, settings=settings, clock=clock or SystemClock(), **rest)

    put(wiring, "Frontier", Here)
    put(wiring, "Http1Client", partial(wiring.Http1Client, _tls=False))  # self-signed


COMMANDS = {
    "outrider": """\
#!{python}
import sys

if sys.argv[1:2] == ["crawl"]:
    sys.path.insert(0, {here!r})
    import example_web

    del sys.path[0]
    example_web.stand_in({port})
from outrider.cli import main

main()
""",
    "python": """\
#!{python}
import runpy
import sys

sys.path.insert(0, {here!r})
import example_web

del sys.path[0]
example_web.stand_in({port})
del sys.argv[0]
sys.path.insert(0, "")
runpy.run_path(sys.argv[0], run_name="__main__")
""",
}


def put_commands(folder, port):
    """What console blocks start."""
    for name, text in COMMANDS.items():
        command = folder / name
        command.write_text(text.format(python=sys.executable, here=str(HERE), port=port), "utf-8")
        command.chmod(0o755)


if __name__ == "__main__":
    asyncio.run(serve())
