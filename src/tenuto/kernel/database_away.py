"""Which of asyncpg's errors mean that the database is away, and nothing is wrong with what was asked."""

from __future__ import annotations

import asyncpg

DATABASE_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,  # the pool's connection was closed under us
    asyncpg.InternalClientError,  # the server ended the connection while it was taken from the pool
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutting down, starting up
    asyncpg.InsufficientResourcesError,  # too many connections, disk full
    asyncpg.TransactionRollbackError,  # deadlock, serialization: nothing was done
    asyncpg.PostgresSystemError,  # input/output error of its disk
)
"""Try again later."""

DATABASE_FAILED = (*DATABASE_AWAY, asyncpg.PostgresError)
"""For statements that are right by themselves: whatever the server says against them now, it may not say later."""
