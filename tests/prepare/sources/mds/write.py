"""Writes the folders beside this file, with mosaicml-streaming: `python write.py`. They are committed.

The library is not installed with the tests: it wants older versions of numpy and xxhash, and the libraries of four
clouds. Version 0.13.0 wrote them.
"""

import decimal
import io
import json
import os

import numpy as np
from PIL import Image
from streaming import MDSWriter

HERE = os.path.dirname(os.path.abspath(__file__))
COLUMNS = {
    **{name: name for name in ("int", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
    **{name: name for name in ("float16", "float32", "float64", "str", "bytes", "json", "jpeg", "png")},
    **{name: name for name in ("str_int", "str_float", "str_decimal", "ndarray")},
    "typed": "ndarray:int32",
    "shaped": "ndarray:float32:2,3",
    "rows": "ndarray:uint8",
}


def sample(number: int) -> dict:
    picture = Image.new("RGB", (4, 4), (number * 9 % 256, 7, 200))
    return {
        "int": number - 5,
        **{f"int{bits}": np.iinfo(f"int{bits}").min + number for bits in (8, 16, 32, 64)},
        **{f"uint{bits}": np.iinfo(f"uint{bits}").max - number for bits in (8, 16, 32, 64)},
        **{f"float{bits}": number / 3 for bits in (16, 32, 64)},
        "str": f"text {number} é 水" * (number % 4),
        "bytes": bytes(range(number)),
        "json": {"number": number, "list": [1, None, "x"]},
        "jpeg": picture,
        "png": picture,
        "str_int": 10**20 + number,
        "str_float": number / 7,
        "str_decimal": decimal.Decimal(number) / 3,
        "ndarray": np.arange(number + 1, dtype="f8"),
        "typed": np.arange(300 * (number % 2) + 1, dtype="i4"),
        "shaped": np.arange(6, dtype="f4").reshape(2, 3) + number,
        "rows": np.full((number + 1, 2), number, "u1"),
    }


def expected(number: int) -> dict:
    """The sample as rows of penstock have it, where JSON can hold it."""
    made = sample(number)
    digits = {name: str(made[name]) for name in ("str_int", "str_float", "str_decimal")}
    arrays = {name: made[name].tolist() for name in ("ndarray", "typed", "shaped", "rows")}
    halves = {f"float{bits}": float(np.dtype(f"float{bits}").type(number / 3)) for bits in (16, 32, 64)}
    pictures = {}
    for name in ("jpeg", "png"):
        data = io.BytesIO()
        made[name].save(data, format=name.upper())
        pictures[name] = data.getvalue().hex()
    others = {"bytes": made["bytes"].hex(), "json": json.dumps(made["json"])}
    return {**made, **digits, **arrays, **halves, **pictures, **others}


for name, options in {
    "raw": {"hashes": ["sha1", "xxh64"]},
    "zstd": {"compression": "zstd:3", "hashes": ["sha256"]},
    "gz": {"compression": "gz"},
    "bz2": {"compression": "bz2", "hashes": ["xxh3_64"]},
}.items():
    with MDSWriter(out=os.path.join(HERE, name), columns=COLUMNS, size_limit=12_000, **options) as out:
        for number in range(12):
            out.write(sample(number))
with MDSWriter(out=os.path.join(HERE, "pickled"), columns={"x": "pkl"}) as out:
    out.write({"x": [1]})
with open(os.path.join(HERE, "expected.json"), "w") as file:
    json.dump([expected(number) for number in range(12)], file)
    file.write("\n")
