"""``python -m rankrls``: the command line."""

import sys

from rankrls.cli import main

if __name__ == "__main__":
    sys.exit(main())
