"""`python -m tenuto.services.scheduler`"""

from tenuto.kernel.service import run_service
from tenuto.services.scheduler.app import build

if __name__ == "__main__":
    run_service("scheduler", build)
