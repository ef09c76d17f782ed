"""The command `stau-rl`."""

import atexit
import gc
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

MISUSE, STOPPED = 2, 130
PROGRAM = "stau-rl"
DESCRIPTION = "How should a vector of scores become a decision? Swap that step and measure what changes."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; exit code 2 and one line on standard error for a user's mistake."""
    from stau_rl.machine.ranks import current_ranks, one_voice
    from stau_rl.terminal.streams import patient_streams

    ranks = current_ranks()
    with patient_streams(), one_voice(ranks):
        _run(sys.argv[1:] if arguments is None else arguments, shared=ranks.size > 1)


def _run(arguments: Sequence[str], shared: bool) -> None:
    # All files are closed by then; a last search of a million objects for cycles would take half a second.
    atexit.register(gc.freeze)
    from stau_rl.cli.options import HAS_TYRO
    from stau_rl.cli.plain import command_parser, read_command
    from stau_rl.spec.grammar import suggest

    known = commands()
    if list(arguments) in ([], ["-h"], ["--help"], ["--version"]):
        # A line per command; each command's own help has the rest.
        parser = command_parser(known, PROGRAM, DESCRIPTION)
        if not arguments:
            parser.print_help(sys.stderr)
            sys.exit(MISUSE)
        parser.parse_args(arguments)
    if not arguments[0].startswith("-") and arguments[0] not in known:
        _misuse(f"unknown command {arguments[0]!r}{suggest(arguments[0], known)}")
    if HAS_TYRO:
        import tyro

        command = tyro.extras.subcommand_cli_from_dict(known, prog=PROGRAM, description=DESCRIPTION, args=arguments)
    else:
        command = read_command(known, PROGRAM, DESCRIPTION, arguments)
    try:
        if shared and not isinstance(command, known["regret"]):
            raise ValueError("only stau-rl regret shares its work among processes; run the others without torchrun")
        command.run()
    except KeyboardInterrupt as stop:
        print(f"stopped{stop.args[0] if stop.args else command.after_stop}", file=sys.stderr)
        sys.exit(STOPPED)
    except (OSError, ValueError) as error:
        _misuse(str(error))
    except ModuleNotFoundError as error:
        # Of the package itself nothing may be missing; that is a fault to be seen whole.
        if error.name is None or error.name.partition(".")[0] == "stau_rl":
            raise
        _misuse(f"this needs the package {error.name}, which is not installed; pip install it")


def _misuse(text: str) -> NoReturn:
    """End with one line on standard error."""
    print(f"{PROGRAM}: error: {' '.join(text.split())}", file=sys.stderr)
    sys.exit(MISUSE)


def commands() -> dict[str, Any]:
    """The commands by name, in the order in which a newcomer needs them."""
    from stau_rl.cli.analyse import Analyse
    from stau_rl.cli.evaluate import Evaluate
    from stau_rl.cli.heads import Calibrate, Heads
    from stau_rl.cli.listings import ArmKinds, Policies
    from stau_rl.cli.plateau import Plateau
    from stau_rl.cli.probe import Probe
    from stau_rl.cli.problems import Problems
    from stau_rl.cli.regret import Regret
    from stau_rl.cli.rl_study import RLStudy
    from stau_rl.cli.speed import Speed
    from stau_rl.cli.status import Status
    from stau_rl.cli.study import Study
    from stau_rl.cli.train import Train

    return {
        "regret": Regret,
        "problems": Problems,
        "policies": Policies,
        "arms": ArmKinds,
        "study": Study,
        "heads": Heads,
        "calibrate": Calibrate,
        "analyse": Analyse,
        "train": Train,
        "evaluate": Evaluate,
        "rl-study": RLStudy,
        "plateau": Plateau,
        "probe": Probe,
        "speed": Speed,
        "status": Status,
    }
