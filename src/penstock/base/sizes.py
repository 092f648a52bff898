"""Sizes: turn `"16GB"` (10^9), `"16GiB"` (2^30) and `"50%"` into bytes, `"10Gbit"` into bytes per second, and back."""

import re
from decimal import Decimal

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")
_RATE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kKMGT]?)(bit|B)(?:/s)?\s*")  # not `Gb`: some mean bits by it
_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")


def parse_size(text: str | int, whole: int | None = None) -> int:
    """Bytes of `text`; raises ValueError with the accepted forms. `whole` is what a percentage is of."""
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise ValueError(f"{text!r} is not a size: write 16GB, 512MiB or a number of bytes")
    if isinstance(text, int):
        return _positive(text, str(text))
    if match := _PERCENT.fullmatch(text):
        return _positive(int(Decimal(match[1]) * _percent_base(text, match[1], whole) / 100), text)
    match = _SIZE.fullmatch(text)
    if not match or match[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is not a size: write 16GB (10^9), 16GiB (2^30), 512MB or 50%")
    return _positive(int(Decimal(match[1]) * _UNITS[match[2].lower()]), text)


def _percent_base(text: str, number: str, whole: int | None) -> int:
    if whole is None:
        raise ValueError(f"{text!r}: a percentage is not allowed here, write a size such as 512MB")
    if Decimal(number) > 100:
        raise ValueError(f"{text!r} is more than 100%")
    return whole


def _positive(size: int, text: str) -> int:
    if size <= 0:
        raise ValueError(f"{text!r} is not a size: it must be more than zero")
    return size


def parse_rate(text: str) -> int:
    """Bytes per second of `10Gbit`, `10Gbit/s` or `1.25GB/s`; raises ValueError with the accepted forms."""
    match = _RATE.fullmatch(text)
    rate = int(Decimal(match[1]) * _UNITS[f"{match[2].lower()}b"] / (8 if match[3] == "bit" else 1)) if match else 0
    if rate <= 0:
        raise ValueError(f"{text!r} is not a throughput: write 10Gbit, 100Mbit or 1.25GB, all per second")
    return rate


def format_rate(bytes_per_second: float) -> str:
    """`10 Gbit/s`: networks are sold in bits."""
    return format_size(8 * bytes_per_second).removesuffix("B") + "bit/s"


def format_size(size: float) -> str:
    """`1.5 GB`: three digits at most, powers of ten, the unit people see on disks."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if abs(size) >= 0.9995 * factor:
            value = size / factor
            return f"{value:.0f} {unit}" if value >= 99.5 else f"{value:.3g} {unit}"
    return f"{size:.0f} B"


def format_count(count: float) -> str:
    return f"{count:,.0f}"


def counted(count: int, noun: str) -> str:
    """`1 file`, `2,000 files`, `3 more files`."""
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"


def format_seconds(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
