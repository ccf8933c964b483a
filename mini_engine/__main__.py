"""`python -m mini_engine`: the same as the `mini-engine` command."""

import sys

from mini_engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
