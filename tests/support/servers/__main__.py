"""`python -m servers URL [CERTIFICATE]`: a proxy to a server, as a process.

It prints its URL, runs one command per line of standard input, answers each with an empty line, and
ends with its standard input.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from servers.proxy import Proxy


def main() -> None:
    """Serve until standard input ends."""
    url, *certificate = sys.argv[1:]
    with Proxy(url, certificate=certificate[0] if certificate else None) as proxy:
        _print_line(proxy.url)
        for line in sys.stdin:
            _run_command(proxy, line.strip())
            _print_line("")


def _run_command(proxy: Proxy, word: str) -> None:
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


def _print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
