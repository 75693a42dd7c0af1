"""LENDS real servers: PostgreSQL and Valkey from their wheels, clusters, and lines that fail."""

from outrider.testing.servers.cluster import ValkeyCluster
from outrider.testing.servers.postgres import PostgresServer
from outrider.testing.servers.proxy import Proxy
from outrider.testing.servers.proxy_process import ProxyProcess
from outrider.testing.servers.shared import Kind, shared_url
from outrider.testing.servers.valkey import ValkeyServer

__all__ = [
    "Kind",
    "PostgresServer",
    "Proxy",
    "ProxyProcess",
    "ValkeyCluster",
    "ValkeyServer",
    "shared_url",
]
