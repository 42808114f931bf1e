"""The agent: offers a node's slots, runs workers on them, and carries their reports to the record.

It keeps what it must not forget (its runs, the reports that are not yet committed) in one SQLite file, so that it can be killed
at any time: workers go on, and the next agent on the same directory finds them again.
"""
