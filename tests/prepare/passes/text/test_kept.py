"""`pack: {keep: [...]}`: columns beside the tokens, held against a packer in plain Python."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, InputError
from penstock.prepare.passes.text import packing
from tests.promises.text_making import account_of, ids_of, rejected_of, write_tokenizer

KEPT = ["source", "mask"]
Document = dict[str, Any]  # tokens, source, mask


def make_documents(seed: int, count: int = 60, longest: int = 50) -> list[Document]:
    """Documents of many lengths; no two tokens are equal, so that none can stand for another."""
    chance, fresh = random.Random(seed), iter(range(1 << 20))
    found = []
    for _ in range(count):
        size = 1 + int(longest * chance.random() ** 2)
        tokens = [next(fresh) for _ in range(size)]
        found.append({"tokens": tokens, "source": chance.randrange(1, 9), "mask": [chance.random() for _ in tokens]})
    return found


def write(folder: Path, documents: list[Document], files: int = 3, **types: pa.DataType) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {"tokens": pa.list_(pa.int32()), "source": pa.int16(), "mask": pa.list_(pa.float32()), **types}
    for number in range(files):
        some = documents[number * len(documents) // files : (number + 1) * len(documents) // files]
        columns = {
            name: pa.array([each[name] for each in some], kind) for name, kind in kinds.items() if name in some[0]
        }
        pq.write_table(pa.table(columns), folder / f"{number}.parquet", row_group_size=7)
    return folder


def run(folder: Path, data: Path, pack: dict[str, Any], before: list[Any] | None = None, **keys: Any) -> Path:
    job = {"input": str(data), "output": str(folder / "out"), "stages": [*(before or []), {"pack": pack}], "workers": 0}
    penstock.run({**job, "memory": "4GB", "slice_size": "2kB", **keys})
    return folder / "out"


def records(output: Path, split: str = "train") -> list[Any]:
    found: list[Any] = penstock.open(output, split)[:].to_pylist()
    return found


def packed(documents: list[Document], length: int, method: str, overflow: str = "split") -> list[Document]:
    """The rows of `wrapped` and `none`, with all that is beside the tokens."""
    each = [
        list(zip(one["tokens"], [one["source"]] * len(one["tokens"]), one["mask"], strict=True)) for one in documents
    ]
    if method == "wrapped":
        stream = [place for one in each for place in one]
        rows = [stream[at : at + length] for at in range(0, len(stream) // length * length, length)]
    else:
        each = [one[:length] if overflow == "truncate" else one for one in each]
        each = [one for one in each if overflow != "set_aside" or len(one) <= length]
        rows = [one[at : at + length] for one in each for at in range(0, len(one), length)]
    return [dict(zip(("tokens", *KEPT), map(list, zip(*row, strict=True)), strict=True)) for row in rows]


def as_float32(rows: list[Document]) -> list[Document]:
    return [{**row, "mask": pa.array(row["mask"], pa.float32()).to_pylist()} for row in rows]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("method", "overflow"),
    [("wrapped", "split"), ("none", "split"), ("none", "truncate"), ("none", "set_aside")],
)
def test_rows_are_those_of_a_packer_in_plain_python(tmp_path, monkeypatch, seed, method, overflow):
    monkeypatch.setattr(packing, "TOKENS_AT_ONCE", random.Random(seed).choice([1, 30, 1 << 20]))
    documents = make_documents(seed)
    options = {"length": 16, "method": method, "overflow": overflow, "keep": KEPT}
    output = run(tmp_path, write(tmp_path / "data", documents), options)
    found = [{name: row[name] for name in ("tokens", *KEPT)} for row in records(output)]
    assert found == as_float32(packed(documents, 16, method, overflow))
    account_of(output)
    account_of(output, "tokens")


@pytest.mark.proof
@pytest.mark.parametrize("overflow", ["split", "truncate"])
def test_in_rows_of_best_fit_every_token_has_its_own_values(tmp_path, overflow):
    documents = make_documents(7)
    data = write(tmp_path / "data", documents)
    options = {"length": 40, "method": "best_fit", "overflow": overflow, "window": 200}
    plain = records(run(tmp_path / "plain", data, options))
    kept = records(run(tmp_path / "kept", data, {**options, "keep": KEPT}))
    assert [(row["tokens"], row["documents"]) for row in kept] == [(row["tokens"], row["documents"]) for row in plain]
    (stream,) = as_float32(packed(documents, sum(len(each["tokens"]) for each in documents), "wrapped"))
    of = {name: dict(zip(stream["tokens"], stream[name], strict=True)) for name in KEPT}
    for row in kept:
        for name in KEPT:
            assert row[name] == [of[name][token] for token in row["tokens"]]


def test_columns_are_kept_in_the_order_of_the_option_and_in_their_types(tmp_path):
    kinds = [pa.bool_(), pa.int8(), pa.uint16(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()]
    values = {f"{kind}": [True, False, True] if kind == pa.bool_() else [1, 2, 3] for kind in kinds}
    columns = {f"a {kind}": pa.array(values[f"{kind}"]).cast(kind) for kind in kinds}
    columns |= {
        f"b {kind}": pa.array([[each] * 2 for each in values[f"{kind}"]]).cast(pa.list_(kind)) for kind in kinds
    }
    columns["b fixed"] = pa.array([[1, 2]] * 3, pa.list_(pa.int32(), 2))
    columns["b large"] = pa.array([[1, 2]] * 3, pa.large_list(pa.int32()))
    table = pa.table({"tokens": pa.array([[5, 6]] * 3, pa.list_(pa.uint16())), **columns})
    pq.write_table(table, tmp_path / "in.parquet")
    output = run(tmp_path, tmp_path / "in.parquet", {"length": 3, "keep": sorted(columns)})
    found = penstock.open(output)[:]
    assert found.schema.names == ["tokens", "documents", *sorted(columns), "_origin"]
    for name, column in columns.items():
        number = column.type if name.startswith("a ") else column.type.value_type
        assert found.schema.field(name).type == pa.list_(number, 3)
        flat = [each for row in found[name].to_pylist() for each in row]
        assert flat == [each for value in column.to_pylist() for each in ([value] * 2 if name[0] == "a" else value)]


def text_job(tmp_path: Path, texts: list[str], masks: list[Any], pack: dict[str, Any], **tokenize: Any) -> Path:
    lines = [
        {"text": text, "source": n + 1, "mask": mask} for n, (text, mask) in enumerate(zip(texts, masks, strict=True))
    ]
    (tmp_path / "d.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    write_tokenizer(tmp_path / "tokenizer")
    stage = {"tokenizer": str(tmp_path / "tokenizer"), "engine": "hf", **tokenize}
    options = {"length": 8, "method": "none", "keep": KEPT, **pack}
    return run(tmp_path, tmp_path / "d.jsonl", options, [{"tokenize": stage}])


@pytest.mark.parametrize(("added", "value"), [({}, 0), ({"mask": 1}, 1)])
def test_tokens_that_tokenize_adds_get_zero_or_what_was_declared(tmp_path, added, value):
    texts = ["water flows", "the gate", "a"]
    sizes = [len(ids_of(text)) - 1 for text in texts]  # without the end
    masks = [[n + 2] * size for n, size in enumerate(sizes)]
    masks[1] = [9] * (sizes[1] + 2)  # one for every token, the added ones too
    options = {"add_bos": True, "bos": "<|end|>"}
    output = text_job(tmp_path, texts, masks, {"added": added}, **options)
    found = {name: [each for row in records(output) for each in row[name]] for name in ("tokens", *KEPT)}
    ids = [[ids_of(text)[-1], *ids_of(text)] for text in texts]
    expected = [masks[1] if n == 1 else [value, *mask, value] for n, mask in enumerate(masks)]
    assert found["tokens"] == [each for one in ids for each in one]
    assert found["mask"] == [each for one in expected for each in one]
    assert found["source"] == [n + 1 for n, one in enumerate(ids) for _ in one]


def bad_documents() -> list[Document]:
    documents = make_documents(4, count=12)
    documents[3]["mask"] = documents[3]["mask"] + [0.5]
    documents[5]["mask"] = None
    documents[6]["mask"] = [None] * len(documents[6]["tokens"])
    documents[8]["source"] = None
    return documents


def test_a_value_that_fits_no_token_is_bad_input_and_named(tmp_path):
    documents = bad_documents()
    data = write(tmp_path / "data", documents, files=1)
    output = run(tmp_path, data, {"length": 16, "keep": KEPT}, on_bad_input="set_aside")
    lines = {line["position"]: line for line in rejected_of(output)}
    assert {place: line["reason"] for place, line in lines.items()} == {
        3: "column 'mask' does not fit the tokens",
        5: "null in column 'mask'",
        6: "null in column 'mask'",
        8: "null in column 'source'",
    }
    tokens = len(documents[3]["tokens"])
    assert lines[3]["detail"] == f"{tokens + 1} values for {tokens} tokens"
    good = [each for n, each in enumerate(documents) if n not in lines]
    assert [row["mask"] for row in records(output)] == [row["mask"] for row in as_float32(packed(good, 16, "wrapped"))]
    assert account_of(output)[-2]["set_aside"] == {
        "column 'mask' does not fit the tokens": 1,
        "null in column 'mask'": 2,
        "null in column 'source'": 1,
    }
    account_of(output, "tokens")


def test_a_value_that_fits_no_token_stops_a_job_that_takes_no_bad_input(tmp_path):
    data = write(tmp_path / "data", bad_documents()[:5], files=1)
    with pytest.raises(InputError) as caught:
        run(tmp_path, data, {"length": 16, "keep": KEPT})
    assert "column 'mask' does not fit the tokens" in str(caught.value)
    assert "one value per token" in str(caught.value.next_step)


@pytest.mark.parametrize(
    ("options", "said", "step"),
    [
        ({"keep": ["name"]}, "column 'name' is string", "give each value a number"),
        ({"keep": ["when"]}, "column 'when' is timestamp", "give each value a number"),
        ({"keep": ["sauce"]}, "no column 'sauce'.*Did you mean 'source'", None),
        ({"keep": ["source", "source"]}, "'source' is named twice", None),
        ({"keep": ["tokens"]}, "'tokens' is a name that packed rows", "select"),
        ({"keep": ["position"]}, "'position' is a name that packed rows", "select"),
        (
            {"keep": ["source"], "added": {"source": 1}},
            "'source' is not a kept column with one value per token",
            "leave",
        ),
        ({"added": {"mask": 1}}, "'mask' is not a kept column", "leave"),
        ({"keep": ["mask"], "added": {"mask": 300}}, "mask is int8, which cannot hold 300", None),
        ({"keep": ["mask"], "added": {"mask": 0.5}}, "mask is int8, which cannot hold 0.5", None),
    ],
)
def test_columns_that_cannot_stand_beside_tokens_are_refused_before_anything_is_read(tmp_path, options, said, step):
    columns = {
        "tokens": pa.array([[1, 2]], pa.list_(pa.int32())),
        "source": pa.array([1], pa.int8()),
        "mask": pa.array([[1, 0]], pa.list_(pa.int8())),
        "name": pa.array(["a"]),
        "position": pa.array([1]),
        "when": pa.array([0], pa.timestamp("s")),
    }
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    with pytest.raises(ConfigError, match=said) as caught:
        run(tmp_path, tmp_path / "in.parquet", {"length": 4, **options})
    assert step is None or step in str(caught.value.next_step)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_the_plan_counts_kept_columns_in_memory_and_on_disk(tmp_path):
    data = write(tmp_path / "data", make_documents(1, count=300))
    job = {"input": str(data), "output": str(tmp_path / "out"), "workers": 0, "memory": "4GB"}
    plain, kept = (
        penstock.plan({**job, "stages": [{"pack": {"length": 1 << 20, "keep": keep}}]}).passes[-1].projected
        for keep in ([], ["source"])
    )
    assert kept.memory_bytes - plain.memory_bytes >= 4 * 2 * (
        1 << 20
    )  # copies of int16, for as many tokens as are held
    assert kept.output_bytes > 1.4 * plain.output_bytes  # two bytes beside four


def test_a_job_without_kept_columns_is_described_as_it_was_before_there_were_any(tmp_path):
    output = run(tmp_path, write(tmp_path / "data", make_documents(1)), {"length": 16})
    manifest = json.loads((output / "manifest.json").read_text())
    assert manifest["config"]["stages"] == [
        {"pack": {"length": 16, "method": "wrapped", "overflow": "split", "window": 0}}
    ]
