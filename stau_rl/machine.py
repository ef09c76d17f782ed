"""What the code runs on."""

import contextlib
import platform
from pathlib import Path


def device() -> str:
    """The processor's name, or at least its architecture."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return f"{platform.machine()} CPU"
