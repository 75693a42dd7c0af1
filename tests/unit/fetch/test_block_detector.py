import pytest

from outrider.errors import SettingsError
from outrider.fetch.block_detector import (
    CHALLENGE_HINTS,
    MAX_SCANNED_BYTES,
    VENDORS,
    detect,
    detector_of,
)
from outrider.fetch.response import Response

HTML = ("Content-Type", "text/html; charset=utf-8")
PROSE = "<p>An ordinary sentence of an ordinary page, with words and a <a href='/x'>link</a>.</p>"


def answer(status, body, *fields):
    """A response; HTML unless it says otherwise."""
    body = body.encode() if isinstance(body, str) else body
    return Response("https://h.example/", status, (HTML, *fields), body, 0.1, 0.0)


def html(title, body):
    """A document."""
    return f"<!DOCTYPE html><html><head><title>{title}</title></head><body>{body}</body></html>"


CLOUDFLARE = html(
    "Just a moment...",
    "<noscript>Enable JavaScript and cookies to continue</noscript>"
    "<script>(function(){window._cf_chl_opt = {cType: 'managed'};})();</script>",
)
CLOUDFLARE_DENIED = html(
    "Attention Required! | Cloudflare",
    '<div id="cf-wrapper"><h1 data-translate="block_headline">Sorry, you have been blocked</h1>'
    "<p>This website is using a security service to protect itself.</p></div>",
)
DATADOME = html(
    "h.example",
    '<p id="cmsg">Please enable JS and disable any ad blocker</p>'
    "<script>var dd={'rt':'c','host':'geo.captcha-delivery.com'}</script>"
    '<script src="https://ct.captcha-delivery.com/c.js"></script>',
)
PERIMETERX = html(
    "Access to this page has been denied",
    '<div id="px-captcha"></div><p>Press &amp; Hold to confirm you are a human</p>',
)
AKAMAI_DENIED = (
    "<HTML><HEAD>\n<TITLE>Access Denied</TITLE>\n</HEAD><BODY>\n<H1>Access Denied</H1>\n"
    'You don\'t have permission to access "http&#58;&#47;&#47;h&#46;example" on this server.<P>\n'
    "Reference&#32;&#35;18&#46;4c0f1402&#46;1&#46;2b\n</BODY>\n</HTML>"
)
AKAMAI = (
    '<!DOCTYPE html><html><head><meta http-equiv="refresh" content="5; URL=\'/?bm-verify=AAQAA\'">'
    "<title>&nbsp;</title></head><body><script>var i = 1;</script></body></html>"
)
IMPERVA = (
    '<html style="height:100%"><head><META NAME="ROBOTS" CONTENT="NOINDEX, NOFOLLOW"></head>'
    '<body><iframe id="main-iframe" src="/_Incapsula_Resource?SWUDNSAI=31&xinfo=9-1">'
    "Request unsuccessful. Incapsula incident ID: 184-0</iframe></body></html>"
)
IMPERVA_WAIT = html(
    "Pardon Our Interruption",
    "<h1>Pardon Our Interruption</h1><p>As you were browsing something about your browser made us"
    ' think you were a bot.</p><script src="/_Incapsula_Resource?SWJIYLWA=7"></script>'
    "<!-- Incapsula incident ID: 1 -->",
)
AWS = html("", "<script>window.gokuProps = {'key':'x'};</script><noscript>not a robot</noscript>")
SUCURI = html(
    "Sucuri WebSite Firewall - Access Denied",
    "<h1>Access Denied - Sucuri Website Firewall</h1><p>Block ID: EXPVP16</p>",
)
ANUBIS = html(
    "Ověřujeme, že nejste robot!",
    '<script id="anubis_challenge" type="application/json">{"rules":{}}</script>'
    "<p>You are seeing this because the administrator has set up Anubis.</p>",
)
F5 = (
    "<html><head><title>Request Rejected</title></head><body>The requested URL was rejected. "
    "Please consult with your administrator.<br><br>Your support ID is: 123</body></html>"
)


