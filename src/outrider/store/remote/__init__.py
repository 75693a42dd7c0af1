"""The store protocol over a Unix socket: the process that holds a file serves the user's others."""

from outrider.store.remote.client import RemoteStore
from outrider.store.remote.server import StoreServer
from outrider.store.remote.socket_address import socket_path

__all__ = ["RemoteStore", "StoreServer", "socket_path"]
