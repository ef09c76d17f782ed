"""The command `stau-rl`."""

import sys
from collections.abc import Sequence

MISUSE, STOPPED = 2, 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exit code 2 and one line on standard error for a user's mistake."""
    import tyro

    from stau_rl.cli_heads import Calibrate, Heads
    from stau_rl.cli_regret import Regret
    from stau_rl.cli_speed import Speed
    from stau_rl.cli_study import Study

    arguments = sys.argv[1:] if arguments is None else arguments
    if list(arguments) == ["--version"]:
        from stau_rl import __version__

        print(f"stau-rl {__version__}")
        return
    command = tyro.extras.subcommand_cli_from_dict(
        {"regret": Regret, "study": Study, "heads": Heads, "calibrate": Calibrate, "speed": Speed},
        prog="stau-rl",
        description="How should a vector of scores become a decision? Swap that step and measure what changes.",
        args=arguments,
    )
    try:
        command.run()
    except KeyboardInterrupt as stop:
        print(f"stopped{stop.args[0] if stop.args else command.after_stop}", file=sys.stderr)
        sys.exit(STOPPED)
    except (OSError, ValueError) as error:
        print(f"stau-rl: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(MISUSE)
