"""Captured scores from a file: NumPy's .npy and .npz, PyTorch's .pt, safetensors."""

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stau_rl.files.archives import DAMAGED

FLOATS = (np.float16, np.float32, np.float64)
TORCH_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
PT = (".pt", ".pth")


class ScoreFile:
    """Scores in an .npy file, of which no more is in memory than is asked for.

    Args:
        path: the file.

    Attributes:
        shape: layers, heads, queries, keys; 1 for an axis that the file's array lacks.

    Raises:
        ValueError: the file is missing, is no .npy file, or its array holds no scores.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        array = self._mapped()
        _require_numbers(path, "the array", array)
        if not 2 <= array.ndim <= 4 or 0 in array.shape:
            raise ValueError(
                f"{path}: scores must be [layers, heads, queries, keys], [heads, queries, keys] or [queries, keys] "
                f"without empty axes, got shape {list(array.shape)}"
            )
        self.ndim = array.ndim
        self.shape = (*(1,) * (4 - array.ndim), *array.shape)

    def __getitem__(self, place: tuple[int, int]) -> NDArray[np.floating]:
        """Scores of a layer and head, [queries, keys], mapped anew: what was read before leaves memory."""
        return self._mapped()[place[4 - self.ndim :]]

    def _mapped(self) -> NDArray[Any]:
        try:
            array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except OSError as error:
            raise ValueError(f"{self.path}: {error.strerror or error}") from None
        except (ValueError, EOFError):
            raise ValueError(f"{self.path} is no .npy file of numbers, as numpy.save writes") from None
        if not isinstance(array, np.ndarray):
            array.close()
            raise ValueError(f"{self.path} is an archive; name it .npz")
        return array


def open_scores(
    path: Path, key: str | None = None
) -> tuple[ScoreFile | Tensor | NDArray[np.floating], Tensor | NDArray[np.bool_] | None]:
    """Scores and mask from a file, by the ending of its name.

    Args:
        path: `.npy`, one array, which is read bit by bit; `.pt` or `.pth`, a tensor or a dictionary of tensors, read
            without running code that is in it; `.safetensors`, which needs the package of that name; any other is taken
            for an .npz file of `numpy.savez`.
        key: name of the array of scores where the file holds several; None for `scores`, or the only array besides
            `mask`.

    Returns:
        The scores, and the array `mask` or None.

    Raises:
        ValueError: the file is missing, is not what its name says, or has no such array; the message says which.
        ModuleNotFoundError: safetensors is not installed.
    """
    if path.suffix == ".npy":
        if key is not None:
            raise ValueError(f"{path} is a single array, so it has no array {key!r}")
        return ScoreFile(path), None
    if path.suffix in PT:
        return _chosen(path, _from_torch(path), key)
    if path.suffix == ".safetensors":
        return _chosen(path, _from_safetensors(path), key)
    return read_scores(path, key)


def _from_torch(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            whole = zipfile.is_zipfile(file)
        # Mapped into memory where the file's format allows it.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=whole)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, IndexError) as error:
        if "weights_only" in str(error).lower() or "Weights only" in str(error):
            raise ValueError(
                f"{path} holds more than tensors, which is not read; save torch.save({{'scores': scores}}, path)"
            ) from None
        raise ValueError(f"{path} is no file of tensors, as torch.save writes") from None


def _from_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except SafetensorError as error:
        raise ValueError(f"{path} is no .safetensors file: {error}") from None


def _chosen(path: Path, found: Any, key: str | None) -> tuple[Tensor, Tensor | None]:
    if isinstance(found, Tensor):
        if key is not None:
            raise ValueError(f"{path} is a single tensor, so it has no array {key!r}")
        found = {"scores": found}
    if not isinstance(found, Mapping) or not all(isinstance(one, Tensor) for one in found.values()):
        raise ValueError(f"{path} holds more than tensors by name; save torch.save({{'scores': scores}}, path)")
    scores, mask = found[_wanted(path, list(found), key)], found.get("mask")
    if scores.dtype not in TORCH_FLOATS:
        raise ValueError(f"{path}: scores must be float16, bfloat16, float32 or float64, got {scores.dtype}")
    return scores, mask


def read_scores(path: Path, key: str | None = None) -> tuple[NDArray[np.floating], NDArray[np.bool_] | None]:
    """Scores and mask from an .npz file.

    Args:
        path: a file of `numpy.savez`.
        key: name of the array of scores; None for `scores`, or the only array besides `mask`.

    Returns:
        The scores, and the array `mask` or None.

    Raises:
        ValueError: the file is missing, is no .npz file, or has no such array; the message says which.
    """
    try:
        # A file of our own, as numpy leaves its one open where it cannot read it.
        with path.open("rb") as handle:
            try:
                file = np.load(handle, allow_pickle=False)
            except ValueError:
                raise BadZipFile from None
            return _from_archive(path, key, file)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except (EOFError, BadZipFile):
        raise ValueError(f"{path} is no .npz file, as numpy.savez writes") from None


def _from_archive(path: Path, key: str | None, file: Any) -> tuple[NDArray[np.floating], NDArray[np.bool_] | None]:
    if isinstance(file, np.ndarray):
        raise ValueError(f"{path} is a single array; name it .npy, or save it with numpy.savez(path, scores=array)")
    wanted = _wanted(path, list(file.files), key)
    scores = _member(path, file, wanted)
    mask = _member(path, file, "mask") if "mask" in file.files else None
    _require_numbers(path, wanted, scores)
    if mask is not None and mask.dtype != np.bool_:
        raise ValueError(f"{path}: mask must be boolean (True: the entry counts), got {mask.dtype}")
    return scores, mask


def _wanted(path: Path, there: list[str], key: str | None) -> str:
    names = [name for name in there if name != "mask"]
    wanted = key if key is not None else "scores" if "scores" in names or len(names) != 1 else names[0]
    if wanted not in there:
        shown = ", ".join(there) or "none"
        raise ValueError(f"{path} has no array {wanted!r} (arrays: {shown}); name one with --key")
    return wanted


def _require_numbers(path: Path, name: str, array: NDArray[Any]) -> None:
    if array.dtype.newbyteorder("=") not in FLOATS:
        raise ValueError(f"{path}: {name} must be float16, float32 or float64, got {array.dtype}")


def _member(path: Path, file: Any, name: str) -> NDArray[Any]:
    try:
        array = file[name]
    except DAMAGED as error:
        raise ValueError(f"{path}: {name} cannot be read: {' '.join(str(error).split())}") from None
    # What is no array comes back as bytes.
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path}: {name} is no array, as numpy.savez writes")
    return array
