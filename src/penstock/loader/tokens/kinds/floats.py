"""Floats: numbers -> the bytes of an IEEE number, or the 16 bits of float11."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.loader.tokens import counts
from penstock.loader.tokens.kinds.kind import MISSING, VALUE, Block, Kind, is_plain_number
from penstock.shards.schema import Type


@dataclass(frozen=True)
class Real(Kind):
    """A kind of numbers with two markers: value, and missing."""

    takes = "integers and floats"
    is_number = True
    markers = 2

    def typical(self, address_bytes: int) -> int:  # noqa: ARG002
        return 1 + self.size(VALUE, b"")

    def fits(self, column: Type, of_events: bool) -> bool:  # noqa: ARG002
        return is_plain_number(column)

    def size(self, marker: int, payload: bytes) -> int:  # noqa: ARG002
        return self.width if marker == VALUE else 0


@dataclass(frozen=True)
class Float11(Real):
    """Five bits of exponent, eleven of mantissa: a tenth of a percent, or one unit below 2048."""

    name = "float11"
    usage = "'float11', without an option"
    absent = "failed"

    def fits(self, column: Type, of_events: bool) -> bool:  # noqa: ARG002
        return column.is_number

    def encode(self, value: Any, version: int | None = None) -> Block:  # noqa: ARG002
        if value is None or value != value or value < 0:
            failed = counts.NULLS if value is None else counts.NEGATIVE if value < 0 else counts.NOT_A_NUMBER
            return Block(MISSING, noted=failed)
        us, exponent = 1000.0 * float(value), 0
        noted = counts.TOO_SMALL if us < 1 else None
        us = max(1.0, us)
        while us >= 2048 and exponent < 31:
            us, exponent = us / 2, exponent + 1
        noted = counts.TOO_LARGE if us >= 2048 else noted
        return Block(VALUE, (exponent << 11 | int(min(us, 2047.0))).to_bytes(2, "big"), noted)

    def size(self, marker: int, payload: bytes) -> int:  # noqa: ARG002
        return 2 if marker == VALUE else 0

    def decode(self, marker: int, payload: bytes) -> float | None:
        if marker == MISSING:
            return None
        packed = int.from_bytes(payload, "big")
        return ((packed & 2047) << (packed >> 11)) / 1000

    @classmethod
    def show(cls, value: Any) -> str:
        return f"{value:,.3f}"


@dataclass(frozen=True)
class Ieee(Real):
    """The big-endian bytes of the nearest number. Every NaN is the same one."""

    dtype: ClassVar[type[np.floating[Any]]]
    code: ClassVar[str]  # of struct

    def encode(self, value: Any, version: int | None = None) -> Block:  # noqa: ARG002
        if value is None:
            return Block(MISSING, noted=counts.NULLS)
        wide = float(value)
        if math.isnan(wide):
            return Block(VALUE, struct.pack(self.code, math.nan))
        with np.errstate(over="ignore", under="ignore"):  # counted
            near = float(self.dtype(wide))
        if math.isinf(near) and not math.isinf(wide):
            largest = math.copysign(float(np.finfo(self.dtype).max), wide)
            return Block(VALUE, struct.pack(self.code, largest), counts.TOO_LARGE)
        return Block(VALUE, struct.pack(self.code, near), counts.TOO_SMALL if wide and not near else None)

    def decode(self, marker: int, payload: bytes) -> float | None:
        return None if marker == MISSING else float(struct.unpack(self.code, payload)[0])

    @classmethod
    def show(cls, value: Any) -> str:
        """As few digits as tell it from its neighbours."""
        return str(cls.dtype(value))


@dataclass(frozen=True)
class Float16(Ieee):
    width: int = 2

    name = "float16"
    usage = "'float16', without an option"
    dtype = np.float16
    code = ">e"


@dataclass(frozen=True)
class Float32(Ieee):
    width: int = 4

    name = "float32"
    usage = "'float32', without an option"
    dtype = np.float32
    code = ">f"
