"""Loading files of plug-ins: heads and tasks of your own."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from stau_rl.envs.tasks import TASKS
from stau_rl.files.whole import refuse_undecodable
from stau_rl.heads import HEADS
from stau_rl.plugin.plugin_head import PluginHead, forget
from stau_rl.plugin.plugin_task import forget_task, own_source
from stau_rl.plugin.source import FILE_HASH


def load_plugin(path: str | Path) -> list[str]:
    """Run a plug-in file; the same file again does nothing.

    Args:
        path: a Python file that registers one or more heads with `stau_rl.plugin.head`, or tasks with
            `stau_rl.plugin.task`. It is run as Python: load only files that you trust.

    Returns:
        The names of the heads it registers, then those of the tasks.

    Raises:
        ValueError: the file is missing, raises an error, or registers nothing; then nothing of it stays registered.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import stau_rl
        >>> text = "from stau_rl.plugin import head; head('cubic', a=1.0)(lambda scores, a: a * scores**3)"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "cubic.py")
        ...     _ = file.write_text(text)
        ...     stau_rl.load_plugin(file)
        ['cubic']
    """
    file = Path(path).resolve()
    refuse_undecodable(file)
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ValueError(f"plug-in {path}: {error.strerror or error}") from None
    digest = hashlib.sha256(text).hexdigest()
    before, tasks_before = set(HEADS), set(TASKS)
    module_name = f"stau_rl_plugin_{hashlib.sha256(str(file).encode()).hexdigest()[:16]}"
    module = ModuleType(module_name)
    module.__dict__.update({"__file__": str(file), FILE_HASH: digest})
    old = sys.modules.get(module_name)
    sys.modules[module_name] = module
    try:
        exec(compile(text, str(file), "exec"), module.__dict__)
        ours = [
            head.name
            for head in HEADS.values()
            if issubclass(head, PluginHead) and (head.plugin.file, head.plugin.sha256) == (str(file), digest)
        ]
        for name, kind in TASKS.items():
            source = own_source(kind)
            if source is not None and (source.file, source.sha256) == (str(file), digest):
                ours.append(name)
        if not ours:
            raise ValueError(
                "it registers no head; decorate a function with stau_rl.plugin.head, or a class with plugin.task"
            )
    except (Exception, SystemExit) as error:
        for added in [name for name in HEADS if name not in before and issubclass(HEADS[name], PluginHead)]:
            forget(added)
        for added in [name for name in TASKS if name not in tasks_before]:
            forget_task(added)
        del sys.modules[module_name]
        if old is not None:
            sys.modules[module_name] = old
        raise ValueError(f"plug-in {path}: {_reason(error, str(file))}") from error
    return ours


def load_plugins(paths: Sequence[str | Path]) -> None:
    """Run several plug-in files; errors as in `load_plugin`."""
    for path in paths:
        load_plugin(path)


def _reason(error: BaseException, file: str) -> str:
    """What went wrong, and the last line of the file it went through."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"line {error.lineno}: SyntaxError: {error.msg}"
    lines = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    where = f"line {lines[-1]}: " if lines else ""
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return f"{where}{kind}{error}"
