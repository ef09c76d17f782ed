"""The command line with parts of five instances; SIGKILL for the rank that KILL_RANK names, after KILL_AFTER parts."""

import os
import signal
import sys
from typing import Any

from stau_rl import regret
from stau_rl.cli import main
from stau_rl.rundir import RunDirectory

if __name__ == "__main__":
    regret.SMALLEST_PART = regret.LARGEST_PART = 5
    write_part = RunDirectory.write_part
    left = int(os.environ.get("KILL_AFTER", 0))

    def write_or_die(*arguments: Any) -> None:
        global left
        if os.environ.get("KILL_RANK") == os.environ.get("RANK", "0"):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        write_part(*arguments)

    RunDirectory.write_part = write_or_die  # type: ignore[method-assign]
    main(sys.argv[1:])
