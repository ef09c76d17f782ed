"""What the commands with a folder of finished work have in common."""

from pathlib import Path
from typing import ClassVar


class Resumable:
    """A command whose --out keeps what is finished, and whose --resume goes on with it.

    The options are fields of each command, in its own order and with its own texts.

    Attributes:
        work: what the folder holds, as in "the folder of the study".
        kept: what outlives Ctrl-C, as in "finished runs are kept".
        out: the folder, if one was named.
        resume: it may hold some of the work.
    """

    work: ClassVar[str]
    kept: ClassVar[str]
    out: Path | None
    resume: bool

    @property
    def after_stop(self) -> str:
        """What to say after Ctrl-C."""
        return f"; {self.kept}: repeat the command with --resume to go on" if self.out else ""

    def check_resume(self) -> None:
        """Refuse --resume without a folder.

        Raises:
            ValueError: naming what to add.
        """
        if self.resume and self.out is None:
            raise ValueError(f"--resume needs --out DIR, the folder of the {self.work} to continue")
