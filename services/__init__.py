"""The five services."""
