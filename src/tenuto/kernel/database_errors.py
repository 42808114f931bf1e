"""Classes of asyncpg's errors: those that mean the database cannot be used now, although the statement is right."""

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
"""Errors after which the same statement may succeed later."""

DATABASE_FAILED = (*DATABASE_AWAY, asyncpg.PostgresError)
"""Errors to retry for statements that are known to be right: whatever the server refuses now, it may accept later."""
