"""Real servers for tests: PostgreSQL and Valkey from their wheels, clusters, and faulty proxies."""

from servers.cluster import ValkeyCluster
from servers.postgres import PostgresServer
from servers.proxy import Proxy
from servers.proxy_process import ProxyProcess
from servers.shared import Kind, shared_url
from servers.valkey import ValkeyServer

__all__ = [
    "Kind",
    "PostgresServer",
    "Proxy",
    "ProxyProcess",
    "ValkeyCluster",
    "ValkeyServer",
    "shared_url",
]
