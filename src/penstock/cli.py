"""Command line: argv -> one call -> a printed result and an exit code.

The one place that prints errors. Heavy imports wait inside the commands, so that `penstock --help` is quick.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from penstock.base.processes.imports import imported_for_good
from penstock.show.streams import drop_unread, is_unread, make_streams_ready, sigterm_is_ctrl_c

with imported_for_good():
    import typer

_COMPLETE = "_PENSTOCK_COMPLETE"
_BROKEN_PIPE = 141  # 128 + SIGPIPE, what a shell reports of any program whose reader went away
EXIT_CODES = (
    (0, "done, or nothing to do"),
    (1, "a bug in penstock"),
    (2, "a mistake in the job file or on the command line"),
    (3, "the job does not fit in its memory or on the disk"),
    (4, "bad input: a file or a row"),
    (5, "the output folder is in use, foreign, or made by another job"),
    (6, "bytes on disk differ from the bytes that were written"),
    (7, "a task died, hung, or its code raised an error"),
    (8, "a file operation failed"),
    (130, "stopped by Ctrl-C or SIGTERM; the same command resumes"),
)

app = typer.Typer(
    help="Prepare training data that is larger than memory, within a memory budget, and load it in batches.",
    epilog="\n".join(["Exit codes", *(f"{code:3}  {meaning}" for code, meaning in EXIT_CODES)]),
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _local(parameter: typer.CallbackParam, value: Any) -> Any:
    """Paths of the command line as local paths. Others are refused, and the error names the option."""
    from penstock.base.paths import local_path

    return _located(parameter, value, local_path)


def _dataset(parameter: typer.CallbackParam, value: Any) -> Any:
    """The place of a dataset: a path of this machine, or a URL that a store serves."""
    from penstock.base.paths import dataset_path

    return _located(parameter, value, dataset_path)


def _located(parameter: typer.CallbackParam, value: Any, located: Callable[..., str]) -> Any:
    from penstock.base.errors import ConfigError

    try:
        if isinstance(value, (list, tuple)):
            return [located(each) for each in value]
        return value and located(value, is_output="--output" in parameter.opts)
    except ConfigError as error:
        error.where = f"{parameter.opts[0]} {value}" if parameter.opts[0].startswith("-") else "the command line"
        raise


def _option(names: str, metavar: str | None, help: str, **others: Any) -> Any:
    return typer.Option(*names.split(), metavar=metavar, help=help, **others)


def _flag(name: str, help: str) -> Any:
    return typer.Option(name, metavar="", help=help)  # it takes no value, so none is shown


def _older(name: str, metavar: str, help: str, **others: Any) -> Any:
    return _option(
        name, metavar, help, rich_help_panel="Older names, from the scripts that penstock replaces", **others
    )


def _with_tokens(name: str, metavar: str | None, help: str, **others: Any) -> Any:
    return _option(name, metavar, help, rich_help_panel="With --tokens or --origins", **others)


def _paths_like(incomplete: str) -> list[str]:
    """Paths with this beginning, for shell completion. Folders end with a slash."""
    import glob

    found = sorted(glob.glob(f"{glob.escape(os.path.expanduser(incomplete))}*"))
    return [os.path.join(each, "") if os.path.isdir(each) else each for each in found]


def _folders_like(incomplete: str) -> list[str]:
    """Folders and .arrayrecord files, for shell completion: datasets are folders."""
    return [each for each in _paths_like(incomplete) if each.endswith((os.sep, ".arrayrecord"))]


def _jobs_like(incomplete: str) -> list[str]:
    """Job files, folders, and presets."""
    from penstock.prepare.job.presets import PRESETS

    paths = [each for each in _paths_like(incomplete) if each.endswith((os.sep, ".yaml", ".yml"))]
    return [*(name for name in PRESETS if name.startswith(incomplete)), *paths]


_JOB = "A job file (`penstock init` writes one), or a preset: events, pings, text."
_MADE = "The folder that `penstock run` wrote"
_LOOKED = f"{_MADE}, or .arrayrecord files; quote patterns."
_READ = "Files to read instead of the job's. Quote patterns; may be repeated."
_ANY_KEY = "Set any key of the job file, such as input.format=csv, or a setting of a preset; may be repeated."
_STRATEGIES = "auto, sequential, parallel or streaming; does not change the output."
_FORMATS = "Format of the output: safetensors, npy, arrays, arrayrecord."
JobFile = Annotated[str, typer.Argument(metavar="JOB", callback=_local, help=_JOB, autocompletion=_jobs_like)]
Dataset = Annotated[
    str, typer.Argument(metavar="PATH", callback=_dataset, help=f"{_MADE}.", autocompletion=_folders_like)
]
Looked = Annotated[str, typer.Argument(metavar="PATH", callback=_dataset, help=_LOOKED, autocompletion=_folders_like)]
Input = Annotated[list[str] | None, _option("--input -i", "PATH", _READ, callback=_local, autocompletion=_paths_like)]
Output = Annotated[
    str | None,
    _option(
        "--output -o", "PATH", "Folder to write instead of the job's.", callback=_dataset, autocompletion=_folders_like
    ),
]
Memory = Annotated[str | None, _option("--memory -m", "SIZE", "Limit for the whole process tree: 2GB, 512MiB, 50%.")]
Workers = Annotated[str | None, _option("--workers -w", "N", "Number of processes, or auto; 0 runs inside the driver.")]
Setting = Annotated[list[str] | None, _option("--set -s", "KEY=VALUE", _ANY_KEY)]
Strategy = Annotated[str | None, _option("--strategy", "NAME", _STRATEGIES)]
Format = Annotated[str | None, _option("--format -f", "NAME", _FORMATS)]
MemoryLimit = Annotated[str | None, _older("--memory-limit-gb", "N", "Same as --memory with N GB.")]
MaxRowSize = Annotated[str | None, _older("--max-row-size-mb", "N", "Sets max_record of `group` to N MiB.")]
TrainRatio = Annotated[str | None, _older("--train-ratio", "R", "Sets test of `split` to 1 - R; 1 means no split.")]
Redo = Annotated[bool, _flag("--redo", "Do everything again, and replace the finished dataset.")]
_SKIPPED = "Stop when the batch files in intermediate_dir are complete."
_BATCHES = "Folder of the batch files. Default: the job's intermediate_dir."
_LENGTH = "Tokens per row. Default: the dataset's own row length, otherwise {}."
_LONGER_ROWS = "truncate: cut stored rows of tokens that are longer than --length."
_AUGMENTED = "For events: reorder them and their fields, and leave times out, like load(augment=...)."
_FIELD_KINDS = "How events become tokens, by column: 'dst: ip, at: time, port: {int: 2}'."
_WINDOWS = "For records without tokens, load(encode='raw'): last, random, or the stride of sliding windows in events."
AsJson = Annotated[bool, _flag("--json", "One JSON document on stdout; the rest on stderr.")]
Debug = Annotated[bool, _flag("--debug", "Show the traceback of an error.")]


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    # Before pyarrow is imported. Its system pool returns memory: peaks were 47 MB where mimalloc had 86.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # Before numpy is imported. Its threads, one per core, spin for a while with nothing to do. Workers have none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = sys.argv[1:] if arguments is None else arguments
    make_streams_ready()
    try:
        with sigterm_is_ctrl_c():
            return _invoke(arguments)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if is_unread(error):
            return _BROKEN_PIPE
        if isinstance(error, SystemExit):
            raise
        from penstock.show.failure import tell

        return tell(error, as_json="--json" in arguments, debug="--debug" in arguments)
    finally:
        drop_unread(sys.stdout)
        drop_unread(sys.stderr)


def _invoke(arguments: list[str]) -> int:
    """Run the command without `app()`, which would print errors itself and end a Ctrl-C without a message."""
    command = typer.main.get_command(app)
    if _COMPLETE in os.environ:  # a shell asks what could stand here; this answers and exits
        command._main_shell_completion({}, "penstock", _COMPLETE)
    try:
        with command.make_context("penstock", list(arguments)) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as stop:
        return stop.exit_code
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise _usage_error(error) from None


def _usage_error(error: Any) -> Exception:
    from penstock.base.errors import ConfigError

    command = error.ctx.command_path if getattr(error, "ctx", None) else "penstock"
    message = error.format_message()
    quote = "quote a pattern, so that the shell leaves it alone, or " if "extra argument" in message else ""
    return ConfigError(message, where="the command line", next_step=f"{quote}{command} --help")


@app.callback(invoke_without_command=True)
def _penstock(
    context: typer.Context, version: Annotated[bool, _flag("--version", "Show the version.")] = False
) -> None:
    if version:
        from penstock import __version__
        from penstock.show.console import put

        put(f"penstock {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        context.get_help()


@app.command()
def run(
    job: JobFile,
    inputs: Input = None,
    output: Output = None,
    memory: Memory = None,
    workers: Workers = None,
    strategy: Strategy = None,
    output_format: Format = None,
    settings: Setting = None,
    redo: Redo = False,
    skip_merge: Annotated[bool, _flag("--skip-merge", _SKIPPED)] = False,
    memory_limit_gb: MemoryLimit = None,
    max_row_size_mb: MaxRowSize = None,
    train_ratio: TrainRatio = None,
    parallel: Annotated[str | None, _older("--parallel", "BOOL", "false means --strategy sequential.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Prepare the dataset. Resumes where an earlier run stopped."""
    with imported_for_good():
        from penstock.prepare.entry import plan as plan_config
        from penstock.prepare.run.halves import halves_of, keep_batches
        from penstock.show.asking.asked import load_job
        from penstock.show.asking.older_names import older_overrides
        from penstock.show.asking.overrides import collect
        from penstock.show.console import stdout_kept_clean

    with stdout_kept_clean():
        older = older_overrides(memory_limit_gb, max_row_size_mb, train_ratio, parallel)
        asked = load_job(job, collect(inputs, output, memory, workers, strategy, output_format, settings), older)
        halves = (
            iter([keep_batches(asked.config)]) if skip_merge else halves_of(asked.config, plan_config if redo else None)
        )
    _run(asked, halves, redo, as_json)


