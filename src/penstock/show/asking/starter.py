"""Starter: a job file to begin with, every key explained, that runs on any input as it stands."""

from pathlib import Path
from typing import Any

from penstock.base.errors import OutputError, file_error

STARTER = """\
# A penstock job. `penstock plan` shows what it would do, `penstock run` does it.
# Paths start at this file's folder. Sizes: GB = 10^9 bytes, GiB = 2^30, or a share such as 50%.
#
# For completion in your editor, run `penstock init --schema > penstock.schema.json`
# and make this the first line:   # yaml-language-server: $schema=penstock.schema.json

# What to read: a file, a folder, a pattern, or a list of them. Parquet, CSV and JSON lines are told by their
# names (.parquet .csv .tsv .jsonl, text also as .gz .zst .bz2).
input: data/*.parquet
# With options, and for formats whose names do not tell:
# input:
#   path: data/*.csv
#   format: csv                    # auto | parquet | csv | jsonl | arrow | text | megatron | mds
#   types: {time: "timestamp[us]"} # of text columns; what is not named is inferred from the first rows
#   delimiter: ";"                 # of CSV; a comma if not said, or a tab for .tsv
#   null_values: ["", "NA"]        # what CSV writes for null; if not said also N/A, NULL and null
#   encoding: latin-1              # of CSV, JSON lines and plain text that is not UTF-8; cp1252, utf-16, shift_jis, ...
#   newlines_in_values: true       # CSV values may hold newlines between quotes; if not said, they may not
# Documents, for `tokenize` and `pack` below:
# input:
#   path: docs/*.parquet
#   text_column: body              # read this column alone; it is called `text` from here on
#   bad_utf8: set_aside            # rows with text that is not UTF-8; repair puts U+FFFD in its place
# input:
#   path: books/*.txt
#   format: text
#   document: file                 # or line
# input:
#   path: org/name                 # a dataset of the hub; or a folder: what penstock prepared, or `datasets` saved
#   split: train
#   name: default                  # its configuration, and the branch, tag or commit: of the hub only
#   revision: main
# Samples that a function of your own makes of raw files: they become arrays, one .npy a column and split.
# input:
#   files: games/*.txt             # each is given to the function; with `path:` instead, it is given rows of tables
#   function: "features:samples"   # module:name, beside this file or installed; yields a dict a sample
#   schema: {features: "float32[893]", labels: {move: int16}}   # if not said, the first samples tell it
#   floats: float32                # what floats become where there is no schema; if not said, they keep their types
#   missing: {labels_move: -1}     # what stands for a key that a sample lacks; if not said, that is an error
#   function_memory: 200MB         # what the function may take of its own; measured if not said
#   batch_rows: 1024               # rows that it is given at a time, with `path:`
# Samples without files: the function is given one item at a time.
# input:
#   items: 1000                    # 0 to 999; or a list of numbers, texts, lists or mappings
#   function: "features:samples"
# Batch files of arrays, as scripts leave them:
# input:
#   npz: data/intermediate/batch_*.npz
#   trust_pickle: false            # true opens files that hold pickles, which can run any code

# Where the dataset goes. A run that was stopped goes on when the same command is given again.
output: prepared

# What to do with each row, in this order.
stages:
  # - select: [user, time, value]         # these columns; {new_name: old_name} renames, {os: device.os} takes a field
  # - cast: {value: float32}              # other types; a value that one cannot hold is a bad row, unless you write
  #                                       # {columns: {value: float32}, lossy: true}, which rounds it
  # - filter: value > 0                   # also ==, !=, in [a, b], is not null, or a list of conditions
  # - my_module:my_function: {option: 1}  # your own: a pyarrow.RecordBatch in, one of as many rows out
  # - group: {by: user, order: time}      # all rows of a user as one record, in order; {max_record: 8MiB} cuts long
  #                                       # ones, {null_keys: group} keeps rows without a user
  - split: {test: 0.1} # {by: user, test: 0.1} keeps the rows of a user together; behind group, that is {by: key};
  #                    # {by_time: time, test: "2024-06-01"} splits by time
  # - normalize: [value]                  # mean 0, deviation 1, measured on the training rows alone; in full:
  #                                       # {columns: [features], method: standard, skip: ["0:50"], type: float32}
  # - statistics: [value]                 # left in artifacts/statistics.json
  # Of documents, which become rows of tokens; `filter: characters(text) >= 100` and `filter: length(tokens) >= 64`
  # leave out short ones:
  # - clean: {normalize: nfc}             # outer white space is cut off, empty texts are set aside
  # - dedup: {remember: seen}             # of equal texts the first stays; a folder remembers them for later jobs
  # - tokenize: tokenizer.json            # a file, a folder that holds one, or a hub id
  # - pack: {length: 2048, method: wrapped} # cut anywhere; best_fit keeps documents whole, none makes a row of each

# What it may use. The whole process tree stays below `memory`; a job that cannot is refused before it starts.
memory: 80%
workers: auto # processes; 0 works inside the driver, for a debugger

# A row or file that cannot be read stops the run (fail), or is kept in rejected/ with the reason (set_aside).
on_bad_input: fail

# Seldom changed:
# strategy: auto       # how much to hold at once; sequential (inside the driver), parallel (large batches) or
#                      # streaming (small ones) write the same bytes: docs/reference/events.md
# format: safetensors  # or npy: one file a column; or arrayrecord: one file a split, of grouped events only;
#                      # of samples arrays: one .npy a column and split, and npz: batch files
# export: hf           # of rows of tokens: write the dataset for datasets.load_from_disk too, beside it
# slice_size: 64MB     # input that one task reads, and so about the size of a shard; of text 16MB
# stall_notice: 60     # seconds without a row before a task is named, with its stack
# task_timeout: 600    # ... before it is killed and tried once more

# Of samples only:
# intermediate_dir: data/intermediate   # keep them as batch files; --skip-merge stops there, `penstock merge` goes on
# batch_size: 500                       # samples in such a file
# merge_strategy: sequential            # place batches one by one; or accumulative: all at once, in memory
"""


def write_job(path: str, text: str = STARTER) -> dict[str, Any]:
    """Write a job file. One that is there is never overwritten."""
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise OutputError(
            "there is a file of that name already, and it is not overwritten",
            where=str(Path(path).absolute()),
            next_step="choose another name: penstock init -o another_name.yaml",
        ) from None
    except FileNotFoundError:
        folder = Path(path).absolute().parent
        raise OutputError("there is no such folder", where=str(folder), next_step=f"mkdir -p {folder}") from None
    except OSError as error:
        raise file_error(error, "write the job file", str(Path(path).absolute())) from error
    return {"written": path}
