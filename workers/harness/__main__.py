"""`python -m tenuto.workers.harness`: started by the agent, one process per rank."""

from tenuto.workers.harness.main import main

if __name__ == "__main__":
    main()
