"""What results are stamped with: the commit of the code, the versions of packages, the name of the device."""

import contextlib
import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def current_commit() -> str:
    """Commit of the checkout this package runs from, `-dirty` if tracked files differ.

    Outside a checkout, as in a copy of its files on another machine: what the variable STAU_RL_COMMIT says, else
    `unknown`.
    """
    elsewhere = os.environ.get("STAU_RL_COMMIT", "unknown")
    package = Path(__file__).resolve().parents[1]

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(package), *arguments], capture_output=True, text=True, check=True, timeout=20
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) != package.parent:
            return elsewhere
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return elsewhere


def device_name(device: str = "cpu") -> str:
    """Name of a device as its rows give it: the GPU's, or the processor's (its architecture where it has no name)."""
    if device != "cpu":
        import torch

        return str(torch.cuda.get_device_name(device))
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return f"{platform.machine()} CPU"


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python and of those of the packages that are installed, by name."""
    found = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
