"""One plug-in for each port of Tenuto, as a package of its own: docs/plug-ins.md explains them."""
