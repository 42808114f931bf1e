"""Number of seeds that tests with random faults try: `TENUTO_TEST_SEEDS=5 pytest ...`. 1 by default: each takes ten seconds."""

from __future__ import annotations

import os

SEEDS = range(1, 1 + int(os.environ.get("TENUTO_TEST_SEEDS", "1")))
