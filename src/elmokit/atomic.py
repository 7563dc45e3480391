"""Resumable directories, atomic writes, directory locks and checkpoints."""

import json
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, BinaryIO, TypeVar

from elmokit.errors import FormatError, InputError, OutputError

try:
    import fcntl
except ImportError:  # not a POSIX system: there, two processes at once are not noticed
    fcntl = None  # type: ignore[assignment]

Record = TypeVar("Record")

# The longest value of a manifest that an error message shows.
_LONGEST_SHOWN = 80


class ResumableDirectory:
    """A directory that collects the parts of long work, so that a killed process can be resumed.

    The manifest is a JSON file that says what the work was started with; a directory whose
    manifest differs, or that holds other files, is refused. While the directory is open, no other
    process can open it. A part is complete on disk or not there. To write a large file::

    Example:
        manifest = {"model": fingerprint, "layers": "all"}
        with ResumableDirectory(Path("out.hdf5.partial"), manifest) as work:
            for number in range(len(work.parts()), total):
                work.write_part(number, lambda file: np.save(file, part(number)))
            merge(work.parts(), work.path / "complete")
            work.publish("complete", Path("out.hdf5"))

    Where the results stay in the directory itself, `clear` takes the place of `publish`. Work that
    stores its manifest elsewhere, in a checkpoint, gives None as `manifest_name` and calls
    `check_manifest`; other files in the directory are then left alone.

    `label` is what error messages call the work, and `remedy` what to do about another manifest.
    `part_name` is the file name of a part, to be formatted with its number (or another key); it may
    begin with a subdirectory.
    """

    def __init__(
        self,
        path: Path,
        manifest: Mapping[str, Any],
        *,
        label: str | None = None,
        manifest_name: str | None = "manifest.json",
        part_name: str = "part-{:012d}.npz",
        remedy: str = "finish it as it was started, or remove it to start again",
    ) -> None:
        self.path = path
        self._label = str(path) if label is None else label
        self._manifest: dict[str, Any] = json.loads(json.dumps(dict(manifest)))
        self._manifest_path = None if manifest_name is None else path / manifest_name
        self._part_name, self._remedy = part_name, remedy
        self._lock: DirectoryLock | None = None

    def __enter__(self) -> "ResumableDirectory":
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"{self.path}: is a file, expected a directory; name another one")
        with self.explaining_errors():
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(
                self.path, f"{self._label}: another process is writing it; wait until it has ended"
            )
            try:
                self._start_or_resume()
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes open the directory."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def parts(self) -> list[Path]:
        """The parts that are on disk, in the order of their names."""
        return sorted(self.path.glob(re.sub(r"{.*?}", "*", self._part_name)))

    def part_path(self, key: int | str) -> Path:
        """The file of a part, whether or not it exists yet."""
        return self.path / self._part_name.format(key)

    def write_part(self, key: int | str, write: Callable[[BinaryIO], object]) -> None:
        """Write a part, or replace it; it is safe on disk when this returns."""
        path = self.part_path(key)
        with self.explaining_errors():
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, write)

    def replace_directory(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a directory inside, which takes the place of the last one when it is complete.

        `write` is called with the path of a directory that it has to make.
        """
        current = self.path / name
        new, old = _temporary(current), current.with_name(f".{name}.old")
        with self.explaining_errors():
            for path in (new, old):
                _remove(path)
            write(new)
            if current.exists():
                current.rename(old)
            rename_atomically(new, current)
            _remove(old)

    def publish(self, name: str, target: Path, *names: str) -> None:
        """Rename a finished file or directory inside to `target`, then `clear(*names)`."""
        with self.explaining_errors():
            rename_atomically(self.path / name, target)
        self.clear(*names)

    def clear(self, *names: str) -> None:
        """Remove parts, files or directories of these names, and the manifest last; then unlock.

        The directory itself goes too, unless something else is in it.
        """
        part_directories = {part.parent for part in self.parts()} - {self.path}
        for path in [*self.parts(), *self._unfinished(), *(self.path / name for name in names)]:
            _remove(path)
        for path in part_directories:
            with suppress(OSError):  # something else is in it
                path.rmdir()
        if self._manifest_path is not None:
            self._manifest_path.unlink(missing_ok=True)
        self.close()
        with suppress(OSError):
            self.path.rmdir()

    @contextmanager
    def explaining_errors(self) -> Iterator[None]:
        """Turn an OSError, or a RuntimeError of h5py or torch, into an OutputError."""
        try:
            yield
        except OutputError:
            raise
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OutputError(
                f"{self._label}: cannot be written ({reason}); what is done is safe: fix that, "
                "and run the same command again"
            ) from None

    def _start_or_resume(self) -> None:
        for path in self._unfinished():
            _remove(path)
        for old in self.path.glob(".*.old"):  # killed between the renames of `replace_directory`
            current = old.with_name(old.name[1 : -len(".old")])
            if old.is_dir() and not current.exists():
                rename_atomically(old, current)
        if self._manifest_path is None:
            return
        if self._manifest_path.exists():
            self.check_manifest(_read_manifest(self._manifest_path))
            return
        if other := next((path.name for path in sorted(self.path.iterdir())), None):
            raise OutputError(
                f"{self.path}: holds {other}, but no {self._manifest_path.name} of work to "
                "resume; expected a new or an empty directory, name another one"
            )
        write_atomically(self._manifest_path, json.dumps(self._manifest, indent=1))

    def check_manifest(self, stored: Mapping[str, Any]) -> None:
        """Raise InputError if the work was started with another manifest than this one."""
        check_manifest(stored, self._manifest, name=str(self.path), remedy=self._remedy)

    def _unfinished(self) -> set[Path]:
        """What a killed process had not finished writing."""
        directories = self.path, self.part_path(0).parent
        return {path for directory in directories for path in directory.glob(".*.unfinished")}


def check_manifest(
    stored: Mapping[str, Any], manifest: Mapping[str, Any], *, name: str, remedy: str
) -> None:
    """Raise InputError, which says what differs, if `stored` lacks a value of `manifest`.

    In the message `name` stands for the work.
    """
    stored, manifest = (json.loads(json.dumps(dict(values))) for values in (stored, manifest))
    differences = []
    for key, value in manifest.items():
        if stored.get(key) != value:
            values = f"{key} {_shown(stored.get(key))}, now {_shown(value)}"
            other = "other" if re.search("[^u]s$", key) else "another"  # corpus is no plural
            differences.append(values if len(values) <= _LONGEST_SHOWN else f"{other} {key}")
    if differences:
        raise InputError(f"{name}: was started with {', and '.join(differences)}; {remedy}")


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError):
        stored = None
    if not isinstance(stored, dict):
        raise FormatError(f"{path}: is damaged, expected JSON; remove {path.parent} to start again")
    return stored


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes | str | Callable[[BinaryIO], object]) -> None:
    """Write a file under a temporary name, and rename it when it is safe on disk.

    The content is bytes, text in UTF-8, or what a function writes to the open file.
    """
    temporary = _temporary(path)
    try:
        with open(temporary, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
        rename_atomically(temporary, path)
    except OSError as error:
        if error.filename == str(temporary):
            error.filename = str(path)  # the name that the caller gave
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A directory to fill, which is renamed to `path` when the block ends without an error."""
    temporary = _temporary(path)
    try:
        temporary.mkdir()
        yield temporary
        rename_atomically(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def rename_atomically(temporary: Path, path: Path) -> None:
    """Rename a finished file or directory so that a loss of power leaves it under either name.

    A file replaces one that has the name already; a directory needs a name that is free.
    """
    if temporary.is_dir():
        for inner in temporary.rglob("*"):
            _sync(inner)
    _sync(temporary)
    temporary.replace(path)
    _sync(path.parent)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.unfinished")


def _sync(path: Path) -> None:
    if os.name != "posix" and path.is_dir():  # Windows cannot open a directory
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class BusyDirectoryError(InputError):
    """Another process has the lock of a directory."""


class DirectoryLock:
    """Exclusive use of a directory until `release`, or until the process ends.

    BusyDirectoryError with the message `busy` if another process, or this one, holds the lock.
    """

    def __init__(self, directory: Path, busy: str) -> None:
        self._descriptor: int | None = None
        if fcntl is None:
            return
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise BusyDirectoryError(busy) from None
        self._descriptor = descriptor

    def __enter__(self) -> "DirectoryLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let others lock the directory."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


# What torch raises for bytes that are not a checkpoint, or a damaged one.
_DAMAGED = (
    RuntimeError, TypeError, EOFError, ValueError, LookupError, AttributeError, struct.error,
    UnpicklingError,
)  # fmt: skip


def write_checkpoint(values: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint over the last one; the last one stays if that fails."""
    import torch  # noqa: PLC0415  (slow, and not needed by workers that prepare text)

    try:
        write_atomically(path, lambda file: torch.save(dict(values), file))
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError where the disk is full
        raise OutputError(
            f"{path}: cannot be written ({error}); the last checkpoint is unharmed: free some "
            "disk space and run the same command again"
        ) from None


def read_checkpoint(path: Path, kind: Callable[..., Record]) -> Record | None:
    """The record that `kind` makes of a checkpoint's values; None if the file does not exist."""
    if not path.exists():
        return None
    import torch  # noqa: PLC0415

    try:
        return kind(**torch.load(path, weights_only=True, map_location="cpu"))
    except _DAMAGED:
        raise FormatError(
            f"{path}: not a checkpoint of elmokit for such a run, or a damaged one; name another "
            "folder, or remove it to start again"
        ) from None
