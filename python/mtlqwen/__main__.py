"""``python -m mtlqwen`` is the console script ``mtlqwen``."""

from __future__ import annotations

import sys

from mtlqwen.cli import main

if __name__ == "__main__":
    sys.exit(main())
