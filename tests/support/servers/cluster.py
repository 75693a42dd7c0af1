"""A Valkey cluster: three masters, all slots served, no replicas."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Final, Self

from servers.server_process import START_TIMEOUT, Manner, free_port
from servers.shared_directory import private_directory
from servers.valkey import ValkeyServer, ask

MASTERS: Final = 3
_SLOTS: Final = 16_384
_PAUSE: Final = 0.02


class ValkeyCluster:
    """`with ValkeyCluster() as cluster:`; `nodes` are servers like any other."""

    def __init__(
        self, place: Path | None = None, *, options: Mapping[str, str] | None = None
    ) -> None:
        first = place or private_directory("cluster")
        places = [first, *(first.with_name(f"{first.name}-{n}") for n in range(1, MASTERS))]
        self.nodes = [_node(each, options or {}) for each in places]
        self._is_joined = False

    @property
    def url(self) -> str:
        """The URL of one node, which names the others."""
        return self.nodes[0].url

    @property
    def store_url(self) -> str:
        """The URL of a store on all nodes."""
        nodes = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        return f"redis+cluster://{nodes}"

    def start(self) -> Self:
        """Return once every node serves every slot."""
        for node in self.nodes:
            node.start()
        if not self._is_joined:
            self._join()
        self._wait_until_ok()
        return self

    def stop(self, manner: Manner = "orderly") -> None:
        """Stop all nodes."""
        for node in self.nodes:
            node.stop(manner)

    def restart(self, manner: Manner = "orderly") -> None:
        """Restart all nodes on the same data."""
        self.stop(manner)
        self.start()

    def leave(self) -> None:
        """Let the nodes run after this process."""
        for node in self.nodes:
            node.leave()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")

    def _join(self) -> None:
        first, *others = self.nodes
        for number, node in enumerate(self.nodes):
            begin, end = (_SLOTS * n // MASTERS for n in (number, number + 1))
            _command(node.port, "CLUSTER", "ADDSLOTSRANGE", str(begin), str(end - 1))
            _command(node.port, "CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
        for node in others:
            bus = node.options["cluster-port"]
            _command(first.port, "CLUSTER", "MEET", "127.0.0.1", str(node.port), bus)
        self._is_joined = True

    def _wait_until_ok(self) -> None:
        for _ in range(round(START_TIMEOUT / _PAUSE)):
            if all(_is_complete(node.port) for node in self.nodes):
                return
            Event().wait(_PAUSE)
        raise RuntimeError(f"no cluster after {START_TIMEOUT:.0f} s; see {self.nodes[0].log}")


def _node(place: Path, options: Mapping[str, str]) -> ValkeyServer:
    place.mkdir(exist_ok=True)
    settings = {
        "cluster-enabled": "yes",
        "cluster-port": str(free_port()),  # the default is beyond the last port for high ones
        "cluster-node-timeout": "2000",
        "databases": "1",
    }
    return ValkeyServer(place, options={**settings, **options})


def _command(port: int, *words: str) -> None:
    answer = ask(port, *words)
    if not answer.startswith(b"+OK"):
        raise RuntimeError(f"{' '.join(words)}: {answer[:200]!r}")


def _is_complete(port: int) -> bool:
    answer = ask(port, "CLUSTER", "INFO")
    return b"cluster_state:ok" in answer and b"cluster_known_nodes:%d\r" % MASTERS in answer
