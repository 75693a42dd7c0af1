"""The address of a store as it is shown: never with a password, however it is spelt."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outrider.errors import InvalidInput
from outrider.store.address import (
    HIDDEN,
    check_address,
    hide_addresses,
    hide_secrets,
    is_path,
    show_address,
)
from outrider.store.postgres.address import parse_address
from outrider.store.redis.cluster import read_url
from outrider.store.redis.connect import address_of

SHOWN = {
    "crawl.outrider": "crawl.outrider",
    "/data/2026-11-16T10:00/me@home.outrider": "/data/2026-11-16T10:00/me@home.outrider",
    "./a:b@c.outrider": "./a:b@c.outrider",
    "me@example.org.outrider": "me@example.org.outrider",
    "memory://": "memory://",
    "postgresql://host/db": "postgresql://host/db",
    "postgresql://me:pw@host:5433/db?schema=news": "postgresql://host:5433/db?schema=news",
    "postgresql://me:pw@h1:1,h2:2/db?sslmode=require": "postgresql://h1:1,h2:2/db",
    "postgresql:///db?host=/run/pg&user=me": "postgresql:///db",
    "redis://:pw@host:6379/0?prefix=a.b:c": "redis://host:6379/0?prefix=a.b:c",
    "redis+cluster://u:pw@h1:1,[::1]:2?shards=8": "redis+cluster://h1:1,[::1]:2?shards=8",
    "unix://:pw@/run/redis.sock?db=2": "unix:///run/redis.sock?db=2",
    "postgre://me:pw@host/db": "postgre://host/db",
}


@pytest.mark.parametrize(("address", "shown"), SHOWN.items(), ids=SHOWN)
def test_address_is_shown_without_user_password_and_unknown_options(address, shown):
    """What remains tells the store apart from others, and can be typed again."""
    assert show_address(address) == shown


passwords = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
schemes = st.sampled_from(["postgresql", "postgres", "postgre", "redis", "REDIS", "valkeys", "x+y"])
templates = st.sampled_from(
    [
        "{scheme}://u:{password}@host/db",
        "{scheme}://:{password}@host:1/0",
        "{scheme}://{password}@host",
        "{scheme}://u:{password}@h1:1,h2:2/db?schema=a",
        "{scheme}:/u:{password}@host/db",
        "{scheme}//u:{password}@host/db",
        "//u:{password}@host/db",
        "u:{password}@host",
    ]
)


@given(scheme=schemes, template=templates, password=passwords)
def test_password_between_colon_and_host_is_never_shown(scheme, template, password):
    """Whatever characters it has: the parts of the template are all that may be left."""
    shown = show_address(template.format(scheme=scheme, password=password))

    assert shown in {
        HIDDEN,
        f"{scheme}://{HIDDEN}",
        f"{scheme}:{HIDDEN}",
        show_address(template.format(scheme=scheme, password="x")),
    }


@given(
    scheme=schemes, name=st.sampled_from(["password", "sslpassword", "passfile"]), value=passwords
)
def test_password_in_an_option_is_never_shown(scheme, name, value):
    """Neither after a question mark nor as a keyword."""
    assume(not value.strip().startswith(("schema=", "prefix=", "shards=", "db=")))
    marker = f"Q{value}Q"

    assert marker not in show_address(f"{scheme}://host/db?{name}={marker}")
    assert show_address(f"host=h {name}={marker}") == HIDDEN
    assert show_address(f"dbname=d {name} = '{marker}'") == HIDDEN


@given(st.text())
def test_showing_takes_any_text(text):
    """A path is shown whole; showing what was shown changes nothing."""
    shown = show_address(text)

    assert (shown == text) or not is_path(text)
    assert show_address(shown) == shown


@pytest.mark.parametrize(
    "found",
    [
        lambda: parse_address("postgresql://u:hunter2@host/db"),
        lambda: address_of("redis://u:hunter2@host/0"),
        lambda: read_url("redis+cluster://u:hunter2@h1:1,h2:2"),
    ],
    ids=["postgresql", "redis", "cluster"],
)
def test_parsed_address_has_no_secret_in_its_representation(found):
    """A debugger, a log line or a failed assertion prints it."""
    assert "hunter2" not in repr(found())


def test_file_with_a_strange_name_is_opened_and_a_new_one_needs_its_directory(
    tmp_path, monkeypatch
):
    """A password must not become a file's name by mistake."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=r"\./NAME"):
        check_address("me:hunter2@host")
    check_address("./me:hunter2@host")
    (tmp_path / "me:hunter2@host").touch()
    check_address("me:hunter2@host")


def test_secrets_are_hidden_in_what_a_driver_says():
    """As they are written, and as they are meant; short ones only as words of their own."""
    said = 'could not translate "p%40ss" (p@ss); a: a word'

    assert (
        hide_secrets(said, "postgresql://u:p%40ss@h/db") == 'could not translate "…" (…); a: a word'
    )
    assert hide_secrets(said, "postgresql://u:a@h/db?sslpassword=word") == (
        'could not translate "p%40ss" (p@ss); …: … …'
    )


def test_addresses_of_a_command_line_are_hidden_in_its_messages():
    """Pages' URLs stay, unless they hold a user."""
    words = [
        "stats",
        "--store=redis://:pw@host",
        "https://a.example/?b=c",
        "https://u:p@b.example/",
    ]
    said = "redis://:pw@host, https://a.example/?b=c and 'https://u:p@b.example/'"

    assert hide_addresses(said, words) == (
        "redis://host, https://a.example/?b=c and 'https://b.example/'"
    )
