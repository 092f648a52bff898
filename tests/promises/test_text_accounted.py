"""Promise 5, of text: every document and every token is in the dataset or in the account, whatever the input holds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import InputError
from tests.promises import text_making, workshop


def _run(folder: Path, *files: list[str | None], **keys: Any) -> Path:
    """The output of a job over these documents, after its account was held against them."""
    text_making.write_documents(folder / "data", *files)
    penstock.run(text_making.write_job(folder / "job.yaml", folder / "data", **keys))
    _assert_accounted(folder / "out", sum(map(len, files)))
    return folder / "out"


def _assert_accounted(output: Path, documents: int) -> None:
    """Each step takes what the one before gave, of documents and of tokens, to the very rows on disk."""
    steps = text_making.steps_of(output)
    names = ["read", "clean", "dedup", "tokenize", "pack"]
    taken = [steps[name]["taken"] for name in names]
    assert taken == [documents, *(steps[name]["given"] for name in names[:-1])]
    tokens = text_making.steps_of(output, "tokens")
    rows = text_making.rows_of(output)
    assert tokens["pack"]["taken"] == tokens["tokenize"]["given"]
    assert tokens["pack"]["given"] == sum(map(len, rows))
    counted = json.loads((output / "artifacts" / "text.json").read_text())["train"]
    assert sum(each["tokens"] for each in counted.values()) == tokens["pack"]["taken"]
    assert sum(each["documents"] for each in counted.values()) == steps["pack"]["given"]
    assert all(sum(each["lengths"]) == each["documents"] for each in counted.values())
    assert steps["pack"]["made"] == {"rows": len(rows)}
    assert steps["write"]["given"] == len(rows)
    kept = penstock.verify(output)
    assert kept.ok, kept.problems


def test_documents_that_are_left_out_are_kept_by_position_where_asked(tmp_path):
    texts: list[str | None] = ["a b", None, " a b\n", "", "c", "\t", "c", "a b"]
    output = _run(tmp_path, texts, stages=text_making.stages(clean={"keep": True}, dedup={"keep": True}))
    lines = text_making.rejected_of(output)
    assert [(line["position"], line["reason"]) for line in sorted(lines, key=lambda line: line["position"])] == [
        (1, "null text"),
        (2, "duplicate"),
        (3, "empty text"),
        (5, "empty text"),
        (6, "duplicate"),
        (7, "duplicate"),
    ]
    assert {line["file"] for line in lines} == {"0.parquet"}


ODD: dict[str, list[list[str | None]]] = {
    "no duplicates": [[f"document {number} " * 9 for number in range(60)]],
    "all duplicates": [["again and again " * 30] * 40, ["again and again " * 30] * 40],
    "all empty": [["", " ", "\n"] * 10],
    "all null": [[None] * 10],
    "nul bytes": [["\0" * number + "a\0b" for number in range(30)]],
    "one document": [["only one, and it is long enough to fill some rows. " * 20]],
    "one short document": [["x"]],
    "an empty file among others": [["a b c " * 20], [], ["d e f " * 20]],
    "special tokens in text": [[text_making.EOS * 5, f"a{text_making.EOS}b" * 20]],
    "many languages": [[text_making.document(text_making.random.Random(seed), 80) for seed in range(30)]],
}


@pytest.mark.parametrize("name", ODD)
def test_odd_documents_are_packed_as_plain_python_would(tmp_path, name):
    output = _run(tmp_path, *ODD[name])
    assert text_making.rows_of(output) == text_making.expected(ODD[name])


def test_a_corpus_without_a_row_is_an_empty_dataset_or_says_so(tmp_path):
    """Files with a schema and no row at all."""
    text_making.write_documents(tmp_path / "data", [], [])
    job = text_making.write_job(tmp_path / "job.yaml", tmp_path / "data")
    done = workshop.run(job)
    if done.returncode == 0:
        assert text_making.rows_of(tmp_path / "out") == []
        assert penstock.verify(tmp_path / "out").ok
    else:
        assert done.returncode == 4, done.stdout + done.stderr
        assert json.loads(done.stdout)["what"]


def test_without_clean_null_and_empty_documents_are_accounted_for_too(tmp_path):
    texts: list[str | None] = ["a b c " * 30, None, "", "", None, "d " * 50]
    text_making.write_documents(tmp_path / "data", texts)
    stages = text_making.stages()[1:]
    penstock.run(text_making.write_job(tmp_path / "job.yaml", tmp_path / "data", stages=stages))
    steps = text_making.steps_of(tmp_path / "out")
    assert steps["read"]["taken"] == 6
    assert steps["pack"]["taken"] == steps["tokenize"]["given"] <= 4
    assert text_making.steps_of(tmp_path / "out", "tokens")["pack"]["taken"] >= 81


@pytest.mark.parametrize("least", [5, 10**6])
def test_documents_and_tokens_that_a_filter_leaves_out_are_counted(tmp_path, least):
    texts = text_making.documents(80, 2)
    text_making.write_documents(tmp_path / "data", texts)
    clean, dedup, tokenize, pack = text_making.stages()
    stages = [
        clean,
        {"filter": "characters(text) >= 4"},
        dedup,
        tokenize,
        {"filter": f"length(tokens) >= {least}"},
        pack,
    ]
    penstock.run(text_making.write_job(tmp_path / "job.yaml", tmp_path / "data", stages=stages))
    long = text_making.unique(text for text in text_making.cleaned(texts) if len(text) >= 4)
    ids = list(map(text_making.ids_of, long))
    kept = [each for each in ids if len(each) >= least]
    assert text_making.rows_of(tmp_path / "out") == text_making.wrapped(kept)[0]
    tokens = text_making.account_of(tmp_path / "out", "tokens")
    assert [step["taken"] for step in tokens] == [sum(map(len, ids))] * 2 + [sum(map(len, kept))]
    assert tokens[1]["set_aside"] == {f"length(tokens) >= {least}": sum(map(len, ids)) - sum(map(len, kept))}


USER = """
import pyarrow.compute as pc