class TestChallenges:
    @pytest.mark.parametrize(
        ("status", "body", "reason"),
        [
            (403, CLOUDFLARE, "challenge: cloudflare"),
            (503, CLOUDFLARE, "challenge: cloudflare"),
            (200, CLOUDFLARE, "challenge: cloudflare"),
            (403, CLOUDFLARE_DENIED, "denied: cloudflare"),
            (403, "error code: 1020", "denied: cloudflare"),
            (403, DATADOME, "challenge: datadome"),
            (403, '{"url":"https://geo.captcha-delivery.com/captcha/?x"}', "challenge: datadome"),
            (403, PERIMETERX, "challenge: perimeterx"),
            (200, PERIMETERX, "challenge: perimeterx"),
            (403, AKAMAI_DENIED, "denied: akamai"),
            (200, AKAMAI_DENIED, "denied: akamai"),
            (200, AKAMAI, "challenge: akamai"),
            (200, IMPERVA, "challenge: imperva"),
            (403, IMPERVA, "challenge: imperva"),
            (200, IMPERVA_WAIT, "challenge: imperva"),
            (405, AWS, "challenge: aws-waf"),
            (403, SUCURI, "denied: sucuri"),
            (200, ANUBIS, "challenge: anubis"),
            (200, F5, "denied: f5"),
        ],
    )
    def test_a_vendors_page_is_known(self, status, body, reason):
        """By its marks, with whatever status that vendor sends it."""
        assert detect(answer(status, body)) == reason

    @pytest.mark.parametrize(
        ("field", "reason"),
        [
            (("CF-Mitigated", "challenge"), "challenge: cloudflare"),
            (("x-amzn-waf-action", "captcha"), "challenge: aws-waf"),
            (("X-Vercel-Mitigated", "deny"), "challenge: vercel"),
            (("X-Sucuri-Block", "FBP007"), "denied: sucuri"),
        ],
    )
    @pytest.mark.parametrize("status", [200, 202, 403, 405, 429, 503])
    def test_a_field_that_admits_it_is_enough(self, status, field, reason):
        """Whatever the body says; it may be empty."""
        assert detect(answer(status, "", field)) == reason

    def test_a_detour_to_a_challenge_is_one(self):
        """A redirect to a vendor's captcha."""
        location = ("Location", "https://www.google.com/sorry/index?continue=x")

        assert detect(answer(302, "", location)) == "challenge: google"
        assert detect(answer(302, "", ("Location", "https://h.example/login"))) is None

    @pytest.mark.parametrize("widget", ["g-recaptcha", "h-captcha", "cf-turnstile"])
    def test_a_refusal_with_a_captcha_and_little_else_is_a_challenge(self, widget):
        """Whoever sent it."""
        body = html("403", f'<form><div class="{widget}" data-sitekey="x"></div></form>')

        assert detect(answer(403, body)) == "challenge: captcha"


class TestShortDenials:
    @pytest.mark.parametrize(
        "text",
        [
            "Please verify you are human.",
            "Verifying that you are not a robot",
            "Are you a robot?",
            "We have detected unusual traffic from your network.",
            "Sorry, you have been blocked",
            "You've been blocked by network security.",
        ],
    )
    @pytest.mark.parametrize("status", [200, 403, 503])
    def test_short_page_that_suspects_a_robot_is_a_denial(self, status, text):
        """With status 200 too: it says nothing else."""
        assert detect(answer(status, html("h.example", text))) == "denied: short page"

    @pytest.mark.parametrize(
        "text",
        [
            "Access Denied",
            "Your request has been blocked.",
            "Your IP address is blocked",
            "Automated requests are not welcome",
            "Please complete the captcha",
        ],
    )
    def test_a_short_page_that_denies_is_one_with_a_status_that_does(self, text):
        """Words of denial may be about anything else when the status is 200."""
        body = html("h.example", text)

        assert detect(answer(403, body)) == "denied: short page"
        assert detect(answer(200, body)) is None


