"""Compiled kernels are kept in the cache of the user, for as long as what they were made from is the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

from penstock.loader.compiled import jit, kept, warming

# A small kernel of its own: how often it was compiled, and what the folder holds.
PROGRAM = """
import logging, os, sys, warnings
logging.basicConfig(format="said: %(message)s", stream=sys.stdout)
warnings.simplefilter("always")
logging.captureWarnings(True)
from penstock.loader.compiled import address
import numpy as np
none = np.uint64(0)
address.parse_texts(none, none, 0, none)
print("compiled", sum(address.parse_texts.stats.cache_misses.values()))
"""


def run(cache: Path, before: str = "", **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    given = {**inherited, "PENSTOCK_CACHE_DIR": str(cache), **environment}
    program = [sys.executable, "-c", f"{before}\n{PROGRAM}"]
    return subprocess.run(program, env=given, check=True, capture_output=True, text=True).stdout


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.code"))


def test_a_kernel_is_compiled_once_and_nothing_is_said_when_it_is_kept(tmp_path):
    first, second = run(tmp_path), run(tmp_path)
    assert "compiled 1" in first
    assert f"said: compiling kernels, kept in {tmp_path}" in first
    assert second == "compiled 0\n"


def test_a_kept_kernel_is_read_without_what_only_compiling_needs(tmp_path):
    behind = "import atexit, sys; atexit.register(lambda: print('prepared', 'numba.np.linalg' in sys.modules))"
    assert "prepared True" in run(tmp_path, behind)
    assert run(tmp_path, behind) == "compiled 0\nprepared False\n"


@pytest.mark.proof
def test_a_file_that_is_not_what_was_written_is_compiled_again(tmp_path):
    run(tmp_path)
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes()[:-100])
    assert "compiled 1" in run(tmp_path)
    assert run(tmp_path) == "compiled 0\n"


@pytest.mark.proof
def test_processes_that_start_at_once_leave_one_whole_file(tmp_path):
    environment = {**os.environ, "PENSTOCK_CACHE_DIR": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE) for _ in range(3)
    ]
    assert [process.wait() for process in started if process.communicate()] == [0, 0, 0]
    assert len(files(tmp_path)) == len(list(tmp_path.glob("kernels/*/*"))) == 1
    assert run(tmp_path) == "compiled 0\n"


def test_the_folder_that_numba_was_given_is_used(tmp_path):
    run(tmp_path / "cache", NUMBA_CACHE_DIR=str(tmp_path / "numba"))
    assert files(tmp_path / "numba")
    assert not (tmp_path / "cache").exists()


@pytest.mark.proof
def test_a_cache_that_others_may_write_to_is_not_read(tmp_path):
    run(tmp_path)
    tmp_path.chmod(0o777)
    said = run(tmp_path)
    assert "compiled 1" in said
    assert "kernels cannot be kept" in said
    assert "mode is 0777" in said


@pytest.mark.proof
def test_a_process_that_can_write_nothing_reads_what_is_kept(tmp_path):
    no_files = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    assert "compiled again in the next process" in run(tmp_path, no_files)
    run(tmp_path)
    assert run(tmp_path, no_files) == "compiled 0\n"


def test_a_kernel_that_cannot_be_written_is_still_called(tmp_path, recwarn):
    kept._write(tmp_path / "missing" / "a.code", b"machine code")
    assert "compiled again in the next process" in str(recwarn.pop(RuntimeWarning).message)


def test_every_source_of_the_loader_counts(tmp_path, monkeypatch):
    part = tmp_path / "columns.py"
    part.write_text("one")
    monkeypatch.setattr(kept, "_SOURCES", tmp_path)
    before = kept._stamp()
    part.write_text("two")
    assert kept._stamp() != before


def test_the_processor_and_the_compiler_count(monkeypatch):
    stamps = {kept._stamp()}
    monkeypatch.setattr(kept.numba.config, "CPU_NAME", "another")
    stamps.add(kept._stamp())
    monkeypatch.setattr(kept.numba, "__version__", "another")
    stamps.add(kept._stamp())
    assert len(stamps) == 3


def test_a_part_of_a_kernel_called_from_python_is_the_plain_function():
    part: Any = jit.jit_part(lambda x: x + 1)
    assert part(2) == 3


def test_a_part_is_compiled_once_for_all_constants():
    part = jit.jit_part(lambda x: x + 1)
    kernel: Any = numba.njit(lambda: part(1) + part(2))
    assert kernel() == 5
    assert len(part.signatures) == 1  # type: ignore[attr-defined]


def test_machine_code_is_made_of_kernels_alone():
    part = jit.jit_part(lambda x: x + 1)
    kernel: Any = numba.njit(lambda x: part(part(x)))
    assert kernel(3) == 5
    (made,) = part.overloads.values()  # type: ignore[attr-defined]
    engine = made.target_context.codegen()._engine
    assert not engine.is_symbol_defined(made.fndesc.llvm_func_name)
    (own,) = kernel.overloads.values()
    assert engine.is_symbol_defined(own.fndesc.llvm_func_name)


def test_a_part_with_objects_of_python_is_an_error_and_not_a_crash():
    part = jit.jit_part(lambda x: print(x))
    kernel: Any = numba.njit(lambda x: part(x))
    with pytest.raises(RuntimeError, match="missing Environment"):
        kernel(3.5)


def test_every_kernel_is_warmed_up():
    warmed = [kernel for kernel, _ in warming._calls(0)]
    assert sorted(map(repr, warmed)) == sorted(map(repr, jit.KERNELS))
