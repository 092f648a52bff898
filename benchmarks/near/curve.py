"""Curve: detection by similarity -> a CSV file, and a picture as SVG, both beside theory."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from benchmarks.near.judged import chance

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 610, 40, 300
LEAST = 0.5
STEPS = 100
FONT, CENTERED = 'font-family="sans-serif" font-size="12"', 'text-anchor="middle"'
DASHED = 'fill="none" stroke-width="1.5" stroke-dasharray="5 3"'


@dataclass(frozen=True)
class Series:
    """A line of theory, and what was measured beside it: (similarity, share detected)."""

    name: str
    color: str
    bands: int
    rows: int
    measured: list[tuple[float, float]]


def write_csv(path: Path, heads: list[str], rows: list[list[float]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heads)
        writer.writerows([f"{value:.4f}" if isinstance(value, float) else value for value in row] for row in rows)


def write_picture(path: Path, series: list[Series], threshold: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = [line for each in series for line in _drawn(each)]
    path.write_text("\n".join([*_frame(threshold), *drawn, *_legend(series), "</svg>\n"]))


def _x(similarity: float) -> float:
    return LEFT + (similarity - LEAST) / (1 - LEAST) * (RIGHT - LEFT)


def _y(share: float) -> float:
    return BOTTOM - share * (BOTTOM - TOP)


def _frame(threshold: float) -> list[str]:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="20" fill="#222">share of planted pairs that were found</text>',
        f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 38}" {CENTERED} fill="#222">exact similarity of the pair</text>',
    ]
    for percent in range(0, 101, 20):
        y = _y(percent / 100)
        lines.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#444">{percent}%</text>')
    for tenth in range(5, 11):
        x = _x(tenth / 10)
        lines.append(f'<text x="{x:.1f}" y="{BOTTOM + 18}" {CENTERED} fill="#444">{tenth / 10:.1f}</text>')
    x = _x(threshold)
    lines.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{BOTTOM}" stroke="#888" stroke-dasharray="2 3"/>')
    lines.append(f'<text x="{x + 6:.1f}" y="{TOP + 60}" fill="#666">threshold</text>')
    return lines


def _drawn(series: Series) -> list[str]:
    similarities = [LEAST + (1 - LEAST) * step / STEPS for step in range(STEPS + 1)]
    line = " ".join(f"{_x(each):.1f},{_y(chance(each, series.bands, series.rows)):.1f}" for each in similarities)
    drawn = [f'<polyline points="{line}" stroke="{series.color}" {DASHED}/>']
    for similarity, share in series.measured:
        drawn.append(f'<circle cx="{_x(similarity):.1f}" cy="{_y(share):.1f}" r="4" fill="{series.color}"/>')
    return drawn


def _legend(series: list[Series]) -> list[str]:
    left, lines = int(_x(0.82)), []
    for number, each in enumerate(series):
        y = BOTTOM - 72 + 18 * number
        words = f"{each.name}, {each.bands} bands of {each.rows}"
        lines.append(f'<circle cx="{left}" cy="{y - 4}" r="4" fill="{each.color}"/>')
        lines.append(f'<text x="{left + 10}" y="{y}" fill="{each.color}">{words}</text>')
    lines.append(f'<text x="{left + 10}" y="{BOTTOM - 72 + 18 * len(series)}" fill="#666">dashed: theory</text>')
    return lines
