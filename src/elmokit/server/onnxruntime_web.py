"""The files of onnxruntime-web that a static page needs: from a folder, a cache, or npm."""

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from elmokit.atomic import new_directory
from elmokit.catalogue import cache_folder, is_offline
from elmokit.errors import DownloadError, FormatError, InputError

PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
_SHA512 = (
    "ab4cbe26baedba45d2cec05610c71c55fa97db92d19a8b171c5f8269126683ca"
    "590a5cdc57bb2f35ce2b298de32f4d956fb42644c0ecd528a0a91e025c07ca61"
)
_NPM_SECONDS = 600

# The module, what loads the WebAssembly, and that itself.
RUNTIME = "ort.wasm.min.mjs"
GLUE, WASM = "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"

_REMEDY = (
    f"install npm, or give a folder with the package: run npm install {PACKAGE}@{VERSION} anywhere "
    f"and give --onnxruntime node_modules/{PACKAGE}"
)


@dataclass(frozen=True)
class OnnxruntimeWeb:
    """A folder with the files of onnxruntime-web, and which version they are of."""

    folder: Path
    version: str


def find_onnxruntime_web(folder: Path | None = None, *, offline: bool = False) -> OnnxruntimeWeb:
    """The files in the folder of an installed npm package, or of a version that is cached.

    Without a folder, and where none is cached yet, npm downloads the package by its name; what it
    brings is checked. FormatError for another folder, DownloadError if npm cannot be used.
    """
    if folder is not None:
        return _read_package(folder)
    cached = cache_folder() / f"{PACKAGE}-{VERSION}"
    if not cached.is_dir():
        if is_offline(offline):
            raise InputError(
                f"{PACKAGE} {VERSION} is not in the cache, and the network must not be used; run "
                "once without --offline, or give its folder with --onnxruntime"
            )
        cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as temporary:
            _unpack(_download(Path(temporary)), cached)
    return OnnxruntimeWeb(cached, VERSION)


def _read_package(folder: Path) -> OnnxruntimeWeb:
    try:
        settings = json.loads((folder / "package.json").read_text("utf-8"))
        name, version = str(settings["name"]), str(settings["version"])
    except (OSError, ValueError, KeyError, TypeError):
        name, version = "", ""
    missing = [file for file in (RUNTIME, GLUE, WASM) if not (folder / "dist" / file).is_file()]
    if name != PACKAGE or missing:
        found = f"dist/{missing[0]} is missing" if name == PACKAGE else "package.json is not its"
        raise FormatError(
            f"{folder}: expected the folder of the npm package {PACKAGE}, but {found}; run npm "
            f"install {PACKAGE}@{VERSION} and give node_modules/{PACKAGE}"
        )
    return OnnxruntimeWeb(folder / "dist", version)


def _download(folder: Path) -> Path:
    """The packed package, which npm downloads."""
    npm = shutil.which("npm")
    if npm is None:
        raise DownloadError(f"{PACKAGE} is needed once, and npm is not installed; {_REMEDY}")
    command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--silent", "--ignore-scripts"]
    try:
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_NPM_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise DownloadError(
            f"{PACKAGE}: npm did not download it within {_NPM_SECONDS} seconds; try again, or "
            "give its folder with --onnxruntime"
        ) from None
    packed = sorted(folder.glob("*.tgz"))
    if ended.returncode or not packed:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        reason = lines[-1] if lines else f"it ended with {ended.returncode}"
        raise DownloadError(f"{PACKAGE}: npm cannot download it ({reason}); {_REMEDY}")
    return packed[0]


def _unpack(packed: Path, target: Path) -> None:
    """The files that are needed, once the package is known to be the published one."""
    digest = hashlib.sha512(packed.read_bytes()).hexdigest()
    if digest != _SHA512:
        raise DownloadError(
            f"{PACKAGE} {VERSION}: npm brought other bytes than were published (SHA-512 "
            f"{digest[:12]}…, expected {_SHA512[:12]}…); check npm's registry setting"
        )
    with new_directory(target) as folder, tarfile.open(packed) as archive:
        for name in (RUNTIME, GLUE, WASM):
            member = archive.extractfile(f"package/dist/{name}")
            assert member is not None  # it is the published package
            (folder / name).write_bytes(member.read())
