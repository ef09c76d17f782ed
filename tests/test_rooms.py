"""The rooms and their floors: imports go down or stay in the room, and never in a circle."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Lowest first. A room imports from lower floors, and from itself.
FLOORS = (
    {"spec", "files", "machine", "terminal"},
    {"heads", "figures"},
    {"kernels", "calibration", "statistics"},
    {"nn", "envs"},
    {"plugin"},
    {"agents", "integrations"},
    {"regret", "plateau", "probe", "training"},
    {"study", "rl_study", "speed"},
    {"cli", "checks"},
    {"pages"},
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# The package's own face, the door of `python -m stau_rl`, and the hook that registers environments.
FACE = {"", "__main__", "gym_hook", "plotting", "moved"}


def modules() -> dict[str, Path]:
    """Name below `stau_rl` -> file, for every module of the package."""
    found = {}
    for folder in ("stau_rl", "kernels", "envs", "agents"):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if folder == "stau_rl":
                parts = parts[1:]
                if (ROOT / "stau_rl" / parts[0]).is_symlink():
                    continue
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of the project that a file imports anywhere in it, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = node.module.removeprefix("stau_rl").removeprefix(".")
            for alias in node.names:
                name = f"{inside}.{alias.name}".removeprefix(".")
                found.add(f"{node.module}.{alias.name}" if name in known else node.module)
    ours = {name.removeprefix("stau_rl").removeprefix(".") for name in found if name.split(".")[0] == "stau_rl"}
    return {name for name in ours if name in known}


IMPORTS = {name: imported(path, MODULES) for name, path in MODULES.items()}


def room(name: str) -> str:
    return name.split(".")[0]


def test_every_room_has_a_floor():
    assert {room(name) for name in MODULES} - FACE == set(FLOOR)


@pytest.mark.parametrize("name", sorted(set(MODULES) - FACE))
def test_no_import_points_up(name):
    up = {
        other
        for other in IMPORTS[name] - {""}
        if room(other) in FACE or (room(other) != room(name) and FLOOR[room(other)] >= FLOOR[room(name)])
    }
    assert up == set()


def test_no_circle():
    """Lazy imports count: a circle that a function hides is a circle."""
    try:
        TopologicalSorter(IMPORTS).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_a_circle_would_be_seen(tmp_path):
    (tmp_path / "a.py").write_text("def f():\n    from stau_rl.files import b\n")
    (tmp_path / "b.py").write_text("import stau_rl.files.a\n")
    known = {"files.a": tmp_path / "a.py", "files.b": tmp_path / "b.py"}
    graph = {name: imported(path, known) for name, path in known.items()}
    assert graph == {"files.a": {"files.b"}, "files.b": {"files.a"}}
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()
