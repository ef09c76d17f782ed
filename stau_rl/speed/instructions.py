"""Instructions of a compiled CUDA kernel's main loop, from its disassembly."""

import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

PIPES = {
    "special": ("MUFU", "I2F", "F2I", "F2F"),
    "multiply-add": ("FFMA", "FADD", "FMUL", "IMAD"),
    "float64": ("DADD", "DMUL", "DFMA", "DSETP"),
    "memory": ("LDG", "STG", "LDS", "STS", "SHFL", "LDC", "ULDC", "LDL", "STL"),
}
"""Opcodes by the pipe that runs them; `special` issues 16 a clock and multiprocessor, the rest more."""
SPECIAL_PER_CLOCK = 16


def loop_instructions(cubin: bytes, arm_steps: int) -> dict[str, float]:
    """Instructions per arm-step of the longest loop, without its blocks that store (checkpoints), by pipe.

    Args:
        cubin: a compiled kernel.
        arm_steps: arm-steps of one turn of its loop.

    Returns:
        `all`, and the counts by pipe; a pipe that is not used is left out.

    Raises:
        OSError: there is no disassembler.
    """
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder, "kernel.cubin")
        binary.write_bytes(cubin)
        command = [str(tool) if tool.exists() else "nvdisasm", "-c", str(binary)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    labels: dict[str, int] = {}
    code: list[str] = []
    for line in text.splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(code)
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);", line):
            code.append(instruction[1])
    jumps = [(i, labels[m[1]]) for i, op in enumerate(code) if (m := re.search(r"BRA.*(\.L_x_\d+)", op))]
    begin, end = max(((target, i) for i, target in jumps if target <= i), key=lambda span: span[1] - span[0])
    hot = set(range(begin, end + 1))
    for i, target in jumps:
        if begin <= i < target <= end and any("STG" in op for op in code[i:target]):
            hot -= set(range(i + 1, target))
    names = [re.sub(r"^@!?U?P\w+\s+", "", code[i]).split()[0].split(".")[0] for i in sorted(hot)]
    pipes = Counter(
        next((pipe for pipe, members in PIPES.items() if name in members), "compare/logic") for name in names
    )
    return {"all": len(names) / arm_steps, **{pipe: count / arm_steps for pipe, count in pipes.items()}}
