"""Horovod under the platform: its ranks are started and found here, without horovodrun, MPI or ssh."""
