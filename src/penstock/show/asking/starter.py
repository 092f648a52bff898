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

# Input: a file, a folder, a pattern, or a list of them. The file name decides the format: .parquet .csv .tsv .jsonl,
# text formats also as .gz .zst .bz2.
input: data/*.parquet
# With options, and for files whose names do not show the format:
# input:
#   path: data/*.csv
#   format: csv                    # auto | parquet | csv | jsonl | arrow | text | megatron | mds
#   types: {time: "timestamp[us]"} # for CSV and JSON lines; other columns are inferred from the first rows
#   delimiter: ";"                 # for CSV; default: comma, or tab for .tsv
#   null_values: ["", "NA"]        # values that mean null in CSV; default: also N/A, NULL and null
#   encoding: latin-1              # if CSV, JSON lines or plain text is not UTF-8: cp1252, utf-16, shift_jis, ...
#   newlines_in_values: true       # CSV values may hold newlines between quotes; default: they may not
# Documents, for `tokenize` and `pack` below:
# input:
#   path: docs/*.parquet
#   text_column: body              # read only this column; it is called `text` from here on
#   bad_utf8: set_aside            # rows whose text is not UTF-8; repair replaces the bad bytes by U+FFFD
# input:
#   path: books/*.txt
#   format: text
#   document: file                 # or line
# input:
#   path: org/name                 # a dataset on the hub; or a folder that penstock prepared or `datasets` saved
#   split: train
#   name: default                  # only for the hub: the configuration
#   revision: main                 # only for the hub: branch, tag or commit
# Samples that your own function makes from raw files. They become arrays, one .npy per column and split.
# input:
#   files: games/*.txt             # each is given to the function; with `path:` instead, it is given rows of tables
#   function: "features:samples"   # module:name, beside this file or installed; yields one dict per sample
#   schema: {features: "float32[893]", labels: {move: int16}}   # default: inferred from the first samples
#   floats: float32                # type of all floats if there is no schema; default: they keep their types
#   missing: {labels_move: -1}     # value of a key that a sample lacks; default: an error
#   function_memory: 200MB         # memory that the function itself may use; default: measured
#   batch_rows: 1024               # rows per call of the function, with `path:`
# Samples without files: the function gets one item at a time.
# input:
#   items: 1000                    # 0 to 999; or a list of numbers, texts, lists or mappings
#   function: "features:samples"
# Batch files of arrays that other scripts wrote:
# input:
#   npz: data/intermediate/batch_*.npz
#   trust_pickle: false            # true opens files that hold pickles, which can run any code

# Folder of the dataset. A run that was stopped resumes when you run the same command again.
output: prepared

# Steps that each row goes through, in this order.
stages:
  # - select: [user, time, value]         # these columns; {new_name: old_name} renames, {os: device.os} takes a field
  # - cast: {value: float32}              # changes types; a value that the type cannot hold exactly is bad, unless
  #                                       # {columns: {value: float32}, lossy: true} rounds it
  # - filter: value > 0                   # also ==, !=, in [a, b], is not null, or a list of conditions
  # - my_module:my_function: {option: 1}  # your own: a pyarrow.RecordBatch in, one of as many rows out
  # - group: {by: user, order: time}      # all rows of a user as one record, in order; {max_record: 8MiB} cuts long
  #                                       # ones, {null_keys: group} keeps rows without a user
  - split: {test: 0.1} # {by: user, test: 0.1} keeps the rows of a user together; after group, write {by: key};
  #                    # {test: 1000} takes exactly 1,000 rows; {by_time: time, test: "2024-06-01"} splits by time
  # - normalize: [value]                  # mean 0, deviation 1, measured on the training rows only; in full:
  #                                       # {columns: [features], method: standard, skip: ["0:50"], type: float32}
  # - statistics: [value]                 # written to artifacts/statistics.json
  # For documents, which become rows of tokens; `filter: characters(text) >= 100` and `filter: length(tokens) >= 64`
  # set short ones aside:
  # - clean: {normalize: nfc}             # trims white space, sets empty texts aside
  # - dedup: {remember: seen}             # keeps the first of equal texts; the folder `seen` is for later jobs
  # - tokenize: tokenizer.json            # a file, a folder that holds one, or a hub id
  # - pack: {length: 2048, method: wrapped} # cut anywhere; best_fit keeps documents whole, none makes a row of each

# The whole process tree stays below `memory`; a job that cannot fit is refused before it starts.
memory: 80%
workers: auto # processes; 0 runs the tasks inside the driver, for a debugger

# A row or file that cannot be read stops the run (fail), or is kept in rejected/ with the reason (set_aside).
on_bad_input: fail

# Rarely changed:
# engine: local        # or ray: a cluster does the tasks, and writes the same bytes; {ray: {address: auto}}
# strategy: auto       # how much to hold in memory at once; sequential (inside the driver), parallel (large batches)
#                      # and streaming (small batches) write the same bytes: docs/reference/events.md
# format: safetensors  # or npy: one file per column; arrayrecord: one file per split, only for grouped events;
#                      # arrays: one .npy per column and split, the default for samples; npz: batch files
# export: hf           # also write the dataset for datasets.load_from_disk, beside it
# provenance: false    # does not keep the file and position of each document or sample, for loader.origin(k)
# slice_size: 64MB     # input per task, and about the size of a shard; the default for text is 16MB
# stall_notice: 60     # seconds without a row before a task is reported, with its stack
# task_timeout: 600    # seconds without a row before it is killed and tried once more

# Only for samples:
# intermediate_dir: data/intermediate   # keep them as batch files; --skip-merge stops there, `penstock merge` continues
# batch_size: 500                       # samples per batch file
# merge_strategy: sequential            # place batches one by one; or accumulative: all at once, in memory
"""


def write_job(path: str, text: str = STARTER) -> dict[str, Any]:
    """Write a job file. One that is there is never overwritten."""
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise OutputError(
            "a file of that name exists already, and it is not overwritten",
            where=str(Path(path).absolute()),
            next_step="choose another name: penstock init -o another_name.yaml",
        ) from None
    except FileNotFoundError:
        folder = Path(path).absolute().parent
        raise OutputError("there is no such folder", where=str(folder), next_step=f"mkdir -p {folder}") from None
    except OSError as error:
        raise file_error(error, "write the job file", str(Path(path).absolute())) from error
    return {"written": path}
