"""`python -m gemmsim`: the same as the command `gemmsim`."""

import sys

from gemmsim.cli import main

if __name__ == "__main__":
    sys.exit(main())
