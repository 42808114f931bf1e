"""Checkpoints in a store: manifests and blobs, in a shared directory, S3 or a cloud's object storage.

Used by workers (which write), the tracker (which deletes) and the gateway (which reads), so it lives below all three.
"""
