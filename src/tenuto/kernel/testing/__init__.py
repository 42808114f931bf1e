"""In-memory twins and fixtures for tests, held to the same contract suites as the real parts."""
