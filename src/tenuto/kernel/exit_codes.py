"""Exit codes of services and agents, by which those who start them know what happened."""

from __future__ import annotations

EXIT_SETTINGS = 64
"""A setting is wrong: starting again does not help, because an operator has to change something."""
EXIT_FENCED = 70
"""Another instance took over."""
EXIT_HALTED = 71
"""A deciding service met an event that it cannot fold or decide on; an operator has to look."""
EXIT_LOST = 74
"""The agent's directory or database was lost while it ran (EX_IOERR of sysexits.h); the next start says what is left."""
EXIT_REVOKED = 77
"""The cluster has revoked the agent: starting again does not help (EX_NOPERM of sysexits.h)."""
