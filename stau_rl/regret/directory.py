"""A directory that holds one run: refused to other specs, resumed after an interruption, locked in use.

While a run is under way, finished blocks lie in `parts/` as `.npz` files; at the end the final files of
`stau_rl.regret.files` are written and the parts removed. Every file is written whole or not at all, so a
process may be killed at any moment and resumed to the same bytes.
"""

import hashlib
import json
import platform
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from stau_rl.files.identity import first_difference, identity
from stau_rl.files.lock import LOCK, DirectoryLock
from stau_rl.files.whole import SUFFIX, refuse_link, refuse_undecodable, whole_file, write_json
from stau_rl.kernels.contract import Block
from stau_rl.machine.phases import Phases
from stau_rl.regret.files import FINAL_FILES, SPEC, GrowingFiles, Kind, read_result, write_result
from stau_rl.regret.regrets import Regrets

PARTS = "parts"
ARRAYS = ("regret", "optimal", "late_optimal", "pulls", "reward_sums")


class RunDirectory:
    """The directory of one run; made by `open`, released by `close` or by leaving a `with` block.

    Processes that share the run of one that has opened it `join`: they read and write parts, and nothing else.

    Attributes:
        path: the directory.
        spec: the spec of the run.
        finished: all final files are there; `load` reads them.
    """

    path: Path
    spec: dict[str, Any]
    finished: bool

    def __init__(self, path: Path, spec: dict[str, Any]) -> None:
        """Describe the directory without touching it; use `open`."""
        self.path, self.spec = path, spec
        self.finished = all((path / name).is_file() for name in (SPEC, *FINAL_FILES))
        self._lock = DirectoryLock(path)
        self._joined = False
        self._made: list[Path] = []

    @classmethod
    def open(cls, path: str | Path, spec: dict[str, Any], resume: bool = False) -> "RunDirectory":
        """Take a directory for a run.

        A missing or empty directory is created and gets its `spec.json`. A directory whose spec has the same
        identity (`stau_rl.files.identity`) is continued with `resume`; files in it that are no part of a run stay.

        Args:
            path: the directory.
            spec: a JSON-able spec.
            resume: continue an unfinished run, or load a finished one.

        Returns:
            The directory, locked against other processes until `close`. A finished run is not locked: it is
            only read.

        Raises:
            ValueError: the directory holds this run and `resume` is not set, holds another run (the message
                names the first field that differs) or foreign files, is in use by another process, or cannot
                be written. In all cases nothing in it has been touched.
        """
        directory = Path(path)
        refuse_undecodable(directory)
        identity(spec)
        with explained(directory):
            run = cls(directory, spec)
            run._check(resume)
            if run.finished:
                run._clean_finished()
                return run
            created = not directory.exists()
            run._made = [folder for folder in (directory, *directory.parents) if not folder.exists()]
            directory.mkdir(parents=True, exist_ok=True)
            try:
                run._lock.take()
                # Another process may have been faster between the first look and the lock.
                run._check(resume)
                if not (directory / SPEC).exists():
                    write_json(directory / SPEC, spec)
            except BaseException:
                run.close()
                if created:
                    with suppress(OSError):
                        directory.rmdir()
                raise
        return run

    @classmethod
    def join(cls, path: str | Path, spec: dict[str, Any]) -> "RunDirectory":
        """Take part in a run that another process has opened and holds; the lock stays with that process.

        Args:
            path: the directory.
            spec: the same spec.

        Returns:
            The directory, for reading and writing parts as long as the other process holds it.

        Raises:
            ValueError: the directory is not there, holds another run, or nobody holds an unfinished one.
        """
        run = cls(Path(path), spec)
        with explained(run.path):
            run._check(resume=True)
            if not (run.path / SPEC).exists():
                raise ValueError(
                    f"run directory {run.path} is not to be seen on host {platform.node()}; "
                    "processes that share a run need a directory that all of them see"
                )
            run._joined = True
            if not run.finished:
                run._need_lock()
        return run

    def has_part(self, policy: str, first_instance: int, instances: int | None = None) -> bool:
        """Whether `read_part` would give a block; it is read in full to know."""
        return self.read_part(policy, first_instance, instances) is not None

    def read_part(self, policy: str, first_instance: int, instances: int | None = None) -> Block | None:
        """The block that `write_part` left; None where there is none, a damaged one or one of another size.

        Args:
            policy: the policy's text.
            first_instance: number of the block's first instance.
            instances: number of instances the block must have; by default any.

        Raises:
            ValueError: the file cannot be read for a reason other than its content.
        """
        path = self._part(policy, first_instance)
        with explained(self.path):
            try:
                # All checksums first: a damaged header could ask for any amount of memory.
                with zipfile.ZipFile(path) as archive:
                    if archive.testzip() is not None:
                        return None
                with np.load(path, allow_pickle=False) as stored:
                    block = Block(**{name: stored[name] for name in ARRAYS})
            except (
                FileNotFoundError,
                zipfile.BadZipFile,
                EOFError,
                KeyError,
                ValueError,
                NotImplementedError,
            ):
                return None
        size = block.late_optimal.size
        fits = block.regret.shape == (len(self.spec["checkpoints"]), size) and block.pulls.shape[1] == size
        return block if fits and instances in (None, size) else None

    def blocks(self, policy: str) -> list[Block]:
        """All whole parts of a policy, in the order of their instances."""
        found = []
        for path in sorted(self.path.glob(f"{PARTS}/{self._part(policy, 0).name.partition('-')[0]}-*.npz")):
            block = self.read_part(policy, int(path.stem.rpartition("-")[2]))
            if block is not None:
                found.append(block)
        return found

    def write_part(self, policy: str, first_instance: int, block: Block) -> None:
        """Keep a finished block for a later resumption; its actions and rewards, if recorded, are not kept.

        Args:
            policy: the policy's text.
            first_instance: number of the block's first instance.
            block: an engine's answer.

        Raises:
            ValueError: the directory cannot be written, or is not held.
        """
        with explained(self.path):
            self._need_lock()
            path = self._part(policy, first_instance)
            path.parent.mkdir(exist_ok=True)
            # Through a file object: given a name, numpy appends a suffix of its own.
            with whole_file(path) as temporary, temporary.open("wb") as file:
                arrays: dict[str, Any] = {name: getattr(block, name) for name in ARRAYS}
                np.savez(file, **arrays)

    def growing(self, result: Regrets) -> GrowingFiles:
        """The tables of every instance of a result, to be written while it is made; a `with` block.

        Raises:
            ValueError: the directory cannot be written, or is not held.
        """
        with explained(self.path):
            self._need_lock()
            return GrowingFiles(self.path, result)

    def finish(self, result: Regrets, growing: GrowingFiles | None = None, phases: Phases | None = None) -> None:
        """Write the final files of a result, then remove the parts; a finished run stays as it is.

        Args:
            result: the complete result of this run.
            growing: the tables that have been growing since the run began, if any.
            phases: as in `stau_rl.regret.files.write_result`.

        Raises:
            ValueError: the result belongs to another spec or is incomplete, or the directory cannot be
                written or is not held.
        """
        difference = first_difference(identity(self.spec), identity(result.spec))
        if difference:
            where, here, there = difference
            raise ValueError(f"the result is of another spec than {self.path}: {where} is {there}, not {here}")
        if self.finished:
            return
        if self._joined:
            raise ValueError(f"run directory {self.path} is finished by the process that opened it")
        self._need_lock()
        with explained(self.path):
            write_result(self.path, result, growing, phases)
            self.finished = True
            self._clean()

    def load(self, kind: type[Kind]) -> Kind:
        """Read the finished run, as `Regrets` or a class made of them.

        Raises:
            ValueError: the run is not finished, or a file is damaged.
        """
        return read_result(self.path, kind)

    def close(self) -> None:
        """Let other processes have the directory; safe to call twice."""
        self._lock.release()

    def abandon(self) -> None:
        """Remove the directory of a run that failed before it had anything to keep, if `open` made it."""
        if self._joined or self.finished or not self._lock.held:
            return
        with suppress(OSError):
            if any((self.path / PARTS).glob("*.npz")):
                return
            if (self.path / PARTS).is_dir():
                (self.path / PARTS).rmdir()
            if self._made:
                (self.path / SPEC).unlink(missing_ok=True)
                self.close()
                for folder in self._made:
                    folder.rmdir()

    def __enter__(self) -> "RunDirectory":
        """Nothing to do; `open` has taken the lock."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock."""
        self.close()

    def _part(self, policy: str, first_instance: int) -> Path:
        name = hashlib.sha256(policy.encode()).hexdigest()[:24]
        return self.path / PARTS / f"{name}-{first_instance:015d}.npz"

    def _need_lock(self) -> None:
        if self._joined:
            if not self._lock.held_elsewhere():
                raise ValueError(f"run directory {self.path} is no longer held by the process that opened it")
        elif not self._lock.held:
            raise ValueError(f"run directory {self.path} is not held by this process (finished or closed)")

    def _check(self, resume: bool) -> None:
        """Refuse a directory that is not ours to write in, without touching it."""
        if not self.path.exists():
            return
        if not self.path.is_dir():
            raise ValueError(f"run directory {self.path} is a file")
        refuse_link(self.path / PARTS)
        if not (self.path / SPEC).exists():
            # A process killed before it wrote its spec leaves these two and nothing else.
            foreign = sorted({entry.name for entry in self.path.iterdir()} - {LOCK, f".{SPEC}{SUFFIX}"})
            if foreign:
                shown = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
                raise ValueError(
                    f"run directory {self.path} holds files that are no run of stau-rl ({shown}); "
                    "name a new or an empty directory"
                )
            return
        try:
            written = json.loads((self.path / SPEC).read_text(encoding="utf-8"))
            stored = identity(written)
        except (ValueError, AttributeError) as error:
            raise ValueError(f"run directory {self.path}: {SPEC} is no spec of stau-rl ({error})") from error
        difference = first_difference(stored, identity(self.spec))
        if difference:
            where, here, asked = difference
            raise ValueError(
                f"run directory {self.path} holds a run of another spec: {where} is {here} there, "
                f"{asked} was asked for; name another directory"
            )
        self.spec = written
        self.finished = all((self.path / name).is_file() for name in FINAL_FILES)
        if not resume:
            state = "a finished" if self.finished else "an unfinished"
            purpose = "load" if self.finished else "continue"
            raise ValueError(f"run directory {self.path} holds {state} run of this spec; pass --resume to {purpose} it")

    def _clean(self) -> None:
        """Remove what a killed process left half-written, and the parts of a finished run."""
        for name in (SPEC, *FINAL_FILES):
            (self.path / f".{name}{SUFFIX}").unlink(missing_ok=True)
        parts = self.path / PARTS
        if not parts.is_dir():
            return
        for pattern in (f".*.npz{SUFFIX}", "*.npz") if self.finished else (f".*.npz{SUFFIX}",):
            for entry in parts.glob(pattern):
                entry.unlink(missing_ok=True)
        if self.finished:
            with suppress(OSError):
                parts.rmdir()

    def _clean_finished(self) -> None:
        """Remove parts that a process killed at the very end left; where that fails, they do no harm."""
        if (self.path / PARTS).exists():
            with suppress(OSError, ValueError), self._lock:
                self._clean()


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into one sentence about the run directory."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"run directory {path} cannot be used: {reason}") from error
