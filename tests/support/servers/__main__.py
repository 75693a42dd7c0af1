"""`python -m servers URL [CERTIFICATE]`: a line to a server, as a process.

It says its own URL, obeys one word a line, answers each with an empty line, and ends with its
standard input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from servers.proxy import Proxy


def main() -> None:
    """Serve until nobody speaks any more."""
    url, *certificate = sys.argv[1:]
    with Proxy(url, certificate=certificate[0] if certificate else None) as proxy:
        _say(proxy.url)
        for line in sys.stdin:
            _obey(proxy, line.strip())
            _say("")


def _obey(proxy: Proxy, word: str) -> None:
    verbs: dict[str, Callable[[], None]] = {
        "pause": proxy.pause,
        "resume": proxy.resume,
        "cut": proxy.cut,
        "refuse": proxy.refuse,
        "accept": proxy.accept,
    }
    if word in verbs:
        verbs[word]()
    else:
        proxy.slow_down(float(word))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
