"""Settings from environment variables; the only reader of the environment (N1).

Two underscores separate the parts of a path, so that no other variable of Outrider is taken for a
setting: OUTRIDER_POLITENESS__MIN_DELAY.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from typing import Final

from outrider.settings.layers import Layer
from outrider.settings.paths import leaves_of, read_value, tree_of

PREFIX: Final = "OUTRIDER_"
PART: Final = "__"
MAX_PERSON: Final = 128  # characters; stores take no longer name of who acts


def is_set(name: str) -> bool:
    """Tell whether a variable has a value, even an empty one."""
    return name in os.environ


def environment_layer(variables: Mapping[str, str] | None = None) -> Layer:
    """Return the layer of the variables; their values are read as TOML, else as text."""
    leaves, origins = [], {}
    for name, text in sorted((os.environ if variables is None else variables).items()):
        if name.startswith(PREFIX) and PART in name:
            path = tuple(name.removeprefix(PREFIX).strip("_").lower().split(PART))
            value = read_value(text)
            leaves.append((path, value))
            paths = [leaf for leaf, _ in leaves_of(value, path)]
            origins.update(dict.fromkeys(paths or [path], f"environment {name}"))
    return Layer("environment", tree_of(leaves), origins)


def person() -> str:
    """Return the user and host of this process: user@host, as the name of who acts."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # in a container a user id may have no name
        user = str(os.getuid())
    name = f"{user}@{socket.gethostname()}"
    return "".join(letter for letter in name if letter.isprintable())[:MAX_PERSON]
