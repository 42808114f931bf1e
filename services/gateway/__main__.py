"""`python -m tenuto.services.gateway`"""

from tenuto.kernel.service import run_service
from tenuto.services.gateway.app import build

if __name__ == "__main__":
    run_service("gateway", build)
