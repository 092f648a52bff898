"""Compiled kernels are kept on disk, for as long as the sources they were made from are the same."""

from __future__ import annotations

from pathlib import Path

from penstock.loader.compiled import jit


def _kept(folder: Path, stamp: str) -> Path:
    (folder / jit._STAMP).write_text(stamp)
    kernel = folder / "events.encode_rows-1.py311.nbi"
    kernel.write_bytes(b"machine code")
    return kernel


def test_kernels_of_these_very_sources_are_kept(tmp_path):
    kernel = _kept(tmp_path, jit._sources_stamp())
    jit._forget_older_kernels(str(tmp_path))
    assert kernel.exists()


def test_kernels_of_other_sources_are_forgotten_before_numba_looks(tmp_path):
    """It would not notice a change in another file, and run the old code."""
    kernel = _kept(tmp_path, "other sources")
    jit._forget_older_kernels(str(tmp_path))
    assert not kernel.exists()
    assert (tmp_path / jit._STAMP).read_text() == jit._sources_stamp()


def test_every_source_of_the_loader_counts(tmp_path, monkeypatch):
    (tmp_path / "compiled").mkdir()
    part = tmp_path / "compiled" / "columns.py"
    part.write_text("one")
    monkeypatch.setattr(jit, "_SOURCES", tmp_path)
    before = jit._sources_stamp()
    part.write_text("two")
    assert jit._sources_stamp() != before
