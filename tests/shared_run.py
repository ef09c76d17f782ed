"""The command line with parts of five instances; SIGKILL for the rank that KILL_RANK names, after KILL_AFTER parts.

With KILL_AT_ONCE it dies when it is asked for its first part, before it has played.
"""

import os
import signal
import sys
from typing import Any

from stau_rl.cli.main import main
from stau_rl.regret import plan
from stau_rl.regret.directory import RunDirectory

if __name__ == "__main__":
    plan.SMALLEST_PART = plan.LARGEST_PART = 5
    write_part = RunDirectory.write_part
    left = int(os.environ.get("KILL_AFTER", 0))

    def write_or_die(*arguments: Any) -> None:
        global left
        if os.environ.get("KILL_RANK") == os.environ.get("RANK", "0"):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        write_part(*arguments)

    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    RunDirectory.write_part = write_or_die  # type: ignore[method-assign]
    if os.environ.get("KILL_AT_ONCE") and os.environ["KILL_RANK"] == os.environ["RANK"]:
        RunDirectory.read_part = die  # type: ignore[method-assign, assignment]
    main(sys.argv[1:])
