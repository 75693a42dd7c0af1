"""The seam over a Unix socket: the process that holds a file serves its user's others."""

from outrider.store.remote.address import socket_path
from outrider.store.remote.client import RemoteStore
from outrider.store.remote.door import Door

__all__ = ["Door", "RemoteStore", "socket_path"]
