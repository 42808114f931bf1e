"""`python -m tenuto.workers.agent`: one per node."""

from tenuto.workers.agent.main import main

if __name__ == "__main__":
    main()
