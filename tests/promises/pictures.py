"""Pictures: reports as the docs show them, in light and dark.

`python -m tests.promises.pictures prepared-report.html docs/pictures/report` writes report-light.png and -dark.png.
Those of the docs are of a job of some 20 seconds: `filter`, `group` and `split` of 20 million events.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.promises.browsing import browsing

WIDTH, HEIGHT = 1000, 1180


def take_pictures(report: Path, stem: Path) -> None:
    with tempfile.TemporaryDirectory() as profile, browsing(Path(profile)) as browser:
        for scheme in ("light", "dark"):
            browser.show(report.absolute().as_uri(), WIDTH, HEIGHT, scheme)
            stem.with_name(f"{stem.name}-{scheme}.png").write_bytes(browser.picture(WIDTH, HEIGHT))


if __name__ == "__main__":
    take_pictures(Path(sys.argv[1]), Path(sys.argv[2]))