def shout(batch):
    return batch.set_column(batch.schema.get_field_index("text"), "text", pc.utf8_upper(batch["text"]))
"""


def test_a_stage_of_ones_own_changes_what_is_compared(tmp_path):
    """What a user's function makes of a text is what is hashed: two that it makes equal are duplicates."""
    text_making.write_documents(
        tmp_path / "data", ["straße and more " * 9, "Straße and more " * 9, "something else " * 9]
    )
    clean, *others = text_making.stages()
    (tmp_path / "mine.py").write_text(USER)
    penstock.run(text_making.write_job(tmp_path / "job.yaml", tmp_path / "data", stages=[clean, "mine:shout", *others]))
    assert text_making.steps_of(tmp_path / "out")["dedup"]["set_aside"] == {"duplicate": 1}


# Text that is none, and files that end too soon.


def _write_raw(path: Path, values: list[bytes | None], group: int = 10) -> None:
    """Bytes that the file calls text, as a careless writer leaves them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    array = pa.array(values, pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(array), array.buffers())
    pq.write_table(pa.table({"text": text}), path, row_group_size=group)


RAW = [f"good {n} été".encode() * 5 for n in range(40)]
RAW[17] = b"bad \xff in the middle " * 3
RAW[23] = b"a lone surrogate \xed\xa0\x80"


def test_bad_utf8_in_the_middle_of_a_file_stops_the_job_by_name_unless_it_may_be_set_aside(tmp_path):
    _write_raw(tmp_path / "data" / "0.parquet", RAW)
    with pytest.raises(InputError) as caught:
        penstock.run(text_making.write_job(tmp_path / "job.yaml", tmp_path / "data"))
    assert "UTF-8" in caught.value.what
    assert "0.parquet" in str(caught.value.where)
    assert "row 17" in str(caught.value.where)


def test_bad_utf8_is_set_aside_with_its_position_and_the_rest_of_the_file_arrives(tmp_path):
    _write_raw(tmp_path / "data" / "0.parquet", RAW)
    penstock.run(text_making.write_job(tmp_path / "job.yaml", tmp_path / "data", on_bad_input="set_aside"))
    assert [line["position"] for line in text_making.rejected_of(tmp_path / "out")] == [17, 23]
    good = [raw.decode() for number, raw in enumerate(RAW) if number not in (17, 23)]
    assert text_making.rows_of(tmp_path / "out") == text_making.expected([good])
    steps = text_making.steps_of(tmp_path / "out")
    assert sum(sum(step["set_aside"].values()) for step in steps.values()) == 2


def test_bad_utf8_is_repaired_where_asked(tmp_path):
    _write_raw(tmp_path / "data" / "0.parquet", RAW)
    source = {"path": str(tmp_path / "data"), "bad_utf8": "repair"}
    penstock.run(text_making.write_job(tmp_path / "job.yaml", "", input=source))
    assert text_making.rows_of(tmp_path / "out") == text_making.expected(
        [[raw.decode("utf-8", "replace") for raw in RAW]]
    )


def _jsonl(texts: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def _compressed(data: bytes, suffix: str) -> bytes:
    return gzip.compress(data, mtime=0) if suffix == "gz" else pa.compress(data, codec="zstd", asbytes=True)


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_truncated_archive_is_named_and_what_came_before_is_kept_or_set_aside(tmp_path, suffix):
    """The other files arrive whole; of the broken one nothing is in the dataset without being in the account."""
    (tmp_path / "data").mkdir()
    texts = text_making.documents(300, 8)
    (tmp_path / "data" / f"0.jsonl.{suffix}").write_bytes(_compressed(_jsonl(texts[:100]), suffix))
    broken = _compressed(_jsonl(texts[100:200]), suffix)
    (tmp_path / "data" / f"1.jsonl.{suffix}").write_bytes(broken[: len(broken) // 2])
    (tmp_path / "data" / f"2.jsonl.{suffix}").write_bytes(_compressed(_jsonl(texts[200:]), suffix))
    job = text_making.write_job(tmp_path / "job.yaml", tmp_path / "data", slice_size="100kB")
    with pytest.raises(InputError) as caught:
        penstock.run(job)
    assert f"1.jsonl.{suffix}" in str(caught.value.where)
    job = text_making.write_job(tmp_path / "job.yaml", tmp_path / "data", slice_size="100kB", on_bad_input="set_aside")
    penstock.run(job)
    assert [line for line in text_making.rejected_of(tmp_path / "out") if f"1.jsonl.{suffix}" in line["file"]]
    found = {tuple(each) for each in list(text_making.documents_in(text_making.records_of(tmp_path / "out")))[:-1]}
    whole = text_making.unique(text_making.cleaned([*texts[:100], *texts[200:]]))
    lost = {tuple(text_making.ids_of(text)) for text in whole} - found
    assert len(lost) <= 2, "the tail and the document before it"
    assert found <= {tuple(text_making.ids_of(text)) for text in text_making.cleaned(texts)}


def test_a_parquet_file_with_a_damaged_page_loses_that_row_group_alone(tmp_path):
    files = text_making.files_of_documents(files=2, count=60)
    text_making.write_documents(tmp_path / "data", *files, group=20)
    path = tmp_path / "data" / "0.parquet"
    place = pq.read_metadata(path).row_group(1).column(1)
    data = bytearray(path.read_bytes())
    start = place.dictionary_page_offset or place.data_page_offset
    data[start + 40 : start + 200] = bytes(160)
    path.write_bytes(data)
    penstock.run(text_making.write_job(tmp_path / "job.yaml", tmp_path / "data", on_bad_input="set_aside"))
    left = [files[0][:20], files[0][40:], files[1]]
    assert text_making.rows_of(tmp_path / "out") == text_making.expected(left)
    assert text_making.steps_of(tmp_path / "out")["read"]["given"] == 100


LARGE_MB = 60 if workshop.THOROUGH else 1  # from 16 on its tokens lie in a file, not in memory


def test_one_large_document_is_packed_like_any_other(tmp_path):
    """Among small ones. Lines are encoded one by one to tell what it must be: none of their tokens reaches over two."""
    lines = [
        f"line {number} of one long document, été {'and on it goes ' * 20}x\n" for number in range(LARGE_MB * 2800)
    ]
    text_making.write_documents(tmp_path / "data", ["before " * 20, "".join(lines), "behind " * 20])
    stages = text_making.stages(pack={"length": 4096})
    job = text_making.write_job(tmp_path / "job.yaml", tmp_path / "data", stages=stages)
    workshop.run_well(job)
    encoded = text_making.tokenizer().encode_batch_fast([*lines[:-1], lines[-1].strip()], add_special_tokens=False)
    ids = [text_making.ids_of(("before " * 20).strip()), *(each.ids for each in encoded)]
    stream = text_making.as_array([*ids, [text_making.end()], text_making.ids_of(("behind " * 20).strip())])
    dataset = penstock.open(tmp_path / "out", "train")
    assert text_making.steps_of(tmp_path / "out", "tokens")["pack"]["taken"] == len(stream)
    assert len(dataset) == len(stream) // 4096
    for number in (0, 1, len(dataset) // 2, len(dataset) - 1):
        assert dataset[number]["tokens"].tolist() == stream[number * 4096 : (number + 1) * 4096].tolist()