@app.command()
def merge(
    folder: Annotated[str | None, typer.Argument(metavar="DIR", callback=_local, help=_BATCHES)] = None,
    config: Annotated[
        str, _option("--config -c", "JOB", "The job that the batch files were made for.", callback=_local)
    ] = ...,  # type: ignore[assignment]
    output: Output = None,
    memory: Memory = None,
    workers: Workers = None,
    settings: Setting = None,
    redo: Redo = False,
    intermediate_dir: Annotated[
        str | None, _older("--intermediate-dir", "DIR", "Same as the argument DIR.", callback=_local)
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Merge batch files (batch_*.npz) into a dataset: split and normalize their samples, as the job says."""
    with imported_for_good():
        from penstock.prepare.run.halves import merge_batches
        from penstock.show.asking.asked import load_job
        from penstock.show.asking.overrides import collect
        from penstock.show.console import stdout_kept_clean

    with stdout_kept_clean():
        asked = load_job(config, collect(None, output, memory, workers, None, None, settings))
        place = folder or intermediate_dir
        merged = merge_batches(asked.config, os.path.abspath(place) if place else asked.config.batches_path)
    _run(asked, iter([merged]), redo, as_json)


def _run(asked: Any, halves: Iterator[Any], redo: bool, as_json: bool) -> None:
    """Run one config after the other, and show the result of the last."""
    from dataclasses import replace

    with imported_for_good():
        from penstock.prepare.engines.hired import nursery
        from penstock.prepare.entry import run_with
        from penstock.show.asking.asked import plan_job, told
        from penstock.show.console import make_console, show, stdout_kept_clean
        from penstock.show.running.progress import Display
        from penstock.show.running.result import result_facts, result_tables

    with stdout_kept_clean():
        console = make_console(stderr=True)
        console.print(told(asked), end="", markup=False, highlight=False)
        for half in halves:
            with Display(console) as display, nursery() as workers:
                planned = plan_job(replace(asked, config=half), workers)
                manifest = run_with(workers, planned, display.observe, redo)
    show(result_facts(planned, manifest, display.tracker.already_done), result_tables, as_json)


_WATCHED = "The `output:` of a job that runs in another terminal."
_EVENTS_AS_JSON = "Print each event as one line of JSON; of a finished output, those of its last run."
_WAITS = "Wait until a run begins. A run that still plans has written nothing yet."


@app.command()
def watch(
    path: Annotated[str, typer.Argument(metavar="OUTPUT", callback=_dataset, help=_WATCHED)],
    wait: Annotated[bool, _flag("--wait", _WAITS)] = False,
    as_json: Annotated[bool, _flag("--json", _EVENTS_AS_JSON)] = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Show the progress of a run in another process, until it ends. Changes nothing."""
    with imported_for_good():
        from penstock.show.console import show
        from penstock.show.running.onlooker import onlooker_lines, watch_run

    ended = watch_run(path, as_json, wait)
    if not as_json:  # the last line of the events says it
        show(ended, onlooker_lines, as_json)


@app.command()
def plan(
    job: JobFile,
    inputs: Input = None,
    output: Output = None,
    memory: Memory = None,
    workers: Workers = None,
    strategy: Strategy = None,
    output_format: Format = None,
    settings: Setting = None,
    memory_limit_gb: MemoryLimit = None,
    max_row_size_mb: MaxRowSize = None,
    train_ratio: TrainRatio = None,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Show the passes, memory, disk and time that a run would need. Writes nothing."""
    with imported_for_good():
        from penstock.show.asking.asked import load_job
        from penstock.show.asking.older_names import older_overrides
        from penstock.show.asking.overrides import collect
        from penstock.show.console import show, stdout_kept_clean, waiting
        from penstock.show.running.plan_tables import plan_tables
        from penstock.show.running.planned import asked_facts
        from penstock.show.running.progress import PLANNING

    with stdout_kept_clean():
        older = older_overrides(memory_limit_gb, max_row_size_mb, train_ratio)
        asked = load_job(job, collect(inputs, output, memory, workers, strategy, output_format, settings), older)
        with waiting(PLANNING):
            facts = asked_facts(asked)
    show(facts, plan_tables, as_json)


@app.command()
def verify(path: Dataset, as_json: AsJson = False, debug: Debug = False) -> int:  # noqa: ARG001
    """Check every byte of a dataset against its checksums, and report damage by file and byte range."""
    with imported_for_good():
        from penstock.shards.verify import verify as verify_dataset
        from penstock.show.console import show, waiting
        from penstock.show.verification import verification_facts, verification_tables

    with waiting("reading every byte again"):
        facts = verification_facts(path, verify_dataset(path))
    show(facts, verification_tables, as_json)
    return int(facts["exit_code"])


_EXPORTS = (
    "hf: for datasets.load_from_disk. maxtext: ArrayRecord of tf.train.Example. megatron: .bin and .idx of documents. "
    "zarr: arrays. hdf5: one file."
)
_EXPORT_PLACE = "Folder to write, or file for hdf5. Default: PATH-hf, PATH-megatron, PATH.zarr or PATH.h5."
_SHARDS = "Largest size of a file in a folder. Default: 200MB; for zarr 16MB."


@app.command()
def export(
    path: Dataset,
    to: Annotated[str, _option("--to", "NAME", _EXPORTS)],
    output: Annotated[str | None, _option("--output -o", "PATH", _EXPORT_PLACE, callback=_local)] = None,
    split: Annotated[str | None, _option("--split", "NAME", "Only this split.")] = None,
    shard_size: Annotated[str | None, _option("--shard-size", "SIZE", _SHARDS)] = None,
    overwrite: Annotated[bool, _flag("--overwrite", "Replace an earlier export.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Write a dataset in another format. The export appears complete or not at all."""
    with imported_for_good():
        from penstock.shards.foreign.exporting import exported_place
        from penstock.show.console import show, waiting
        from penstock.show.exported import exported_facts, exported_tables

    place = exported_place(path, to, output)
    with waiting(f"writing {place}"):
        facts = exported_facts(path, to, place, split, overwrite, shard_size)
    show(facts, exported_tables, as_json)


_ORIGIN_INPUT = "With --origins or --duplicates: folder of the input, one per input of the job; counts line numbers."
_DUPLICATES = "Show near-duplicates beside the documents that stayed, the least similar first; -n says how many."


@app.command()
def inspect(
    path: Looked,
    split: Annotated[str | None, typer.Option(metavar="NAME", help="Show records of this split.")] = None,
    records: Annotated[int, _option("--records -n", "N", "How many records or pairs to show.", min=0)] = 3,
    tokens: Annotated[bool, _flag("--tokens", "Show a training batch, decoded.")] = False,
    rejected: Annotated[
        bool, _flag("--rejected", "Show rows that were set aside, with file, position and reason.")
    ] = False,
    origins: Annotated[bool, _flag("--origins", "Show which documents or samples a training batch holds.")] = False,
    duplicates: Annotated[bool, _flag("--duplicates", _DUPLICATES)] = False,
    input: Annotated[list[str] | None, _option("--input -i", "PATH", _ORIGIN_INPUT, callback=_local)] = None,
    batch: Annotated[int | None, _with_tokens("--batch", "K", "Number of the batch. Default: 0.", min=0)] = None,
    rows: Annotated[int | None, _with_tokens("--rows", "N", "Number of rows to show. Default: 3.", min=0)] = None,
    batch_size: Annotated[int | None, _with_tokens("--batch-size", "N", "Rows per batch. Default: 128.")] = None,
    length: Annotated[int | None, _with_tokens("--length", "N", _LENGTH.format(256))] = None,
    overflow: Annotated[str | None, _with_tokens("--overflow", "NAME", _LONGER_ROWS)] = None,
    fill: Annotated[
        str | None, _with_tokens("--fill", "NAME", "For events: packed or one_key. Default: packed.")
    ] = None,
    seed: Annotated[int | None, _with_tokens("--seed", "N", "Seed of the order. Default: 0.")] = None,
    fields: Annotated[str | None, _with_tokens("--fields", "YAML", _FIELD_KINDS)] = None,
    augment: Annotated[bool | None, _with_tokens("--augment/--no-augment", "", _AUGMENTED)] = None,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Show a dataset or .arrayrecord files: splits, schema, account, keys, a few records; or a training batch."""
    with imported_for_good():
        from penstock.show.console import show, waiting
        from penstock.show.contents.inspect import inspect_facts, refuse_several, refuse_without_tokens
        from penstock.show.contents.inspect_tables import inspect_tables

    refuse_several({"--tokens": tokens, "--rejected": rejected, "--origins": origins, "--duplicates": duplicates})
    view: dict[str, Any] = {"batch": batch, "rows": rows, "batch_size": batch_size, "length": length}
    view |= {"overflow": overflow, "fill": fill, "seed": seed, "fields": fields, "augment": augment}
    if rejected:
        from penstock.show.contents.rejected import rejected_facts, rejected_tables

        show(rejected_facts(path, records), rejected_tables, as_json)
        return
    if origins:
        from penstock.show.contents.origins import origin_facts, origin_tables

        with waiting("reading"):
            found = origin_facts(path, split, view, input)
        show(found, origin_tables, as_json)
        return
    if duplicates:
        from penstock.show.contents.duplicates import duplicate_tables

        refuse_without_tokens(view)
        with waiting("reading"):
            found = inspect_facts(path, duplicates=records, inputs=input)
        show(found, duplicate_tables, as_json)
        return
    if tokens:
        from penstock.show.contents.tokens import token_facts, token_tables

        with waiting("reading"):
            found = token_facts(path, split, view)
        show(found, token_tables, as_json)
        return
    refuse_without_tokens(view)
    with waiting("reading"):
        facts = inspect_facts(path, split, records)
    show(facts, inspect_tables, as_json)


_REPORT_PLACE = "The HTML file to write. Default: PATH-report.html, beside the dataset."
_BENCH_REPORT = "Also write the result as an HTML file."


@app.command()
def report(
    path: Dataset,
    output: Annotated[str | None, _option("--output -o", "FILE", _REPORT_PLACE, callback=_local)] = None,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Write one HTML file about a dataset: memory, time, where every row went, distributions, job, checksums."""
    with imported_for_good():
        from penstock.show.console import show, waiting
        from penstock.show.report.writing import report_lines, write_report

    with waiting("reading"):
        facts = write_report(path, output)
    show(facts, report_lines, as_json)


@app.command()
def bench(
    path: Looked,
    step_ms: Annotated[
        float | None, _option("--step-ms", "MS", "Also measure against a training step of this length.")
    ] = None,
    split: Annotated[str | None, _option("--split", "NAME", "The split to load. Default: train.")] = None,
    batch_size: Annotated[int, _option("--batch-size", "N", "Rows per batch.")] = 128,
    length: Annotated[int | None, _option("--length", "N", f"{_LENGTH.format(1024)} With --window, events.")] = None,
    overflow: Annotated[str | None, _option("--overflow", "NAME", _LONGER_ROWS)] = None,
    fill: Annotated[str | None, _option("--fill", "NAME", "For events: packed or one_key. Default: packed.")] = None,
    workers: Annotated[str, _option("--workers -w", "N", "Threads, or auto; 0 makes each batch on demand.")] = "auto",
    memory: Annotated[str | None, _option("--memory -m", "SIZE", "Limit for this process: 2GB, 512MiB, 50%.")] = None,
    seconds: Annotated[float, _option("--seconds", "S", "How long each measurement takes.")] = 5.0,
    cache: Annotated[
        str | None, _option("--cache", "NAME", "memory: hold all columns. disk: read only what a batch needs.")
    ] = None,
    fields: Annotated[str | None, _option("--fields", "YAML", _FIELD_KINDS)] = None,
    augment: Annotated[bool | None, _option("--augment/--no-augment", "", _AUGMENTED)] = None,
    columns: Annotated[str | None, _option("--columns", "NAMES", "For arrays: only these columns: x,label.")] = None,
    nulls: Annotated[str | None, _option("--nulls", "NAMES", "For arrays: columns that may have nulls.")] = None,
    window: Annotated[str | None, _option("--window", "NAME", _WINDOWS)] = None,
    report: Annotated[str | None, _option("--report", "FILE", _BENCH_REPORT, callback=_local)] = None,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Measure how fast the loader makes batches, and say whether and why a training loop would wait."""
    with imported_for_good():
        from penstock.show.bench import bench_facts, bench_tables
        from penstock.show.console import show, stdout_kept_clean, waiting
        from penstock.show.loading import Wanted
        from penstock.show.report.writing import refuse_bench_place, write_bench_report

    if report is not None:
        refuse_bench_place(report, path)
    view: dict[str, Any] = {"batch_size": batch_size, "length": length, "overflow": overflow, "fill": fill}
    view |= {"fields": fields, "augment": augment, "columns": columns, "cache": cache}
    view |= {"nulls": nulls, "window": window}
    wanted = Wanted(path=path, split=split, workers=workers, memory=memory, **view)
    with stdout_kept_clean(), waiting("measuring"):
        facts = bench_facts(wanted, seconds, step_ms)
        if report is not None:
            write_bench_report(facts, report)
    show(facts, bench_tables, as_json)


@app.command()
def doctor(
    output: Annotated[
        str, _option("--output -o", "PATH", "Folder in which datasets will be written.", callback=_local)
    ] = ".",
    clear_cache: Annotated[
        bool,
        _flag("--clear-cache", "Remove what is kept for later jobs: kernels, and comparisons of tokenizers."),
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Show what this machine or container allows: memory, cores, open files, disk, the cache, and library versions."""
    with imported_for_good():
        from penstock.show.cached import cleared_facts, cleared_tables
        from penstock.show.console import show
        from penstock.show.doctor import doctor_facts, doctor_tables

    if clear_cache:
        show(cleared_facts(), cleared_tables, as_json)
    else:
        show(doctor_facts(output), doctor_tables, as_json)


@app.command(name="warm-up")
def warm_up(
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Compile the loader's kernels ahead, such as in a container image: then no load() compiles anything."""
    with imported_for_good():
        from penstock.show.console import show, stdout_kept_clean, waiting
        from penstock.show.warming import warm_up_facts, warm_up_tables

    with stdout_kept_clean(), waiting("compiling"):
        facts = warm_up_facts()
    show(facts, warm_up_tables, as_json)


_FILES = "Your files, folders or patterns. Without them, the job file lists and explains every key."


@app.command()
def init(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", callback=_local, help=_FILES, autocompletion=_paths_like)
    ] = None,
    output: Annotated[str | None, _option("--output -o", "FILE", "The job file to write. Default: job.yaml.")] = None,
    schema: Annotated[bool, _flag("--schema", "Print the JSON Schema of job files, for editors.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Look at your files and propose a job file for them; without files, write one that explains every key."""
    from penstock.show.console import show, stdout_kept_clean, waiting

    if schema:
        from penstock.show.asking.job_schema import job_schema

        show(job_schema(), lambda _: [], as_json=True)
        return
    from penstock.show.asking.initial import initial_facts, initial_lines

    with stdout_kept_clean(), waiting("looking at the first rows"):
        facts = initial_facts(paths or [], output)
    show(facts, initial_lines, as_json)
