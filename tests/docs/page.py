"""Page: a Markdown file of docs/ -> its fenced blocks, each with the mark that stands above it. Next: running.py.

A block runs unless its language or its mark says otherwise:

- `bash`: a script. `<!-- exit 4 -->` above it says its exit code.
- `python`: code of one session per page. A block whose first line is `# name.py` is written to that file.
- `yaml`: written to the file that its first line names (`# job.yaml`). Without a name it is a part of a job file, or
  its stages, and must be valid.
- `json`: must parse. `text`: not run; with `<!-- output -->` above it, the step before must have printed it.
- `<!-- needs torch -->`: run where that library is installed (tests/adapters).
- `<!-- not run: the reason -->`: not run. test_pages.py lists all of them.
- `<!-- run python ... -->` and `<!-- run bash ... -->`: run, and not shown to the reader.
"""

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
LANGUAGES = frozenset({"bash", "json", "python", "text", "yaml"})
MARKS = re.compile(r"output|exit \d+|needs [\w ]+|not run: .+")
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n+)?```(?P<language>[^\n]*)\n(?P<code>.*?)^```$"
    r"|^<!-- run (?P<hidden>\w+)\n(?P<unseen>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fenced or hidden block. `line` is the line of the page on which its code begins."""

    page: Path
    line: int
    language: str
    code: str
    mark: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(DOCS)}, line {self.line}"

    @property
    def file_name(self) -> str | None:
        """The file that the first line names: `# features.py, beside the job file`."""
        named = re.match(r"# ([\w./-]+\.(?:py|yaml))\b", self.code)
        return named[1] if named and self.language in ("python", "yaml") else None

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.mark.split()[1:] if self.mark.startswith("needs ") else ())

    @property
    def reason_not_run(self) -> str | None:
        return self.mark.removeprefix("not run: ") if self.mark.startswith("not run: ") else None


def pages() -> list[Path]:
    """All pages but the decisions, which are dated records."""
    return sorted(path for path in DOCS.rglob("*.md") if "decisions" not in path.parts)


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [_block(page, text, found) for found in _BLOCK.finditer(text)]


def _block(page: Path, text: str, found: re.Match[str]) -> Block:
    inside = "unseen" if found["hidden"] else "code"
    line = text.count("\n", 0, found.start(inside)) + 1
    return Block(page, line, found["hidden"] or found["language"], found[inside], found["mark"] or "")
