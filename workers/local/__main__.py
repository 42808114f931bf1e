"""`python -P -m tenuto.workers.local RECORD MODEL_DIR`: what `tenuto exp create --local` becomes, in the same process."""

import sys
from pathlib import Path

if __name__ == "__main__":
    from tenuto.workers.harness.quick_end import QuickEnd
    from tenuto.workers.local.running import main

    ending = QuickEnd()
    ending.code = main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.exit(ending.code)
