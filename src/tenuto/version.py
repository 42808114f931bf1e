"""The one version number: the package's, and what agents, records and commands say of themselves."""

__version__ = "0.1.0"
