"""The agent: offers a node's slots, runs workers on them, and carries their reports to the record.

Its durable state (its runs, and the reports that are not committed yet) is in one SQLite file, so it can be killed at any time:
workers go on, and the next agent on the same directory finds them again.
"""
