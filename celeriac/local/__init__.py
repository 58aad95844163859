"""The embedded stack: a real Postgres and a real Valkey from wheels, for machines without servers.

Enter by `join()`, or for measurements by `join_temporary()`. `PostgresServer` and `ValkeyServer` are single private
servers, to be stopped, killed and paused at will.
"""

from celeriac.local.errors import LocalStackError
from celeriac.local.membership import Stack, join, join_temporary
from celeriac.local.postgres import PostgresServer
from celeriac.local.valkey import ValkeyServer

__all__ = ["LocalStackError", "PostgresServer", "Stack", "ValkeyServer", "join", "join_temporary"]
