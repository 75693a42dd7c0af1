"""A host that blocks clients with pages: challenges, captchas and denials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from outrider.core.outcome import Blocked, Done
from outrider.testing.web.behaviours import linked
from outrider.testing.web.graph import DOMAIN
from outrider.testing.web.messages import Asked, Behaviour, Reply, html
from outrider.testing.web.site import Site

GUARDED: Final = "guarded" + DOMAIN

_WAITING: Final = (
    '<div class="main-wrapper"><h1>guarded</h1><noscript>Enable JavaScript and cookies to continue'
    '</noscript></div><script>window._cf_chl_opt={cvId:"3",cType:"managed"};</script>'
    '<script src="/cdn-cgi/challenge-platform/h/b/orchestrate/chl_page/v1"></script>'
)
_BLOCKED: Final = (
    '<h1 data-translate="block_headline">Sorry, you have been blocked</h1>'
    '<div id="cf-error-details">Cloudflare Ray ID: <strong>0</strong></div>'
)
_DENIED: Final = (  # as sent by its vendor, entities included
    "<H1>Access Denied</H1>You don't have permission to access "
    '"http&#58;&#47;&#47;guarded&#46;web&#46;test&#47;" on this server.'
    "<P>Reference&#32;&#35;18&#46;0<P>https&#58;&#47;&#47;errors&#46;edgesuite&#46;net&#47;18&#46;0"
)
_HUMAN: Final = (
    '<h1>Please verify you are a human</h1><form><div class="g-recaptcha" data-sitekey="x"></div>'
    '<script src="https://www.google.com/recaptcha/api.js"></script></form>'
)
_ARTICLE: Final = (
    "<h1>How captchas work</h1>"
    + "<p>Some sites say access denied, or ask you to verify you are a human. This page tells of "
    "their history at such length that no reader takes it for one of them.</p>" * 40
)
_CLOUDFLARE: Final = (("Server", "cloudflare"), ("CF-RAY", "0-LHR"))
_MITIGATED: Final = (*_CLOUDFLARE, ("CF-Mitigated", "challenge"))

_REPLIES: Final[Mapping[str, Reply]] = {
    "/challenge": Reply(html("Just a moment...", _WAITING), 403, headers=_MITIGATED),
    "/challenge/503": Reply(html("Just a moment...", _WAITING), 503, headers=_CLOUDFLARE),
    "/blocked": Reply(html("Attention Required! | Cloudflare", _BLOCKED), 403, headers=_CLOUDFLARE),
    "/denied": Reply(html("Access Denied", _DENIED), 403),
    "/denied/200": Reply(html("Access Denied", _DENIED), 200),
    "/human": Reply(html("Are you a robot?", _HUMAN), 200),
    "/article": Reply(html("How captchas work", _ARTICLE), 200),
    "/forbidden": Reply(html("403 Forbidden", "<p>Members only. Please log in.</p>" * 60), 403),
}

EXPECTED: Final[Mapping[str, type[Blocked | Done]]] = dict.fromkeys(_REPLIES, Blocked) | {
    "/article": Done,  # a page about captchas is not one
    "/forbidden": Done,  # an ordinary 403, not a block page
}


def site() -> Site:
    """Return the host; its root links to all its pages."""
    paths: dict[str, Behaviour] = {"/": linked(GUARDED, *_REPLIES)}
    return Site(GUARDED, paths=paths, rest=(_guard,), pages=["/", *_REPLIES])


def _guard(asked: Asked) -> Reply | None:
    return _REPLIES.get(asked.path)
