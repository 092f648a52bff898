"""Detection picture: bands and rows of near_dedup -> docs/pictures/near-duplicates-detection.svg.

`python tools/detection_picture.py` writes it. A pair of similarity s is found with probability 1 - (1 - s^rows)^bands.
"""

from collections.abc import Iterator
from pathlib import Path

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "near-duplicates-detection.svg"
SETTINGS = ((50, 4), (20, 6), (14, 8))  # bands and rows; the second is the default
_LEFT, _TOP, _WIDTH, _HEIGHT = 70, 40, 480, 260
_LABELS = {(50, 4): (0.36, 0.9), (20, 6): (0.58, 0.66), (14, 8): (0.82, 0.52)}  # where each curve has its name
_STYLE = """\
  <style>
    text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #57606a; }
    .panel { fill: #ffffff; } .grid { stroke: #d0d7de; } .threshold { stroke: #8c959f; stroke-dasharray: 5 4; }
    polyline { fill: none; stroke-width: 2; } polyline.b { stroke-width: 3; }
    polyline.a { stroke: #9a6700; } polyline.b { stroke: #2f6fab; } polyline.c { stroke: #b3261e; }
    text.a { fill: #9a6700; } text.b { fill: #2f6fab; font-weight: 600; } text.c { fill: #b3261e; }
    @media (prefers-color-scheme: dark) {
      text { fill: #9198a1; } .panel { fill: #0d1117; } .grid { stroke: #30363d; } .threshold { stroke: #6e7681; }
      polyline.a { stroke: #e3b341; } polyline.b { stroke: #6cb0f0; } polyline.c { stroke: #ff8a80; }
      text.a { fill: #e3b341; } text.b { fill: #6cb0f0; } text.c { fill: #ff8a80; }
    }
  </style>"""


def detection(similarity: float, bands: int, rows: int) -> float:
    """Probability that a pair of this similarity has an equal band, and is compared."""
    return float(1 - (1 - similarity**rows) ** bands)


def picture() -> str:
    return "\n".join([*_lines(), "</svg>", ""])


def _lines() -> Iterator[str]:
    width, height = _LEFT + _WIDTH + 30, _TOP + _HEIGHT + 60
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    yield "  <title>Probability that near_dedup finds a pair, by the similarity of the pair</title>"
    yield _STYLE
    yield f'  <rect class="panel" width="{width}" height="{height}"/>'
    for fifth in range(6):
        x, y = _point(fifth / 5, fifth / 5)
        yield f'  <line class="grid" x1="{_LEFT}" y1="{y}" x2="{_LEFT + _WIDTH}" y2="{y}"/>'
        yield f'  <text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{20 * fifth}%</text>'
        yield f'  <text x="{x}" y="{_TOP + _HEIGHT + 20}" text-anchor="middle">{fifth / 5:g}</text>'
    x, y = _point(0.8, 1)
    yield f'  <line class="threshold" x1="{x}" y1="{y}" x2="{x}" y2="{_TOP + _HEIGHT}"/>'
    yield f'  <text x="{x}" y="{_TOP - 8}" text-anchor="middle">threshold 0.8</text>'
    for name, (bands, rows) in zip("abc", SETTINGS, strict=True):
        points = (_point(step / 100, detection(step / 100, bands, rows)) for step in range(101))
        yield f'  <polyline class="{name}" points="{" ".join(f"{x},{y}" for x, y in points)}"/>'
        x, y = _point(*_LABELS[bands, rows])
        anchor = "start" if rows == max(each for _, each in SETTINGS) else "end"
        yield f'  <text class="{name}" x="{x}" y="{y}" text-anchor="{anchor}">{bands} bands of {rows}</text>'
    yield f'  <text x="{_LEFT}" y="{_TOP - 22}">found</text>'
    yield f'  <text x="{_LEFT + _WIDTH}" y="{_TOP + _HEIGHT + 44}" text-anchor="end">similarity of the pair</text>'


def _point(similarity: float, probability: float) -> tuple[float, float]:
    return round(_LEFT + _WIDTH * similarity, 1), round(_TOP + _HEIGHT * (1 - probability), 1)


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
