"""`python -m tenuto.services.launcher`"""

from tenuto.kernel.service import run_service
from tenuto.services.launcher.app import build

if __name__ == "__main__":
    run_service("launcher", build)
