"""Running: the blocks of one page, in order, in the working directory.

`python -m tests.docs.running PAGE [LIBRARY...]`. Python blocks share one session.
The first block that fails ends the run, with the place of the block.
"""

import contextlib
import io
import json
import linecache
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from penstock.show.asking.job_schema import job_schema
from tests.docs.page import Block, blocks


class BlockFailed(Exception):
    """A block does not do what the page says."""


class Session:
    """What the blocks of a page share: the working directory, the names of Python, and what was printed last."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.printed = ""

    def take(self, block: Block) -> None:
        getattr(self, f"_take_{block.language}")(block)

    def _take_python(self, block: Block) -> None:
        if block.file_name:
            self._write(block)
            return
        source = "\n" * (block.line - 1) + block.code
        linecache.cache[str(block.page)] = (len(source), None, source.splitlines(True), str(block.page))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, str(block.page), "exec"), self.names)
        self.printed = printed.getvalue()

    def _take_bash(self, block: Block) -> None:
        command = ["bash", "-euo", "pipefail", "-c", block.code]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.printed = done.stdout + done.stderr
        expected = int(block.mark.removeprefix("exit ")) if block.mark.startswith("exit ") else 0
        if done.returncode != expected:
            raise BlockFailed(f"exit code {done.returncode}, expected {expected}\n{self.printed}")

    def _take_yaml(self, block: Block) -> None:
        if block.file_name:
            self._write(block)
            return
        part = yaml.safe_load(block.code)
        job = {"input": "data/*.parquet", "output": "prepared"}
        job |= part if isinstance(part, dict) else {"stages": part}
        jsonschema.validate(job, job_schema())

    def _take_json(self, block: Block) -> None:
        json.loads(block.code)

    def _take_text(self, block: Block) -> None:
        if block.mark == "output" and not re.search(pattern_of(block.code), spaced(self.printed)):
            raise BlockFailed(f"the step before printed something else:\n{self.printed}")

    def _write(self, block: Block) -> None:
        assert block.file_name
        path = Path(block.file_name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.code, encoding="utf-8")


def spaced(text: str) -> str:
    """The text with single spaces: how wide a column of a table is does not matter."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def pattern_of(expected: str) -> str:
    """The lines as they stand; `...` stands for the rest of a line, and alone on a line for any lines."""
    lines = spaced(expected).splitlines()
    return "\n".join(
        r"(?:.*\n)*?.*" if line == "..." else ".*".join(re.escape(part) for part in line.split("...")) for line in lines
    )


def main(page: Path, libraries: frozenset[str]) -> int:
    session = Session()
    is_skipped = False
    for block in blocks(page):
        if block.mark != "output":  # the output of a step that is left out is left out too
            is_skipped = bool(block.reason_not_run) or not block.needs <= libraries
        if is_skipped:
            continue
        try:
            session.take(block)
        except BaseException:
            print(f"{block.place}:\n{block.code}\n{traceback.format_exc()}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.path[0] = ""  # as in a script of the reader: modules beside the job are found
    code = main(Path(sys.argv[1]), frozenset(sys.argv[2:]))
    sys.exit(code)
