"""Machine code: functions that Numba compiles, once for each machine, and a cache folder keeps.

Importing Numba takes half a second, and compiling some more. So what it makes is stored as an
object file, and the next process needs only LLVM's loader, which takes a few milliseconds.
"""

import ctypes
import hashlib
import json
import logging
import os
import pkgutil
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from elmokit.atomic import write_atomically
from elmokit.catalogue import cache_folder

logger = logging.getLogger(__name__)

_DISTRIBUTIONS = "numba", "llvmlite"
_NEEDED_FEATURES = "+avx2", "+fma", "+f16c"


def is_installed() -> bool:
    """Whether Numba is there to compile with."""
    return all(find_spec(name) is not None for name in _DISTRIBUTIONS)


def vector_lanes() -> int:
    """How many float32 numbers a vector of this CPU has; 0 where it is not supported."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return 0
    features = {*_target()[1].split(",")}
    if not features.issuperset(_NEEDED_FEATURES):
        return 0
    return 16 if features.issuperset(("+avx512f", "+avx512bw", "+avx512dq", "+avx512vl")) else 8


class MachineFunction:
    """A function of numbers and addresses that has no result; Python's lock is free meanwhile.

    Numba's functions have two arguments of their own before the others: where to put a result, and
    where to put an exception.
    """

    def __init__(self, engine: Any, symbol: str, argument_types: Sequence[Any]) -> None:
        self._engine = engine  # which owns the memory of the code
        pointers = ctypes.c_void_p, ctypes.c_void_p
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *pointers, *argument_types)
        self._call = prototype(engine.get_function_address(symbol))

    def __call__(self, *arguments: Any) -> None:
        result, exception = ctypes.c_void_p(), ctypes.c_void_p()
        status = self._call(ctypes.byref(result), ctypes.byref(exception), *arguments)
        assert status == 0


def load_function(
    name: str,
    argument_types: Sequence[Any],
    compile_function: Callable[[], Any],
    *,
    sources: Sequence[str],
) -> MachineFunction:
    """The function that `compile_function` makes with Numba, from the cache if it is there.

    `sources` are the modules on whose code it depends.
    """
    path = _cache_folder() / f"{name}-{_fingerprint(sources)}.o"
    stored = _read(path)
    if stored is None:
        logger.warning("compiling %s for this machine, once; this takes some seconds", name)
        stored = _compile(compile_function())
        with suppress(OSError):  # without a cache, the next process compiles again
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, *stored)
    symbol, code = stored
    return MachineFunction(_load(code), symbol, argument_types)


def _cache_folder() -> Path:
    """The folder of Numba's own caches, if NUMBA_CACHE_DIR names one, or a folder in elmokit's."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    return Path(named).expanduser() if named else cache_folder() / "kernels"


def _fingerprint(sources: Sequence[str]) -> str:
    """A name for all that the code depends on: sources, versions of packages, and the CPU."""
    digest = hashlib.sha256()
    for source in [__name__, *sources]:
        package, _, module = source.rpartition(".")
        digest.update(pkgutil.get_data(package, f"{module}.py") or b"")
    versions = [f"{name} {version(name)}" for name in _DISTRIBUTIONS]
    digest.update("\n".join([*versions, platform.system(), *_target()]).encode())
    return digest.hexdigest()[:20]


def _read(path: Path) -> tuple[str, bytes] | None:
    """The symbol and the code in a file; None if there is none, or it is damaged."""
    try:
        header, _, code = path.read_bytes().partition(b"\n")
        record = json.loads(header)
        complete: bool = record["sha256"] == hashlib.sha256(code).hexdigest()
        return (record["symbol"], code) if complete else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, symbol: str, code: bytes) -> None:
    record = {"symbol": symbol, "sha256": hashlib.sha256(code).hexdigest()}
    write_atomically(path, json.dumps(record).encode() + b"\n" + code)


def _compile(dispatcher: Any) -> tuple[str, bytes]:
    """The symbol and the machine code of a function that Numba has compiled."""
    from llvmlite import binding  # noqa: PLC0415  a library of 100 MB

    (signature,) = dispatcher.signatures
    symbol = dispatcher.overloads[signature].fndesc.llvm_func_name
    module = binding.parse_assembly(dispatcher.inspect_llvm(signature))
    return symbol, _target_machine().emit_object(module)


def _load(code: bytes) -> Any:
    """An engine that has the code in executable memory."""
    from llvmlite import binding  # noqa: PLC0415

    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _target_machine())
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def _target_machine() -> Any:
    from llvmlite import binding  # noqa: PLC0415

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    cpu, features = _target()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=3, jit=True)


@cache
def _target() -> tuple[str, str]:
    """The CPU's name and features, or those that Numba is told by its environment variables."""
    from llvmlite import binding  # noqa: PLC0415

    return (
        os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name(),
        os.environ.get("NUMBA_CPU_FEATURES") or binding.get_host_cpu_features().flatten(),
    )
