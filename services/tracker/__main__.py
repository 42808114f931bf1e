"""`python -m tenuto.services.tracker`"""

from tenuto.kernel.service import run_service
from tenuto.services.tracker.app import build

if __name__ == "__main__":
    run_service("tracker", build)
