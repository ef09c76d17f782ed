"""Rules of the house that no other test would notice being broken."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("kernels", "envs", "agents")
SOURCES = sorted(
    path for folder in ("stau_rl", *ROOMS) for path in (ROOT / folder).rglob("*.py") if not path.is_symlink()
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))

# A comparison by one of these is an answer, not an assertion: alone on a line it checks nothing.
ANSWERS = {"allclose", "isclose", "array_equal", "array_equiv", "equal", "all", "any", "isfinite", "gradcheck"}


def unused_comparisons(source: str) -> list[int]:
    """Lines whose whole statement is a comparison, a boolean or a call that answers one, with nobody using it."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Expr):
            continue
        value = node.value
        while isinstance(value, ast.UnaryOp):
            value = value.operand
        name = None
        if isinstance(value, ast.Call):
            callee = value.func
            name = callee.attr if isinstance(callee, ast.Attribute) else getattr(callee, "id", None)
        if isinstance(value, (ast.Compare, ast.BoolOp)) or name in ANSWERS | {"bool"}:
            lines.append(node.lineno)
    return lines


@pytest.mark.parametrize(
    "statement",
    [
        "np.allclose(a, b)",
        "torch.allclose(a, b, rtol=1e-3)",
        "allclose(a, b)",
        "np.array_equal(a, b)",
        "torch.equal(a, b)",
        "np.isclose(a, b)",
        "np.isclose(a, b).all()",
        "(a == b).all()",
        "bool((a == b).all())",
        "a == b",
        "not torch.equal(a, b)",
        "a < b and b < c",
        "def f():\n    torch.equal(a, b)",
    ],
)
def test_a_bare_comparison_is_seen(statement):
    assert unused_comparisons(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "assert np.allclose(a, b)",
        "same = torch.equal(a, b)",
        "return_(a == b)",
        "np.testing.assert_allclose(a, b)",
        "f(a)",
    ],
)
def test_a_used_comparison_is_not_blamed(statement):
    assert not unused_comparisons(statement)


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_no_test_compares_without_asserting(path):
    assert unused_comparisons(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", SOURCES + TESTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_are_absolute(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    relative = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    assert relative == []


def real_folders(folder: Path) -> list[Path]:
    """The folder and those below it that hold an `__init__.py`, without following links."""
    found = [folder] if (folder / "__init__.py").is_file() else []
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.is_symlink():
            found += real_folders(child)
    return found


def in_tree() -> dict[str, str]:
    """Import name -> folder, for every package in the tree. Without symlink support a link is a file, and no folder."""
    packages = {}
    for folder in real_folders(ROOT / "stau_rl"):
        packages[".".join(folder.relative_to(ROOT).parts)] = folder.relative_to(ROOT).as_posix()
    for room in ROOMS:
        for folder in real_folders(ROOT / room):
            packages[".".join(("stau_rl", *folder.relative_to(ROOT).parts))] = folder.relative_to(ROOT).as_posix()
    return packages


@pytest.fixture(scope="module")
def setuptools_table() -> dict:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["tool"]["setuptools"]


# Works in a checkout alone, so it is in no wheel.
CHECKOUT_ONLY = {"stau_rl.pages"}


def test_packages_are_those_in_the_tree(setuptools_table):
    assert set(setuptools_table["packages"]) == set(in_tree()) - CHECKOUT_ONLY
    assert len(set(setuptools_table["packages"])) == len(setuptools_table["packages"])


def test_package_dir_maps_every_package_to_its_folder(setuptools_table):
    shipped = {name: folder for name, folder in in_tree().items() if name not in CHECKOUT_ONLY}
    assert setuptools_table["package-dir"] == shipped


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_are_linked_into_the_package(room):
    link = ROOT / "stau_rl" / room
    if link.is_file() and link.read_text(encoding="utf-8") == f"../{room}":
        pytest.skip("this checkout has no symlinks: git wrote the link as a file with its target in it")
    assert link.is_symlink()
    assert link.readlink().as_posix() == f"../{room}"
    assert (link / "__init__.py").is_file()


def test_no_package_of_tests():
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_importing_the_package_is_light():
    """In a fresh interpreter, and the lazy names still load afterwards."""
    code = (
        "import sys, stau_rl\n"
        "heavy = sorted({'torch', 'numpy', 'scipy', 'matplotlib', 'pandas', 'numba', 'gymnasium'} & set(sys.modules))\n"
        "print(stau_rl.__file__, heavy, sep='\\n')\n"
        "stau_rl.tau_star, stau_rl.parse_head\n"
        "print('torch' in sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    where, heavy, loaded = run.stdout.splitlines()
    assert Path(where) == ROOT / "stau_rl" / "__init__.py"
    assert heavy == "[]"
    assert loaded == "True"


WHEEL = [path for path in SOURCES if "pages" not in path.parts]


@pytest.mark.parametrize("path", WHEEL, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_of_the_wheel_points_into_a_checkout(path):
    """Rows, notebooks and docs are not installed; only `pages` may know where they lie."""
    assert checkout_paths(path.read_text(encoding="utf-8")) == []


def checkout_paths(source: str) -> list[str]:
    """Names of folders of a checkout that stand in a module as whole strings."""
    folders = {"notebooks", "docs", "results", "tests"}
    found = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return sorted(folders.intersection(value for value in found if isinstance(value, str)))


def test_a_path_into_a_checkout_is_seen():
    assert checkout_paths('Path(__file__).parents[2] / "notebooks" / "results"') == ["notebooks", "results"]
