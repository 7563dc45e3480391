import subprocess
import sys

import pytest

pytest.importorskip("numba")

# Adds two numbers, to where an address points.
PROGRAM = """
import ctypes, sys, warnings
warnings.simplefilter("error")
from elmokit import compiled_code

def compile_function():
    from numba import njit, types

    def add(one, other, target):
        target[0] = one + other

    integers = types.int64, types.int64, types.CPointer(types.int64)
    return njit(types.void(*integers), no_cpython_wrapper=True, no_cfunc_wrapper=True)(add)

integers = ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
add = compiled_code.load_function("add", integers, compile_function, sources=[])
target = ctypes.c_int64()
add(40, 2, ctypes.byref(target))
print(target.value, "numba" in sys.modules)
"""
LINE = "compiling add for this machine, once; this takes some seconds\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "cache" / "numba"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    return folder


def start():
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process):
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output, errors


def test_a_function_is_compiled_once(folder):
    assert result(start()) == ("42 True\n", LINE)
    assert result(start()) == ("42 False\n", "")
    assert len([*folder.iterdir()]) == 1


@pytest.mark.full
def test_two_processes_may_compile_at_once(folder):
    processes = [start(), start()]
    for process in processes:
        assert result(process)[0].startswith("42 ")
    assert len([*folder.iterdir()]) == 1
    assert result(start()) == ("42 False\n", "")


@pytest.mark.full
def test_another_cpu_has_code_of_its_own(folder, monkeypatch):
    result(start())
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64")
    assert result(start()) == ("42 True\n", LINE)
    assert len([*folder.iterdir()]) == 2


@pytest.mark.full
def test_a_damaged_file_is_compiled_again(folder):
    result(start())
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for damaged in (whole[:-9], whole[:20], b"", b"[]\n" + whole):
        file.write_bytes(damaged)
        assert result(start()) == ("42 True\n", LINE)
        assert file.read_bytes() == whole


def test_without_a_writable_cache_each_process_compiles(folder):
    folder.parent.mkdir()
    folder.write_text("not a folder")
    assert result(start()) == ("42 True\n", LINE)


def test_importing_elmokit_imports_no_compiler():
    program = (
        "import sys, elmokit.embedder, elmokit.cli; "
        "sys.exit(not {'numba', 'llvmlite'}.isdisjoint(sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
