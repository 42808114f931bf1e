"""The `tenuto` command."""
