"""`python -m semspec.tuning STEP NAME [WORKER]`: one step of a search, in the project folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from semspec.errors import UserError, in_a_line
from semspec.process import end_with_parent
from semspec.quiet import quiet
from semspec.tuning.command import STEPS


def main(arguments: list[str]) -> int:
    step, name, *more = arguments
    end_with_parent()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    root = Path(".").resolve()
    quiet(root)
    try:
        STEPS[step](root, name, *map(int, more))
    except UserError as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except OSError as e:
        print(f"error: {in_a_line(e)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
