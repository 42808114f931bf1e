"""Horovod on the platform: its ranks are started and connected here, without horovodrun, MPI or ssh."""