class TestOrdinaryPages:
    @pytest.mark.parametrize("status", [200, 203, 404, 410])
    @pytest.mark.parametrize(
        "quoted", [CLOUDFLARE, DATADOME, PERIMETERX, AKAMAI_DENIED, IMPERVA, AWS, ANUBIS, F5]
    )
    def test_an_article_about_challenges_is_not_one(self, status, quoted):
        """Even if it shows one, title and marks and all, unescaped."""
        assert detect(answer(status, html("How challenges work", quoted + PROSE * 40))) is None
        assert detect(answer(status, quoted + PROSE * 40)) is None

    def test_ordinary_page_with_vendor_scripts_is_no_block(self):
        """Protected sites have them on every page."""
        scripts = (
            '<script src="/_Incapsula_Resource?SWJIYLWA=1"></script>'
            '<script src="/cdn-cgi/challenge-platform/scripts/jsd/main.js"></script>'
            '<script>window._pxAppId="PX1"</script><script src="https://js.datadome.co/tags.js">'
            '</script><div class="cf-turnstile"></div>'
        )

        assert detect(answer(200, html("A shop", scripts + PROSE * 40))) is None

    @pytest.mark.parametrize(
        "field", [("x-datadome", "protected"), ("Server", "cloudflare"), ("X-Iinfo", "9-1")]
    )
    def test_fields_of_protected_sites_mean_nothing_alone(self, field):
        """They come with every answer."""
        assert detect(answer(200, html("A page", PROSE), field)) is None
        assert detect(answer(403, html("403 Forbidden", "<h1>403 Forbidden</h1>"), field)) is None

    @pytest.mark.parametrize(
        "body",
        [
            html("403 Forbidden", "<h1>403 Forbidden</h1><hr><center>nginx/1.24.0</center>"),
            html("403 Forbidden", "You don't have permission to access this resource."),
            html("403 - Forbidden: Access is denied.", "<h2>403 - Forbidden</h2>"),
            html("Access denied | Site", "You are not authorized to access this page."),
            html("Access denied", "Please log in to see this page."),
            "Forbidden",
            "",
        ],
    )
    def test_a_plain_403_is_an_answer(self, body):
        """G0: servers and applications refuse for reasons that concern everybody."""
        assert detect(answer(403, body)) is None

    def test_a_403_of_a_bucket_is_an_answer(self):
        """S3 says Access Denied of what does not exist."""
        body = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        response = Response("", 403, (("Content-Type", "application/xml"),), body.encode(), 0, 0)

        assert detect(response) is None

    @pytest.mark.parametrize("status", [401, 404, 410, 500, 502, 522])
    def test_other_statuses_mean_what_they_say(self, status):
        """A missing page or a broken server is no denial, however it is worded."""
        assert detect(answer(status, html("Error", "Access denied: you have been blocked"))) is None

    def test_too_many_requests_is_believed(self):
        """429 is an honest word (D3); only a vendor's challenge makes it more."""
        assert detect(answer(429, html("Slow down", "Automated requests are blocked"))) is None
        assert detect(answer(429, CLOUDFLARE)) == "challenge: cloudflare"

    def test_a_long_page_is_not_looked_into(self):
        """No challenge is longer, and most pages are."""
        body = CLOUDFLARE + " " * MAX_SCANNED_BYTES

        assert detect(answer(200, body)) is None

    @pytest.mark.parametrize("status", [200, 202, 302, 403, 503])
    @pytest.mark.parametrize("body", [b"", b"\0\xff" * 9000, b"<" * 60_000, b"<title" * 9000])
    def test_no_body_is_too_strange(self, status, body):
        """Whatever a host sends is looked at without harm."""
        assert detect(answer(status, body)) is None

    @pytest.mark.parametrize(
        "part", ["<div>word ", "<script", "<!-- ", "<a ", "< > ", "&#39;", "</"]
    )
    def test_no_nesting_takes_long(self, part):
        """A page is read once, whatever it is made of; were it not so, this would take minutes."""
        body = CLOUDFLARE + PROSE * 40 + part * 5000

        assert detect(answer(200, body)) is None


class TestTables:
    def test_titles_are_written_as_they_are_compared(self):
        """Lower-case and stripped, or they would never match."""
        titles = [title for vendor in VENDORS for title in vendor.titles]

        assert titles == [title.lower().strip() for title in titles]

    def test_no_mark_is_empty(self):
        """It would stand in every page."""
        assert all(len(mark) > 8 for vendor in VENDORS for mark in vendor.marks)
        assert all(CHALLENGE_HINTS)


def everything_is_a_block(response):
    """A detector of a user."""
    return f"denied: {response.status}"


class TestSetting:
    def test_the_names_are_known(self):
        """`default` is ours, `none` is none."""
        assert detector_of("default") is detect
        assert detector_of("none") is None

    def test_a_function_is_taken_as_it_is(self):
        """Or by its name."""
        assert detector_of(everything_is_a_block) is everything_is_a_block
        assert detector_of("outrider.fetch.block_detector:detect") is detect

    @pytest.mark.parametrize(
        "setting", ["cloudflare", 7, None, "outrider.fetch.block_detector:nobody"]
    )
    def test_anything_else_is_refused_by_name(self, setting):
        """With the setting's path and what may stand there."""
        with pytest.raises(SettingsError, match=r"fetch\.detector"):
            detector_of(setting)
