"""`python -m tenuto.services.searcher`"""

from tenuto.kernel.service import run_service
from tenuto.services.searcher.app import build

if __name__ == "__main__":
    run_service("searcher", build)
