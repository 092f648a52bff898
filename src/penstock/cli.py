"""Command line: argv -> one call -> a printed result and an exit code.

The one place that prints errors. Heavy imports wait inside the commands, so that `penstock --help` is quick.
"""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, TextIO

import typer

_COMPLETE = "_PENSTOCK_COMPLETE"
_BROKEN_PIPE = 141  # 128 + SIGPIPE, what a shell reports of any program whose reader went away
EXIT_CODES = (
    (0, "done, or nothing to do"),
    (1, "a defect of penstock itself"),
    (2, "the job file or the command line"),
    (3, "the job does not fit in its memory or on the disk"),
    (4, "a file or row of the input"),
    (5, "the output folder: held, foreign, or made by another job"),
    (6, "bytes on disk are not the ones that were written"),
    (7, "a task died, hung, or its code raised"),
    (8, "the file system refused"),
    (130, "stopped by Ctrl-C or SIGTERM; the same command goes on"),
)

app = typer.Typer(
    help="Prepare datasets larger than memory inside a memory budget.",
    epilog="\n".join(["Exit codes", *(f"{code:3}  {meaning}" for code, meaning in EXIT_CODES)]),
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _local(parameter: typer.CallbackParam, value: Any) -> Any:
    """A path, or several, of the command line as paths of this machine; what is none is refused by its option."""
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


def _older(name: str, metavar: str, help: str, **others: Any) -> Any:
    return _option(name, metavar, help, rich_help_panel="Older names, of the scripts that penstock replaces", **others)


def _with_tokens(name: str, metavar: str | None, help: str, **others: Any) -> Any:
    return _option(name, metavar, help, rich_help_panel="With --tokens", **others)


def _paths_like(incomplete: str) -> list[str]:
    """Paths that begin so, for a shell to complete; folders end with a slash."""
    import glob

    found = sorted(glob.glob(f"{glob.escape(os.path.expanduser(incomplete))}*"))
    return [os.path.join(each, "") if os.path.isdir(each) else each for each in found]


def _folders_like(incomplete: str) -> list[str]:
    """Datasets are folders, and so is what holds them."""
    return [each for each in _paths_like(incomplete) if each.endswith((os.sep, ".arrayrecord"))]


def _jobs_like(incomplete: str) -> list[str]:
    """Job files, folders, and presets."""
    from penstock.prepare.job.presets import PRESETS

    paths = [each for each in _paths_like(incomplete) if each.endswith((os.sep, ".yaml", ".yml"))]
    return [*(name for name in PRESETS if name.startswith(incomplete)), *paths]


_JOB = "A job file (`penstock init` writes one), or a preset: events, pings, text."
_MADE = "The folder that `penstock run` wrote"
_LOOKED = f"{_MADE}, or .arrayrecord files; quote patterns."
_READ = "Read these files instead. Quote patterns; may be repeated."
_ANY_KEY = "Any key of the job file, such as input.format=csv, or setting of a preset."
_STRATEGIES = "auto, sequential, parallel or streaming; changes no byte."
_FORMATS = "Of the output: safetensors, npy, arrays, arrayrecord."
JobFile = Annotated[str, typer.Argument(metavar="JOB", callback=_local, help=_JOB, autocompletion=_jobs_like)]
Dataset = Annotated[
    str, typer.Argument(metavar="PATH", callback=_dataset, help=f"{_MADE}.", autocompletion=_folders_like)
]
Looked = Annotated[str, typer.Argument(metavar="PATH", callback=_dataset, help=_LOOKED, autocompletion=_folders_like)]
Input = Annotated[list[str] | None, _option("--input -i", "PATH", _READ, callback=_local, autocompletion=_paths_like)]
Output = Annotated[
    str | None,
    _option("--output -o", "PATH", "Write here instead.", callback=_dataset, autocompletion=_folders_like),
]
Memory = Annotated[str | None, _option("--memory -m", "SIZE", "For the whole process tree: 2GB, 512MiB, 50%.")]
Workers = Annotated[str | None, _option("--workers -w", "N", "Processes; 0 works inside the driver, or auto.")]
Setting = Annotated[list[str] | None, _option("--set -s", "KEY=VALUE", _ANY_KEY)]
Strategy = Annotated[str | None, _option("--strategy", "NAME", _STRATEGIES)]
Format = Annotated[str | None, _option("--format -f", "NAME", _FORMATS)]
MemoryLimit = Annotated[str | None, _older("--memory-limit-gb", "N", "--memory of N GB.")]
MaxRowSize = Annotated[str | None, _older("--max-row-size-mb", "N", "max_record of N MiB in `group`.")]
TrainRatio = Annotated[str | None, _older("--train-ratio", "R", "test of 1 - R in `split`; 1: no split.")]
Redo = Annotated[bool, typer.Option("--redo", help="Do everything again, replacing what is there.")]
_SKIPPED = "Stop when the batch files are there (of intermediate_dir)."
_BATCHES = "The folder of batch files; else the job's intermediate_dir."
_LENGTH = "Tokens of a row: {}, or as the dataset has them."
_LONGER_ROWS = "truncate: cut stored rows of tokens that are longer than --length."
_AUGMENTED = "Of events: reorder them and their fields, and leave times out; as load(augment=...)."
_FIELD_KINDS = "How events become tokens, by column: 'dst: ip, at: time, port: {int: 2}'."
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout; the rest on stderr.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def main(arguments: list[str] | None = None) -> int:
    """Run one command and answer its exit code."""
    # Before pyarrow is imported. Its system pool returns memory: peaks were 47 MB where mimalloc had 86.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    arguments = sys.argv[1:] if arguments is None else arguments
    _make_streams_ready()
    try:
        with _sigterm_is_ctrl_c():
            return _invoke(arguments)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if _is_unread(error):
            return _BROKEN_PIPE
        if isinstance(error, SystemExit):
            raise
        from penstock.show.failure import tell

        return tell(error, as_json="--json" in arguments, debug="--debug" in arguments)
    finally:
        _drop_unread(sys.stdout)
        _drop_unread(sys.stderr)


def _make_streams_ready() -> None:
    """Streams that were closed (`>&-`) lead nowhere. A character that an encoding lacks is written as an escape."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it takes the lowest number that is free: this one
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_unread(error: BaseException) -> bool:
    """Whether a command ends because its reader went away, as `head` does. rich makes a SystemExit of that."""
    gone = error.__context__ if isinstance(error, SystemExit) else error
    return isinstance(gone, BrokenPipeError) and (gone is not error or any(map(_drop_unread, (sys.stdout, sys.stderr))))


def _drop_unread(stream: TextIO) -> bool:
    """Whether nobody reads the stream any more. What is left for it is dropped, or Python would end with 120."""
    try:
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return True
    return False


def _invoke(arguments: list[str]) -> int:
    """Not `app()`: typer's own main would print errors its way, and end a Ctrl-C before it is explained."""
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


@contextmanager
def _sigterm_is_ctrl_c() -> Iterator[None]:
    """A scheduler's SIGTERM stops a run as cleanly as a person does."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@app.callback(invoke_without_command=True)
def _penstock(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False
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
    skip_merge: Annotated[bool, typer.Option("--skip-merge", help=_SKIPPED)] = False,
    memory_limit_gb: MemoryLimit = None,
    max_row_size_mb: MaxRowSize = None,
    train_ratio: TrainRatio = None,
    parallel: Annotated[str | None, _older("--parallel", "BOOL", "false: --strategy sequential.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Prepare the dataset, going on from where an earlier run stopped."""
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
        str | None, _older("--intermediate-dir", "DIR", "The same as DIR.", callback=_local)
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Go on from batch files (batch_*.npz): split, normalize and place what they hold, as the job says."""
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
    """Do one config after the other, and show what the last one made."""
    from dataclasses import replace

    from penstock.prepare.entry import run as run_plan
    from penstock.show.asking.asked import plan_job, told
    from penstock.show.console import make_console, show, stdout_kept_clean
    from penstock.show.running.progress import Display
    from penstock.show.running.result import result_facts, result_tables

    with stdout_kept_clean():
        console = make_console(stderr=True)
        console.print(told(asked), end="", markup=False, highlight=False)
        for half in halves:
            with Display(console) as display:
                planned = plan_job(replace(asked, config=half))
                manifest = run_plan(planned, display.observe, redo)
    show(result_facts(planned, manifest, display.tracker.already_done), result_tables, as_json)


_WATCHED = "The `output:` of a job that runs in another terminal."
_EVENTS_AS_JSON = "Print each event as one line of JSON."


@app.command()
def watch(
    path: Annotated[str, typer.Argument(metavar="OUTPUT", callback=_dataset, help=_WATCHED)],
    as_json: Annotated[bool, typer.Option("--json", help=_EVENTS_AS_JSON)] = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Show the progress of a run that another process does, until it ends. Changes nothing."""
    from penstock.show.console import show
    from penstock.show.running.onlooker import onlooker_lines, watch_run

    ended = watch_run(path, as_json)
    if not (as_json and ended["ended"]):  # whose last line says it
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
    """Show what a run would do, hold and need. Writes nothing."""
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
    """Read every byte of a dataset again, and name each that is not the one that was written."""
    from penstock.shards.verify import verify as verify_dataset
    from penstock.show.console import show, waiting
    from penstock.show.verification import verification_facts, verification_tables

    with waiting("reading every byte again"):
        facts = verification_facts(path, verify_dataset(path))
    show(facts, verification_tables, as_json)
    return int(facts["exit_code"])


_EXPORTS = "hf: for datasets.load_from_disk. maxtext: ArrayRecord of tf.train.Example. zarr: arrays. hdf5: one file."
_EXPORT_PLACE = "Folder to write, or file for hdf5. [beside PATH: PATH-hf, PATH.zarr, PATH.h5]"
_SHARDS = "Largest size of a file in a folder. [200MB, zarr: 16MB]"


@app.command()
def export(
    path: Dataset,
    to: Annotated[str, _option("--to", "NAME", _EXPORTS)],
    output: Annotated[str | None, _option("--output -o", "PATH", _EXPORT_PLACE, callback=_local)] = None,
    split: Annotated[str | None, _option("--split", "NAME", "Only this split.")] = None,
    shard_size: Annotated[str | None, _option("--shard-size", "SIZE", _SHARDS)] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an export that is there.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Write a dataset in another format, whole or not at all."""
    from penstock.shards.foreign.exporting import exported_place
    from penstock.show.console import show, waiting
    from penstock.show.exported import exported_facts, exported_tables

    place = exported_place(path, to, output)
    with waiting(f"writing {place}"):
        facts = exported_facts(path, to, place, split, overwrite, shard_size)
    show(facts, exported_tables, as_json)


@app.command()
def inspect(
    path: Looked,
    split: Annotated[str | None, typer.Option(metavar="NAME", help="Show records of this split.")] = None,
    records: Annotated[int, typer.Option("--records", "-n", min=0, help="How many records to show.")] = 3,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show a batch as training gets it, decoded.")] = False,
    rejected: Annotated[bool, typer.Option("--rejected", help="Show rows that were set aside, and where.")] = False,
    batch: Annotated[int | None, _with_tokens("--batch", "K", "Its number. [0]", min=0)] = None,
    rows: Annotated[int | None, _with_tokens("--rows", "N", "Show so many. [3]", min=0)] = None,
    batch_size: Annotated[int | None, _with_tokens("--batch-size", "N", "Rows of it. [128]")] = None,
    length: Annotated[int | None, _with_tokens("--length", "N", _LENGTH.format(256))] = None,
    overflow: Annotated[str | None, _with_tokens("--overflow", "NAME", _LONGER_ROWS)] = None,
    fill: Annotated[str | None, _with_tokens("--fill", "NAME", "packed or one_key.")] = None,
    seed: Annotated[int | None, _with_tokens("--seed", "N", "Of the order. [0]")] = None,
    fields: Annotated[str | None, _with_tokens("--fields", "YAML", _FIELD_KINDS)] = None,
    augment: Annotated[bool | None, _with_tokens("--augment/--no-augment", None, _AUGMENTED)] = None,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Show what a dataset or .arrayrecord files hold: splits, schema, account, keys, a few records; or a batch."""
    from penstock.show.console import show, waiting
    from penstock.show.contents.inspect import inspect_facts, inspect_tables
    from penstock.show.contents.tokens import refuse_without_tokens, token_facts, token_tables

    view: dict[str, Any] = {"batch": batch, "rows": rows, "batch_size": batch_size, "length": length}
    view |= {"overflow": overflow, "fill": fill, "seed": seed, "fields": fields, "augment": augment}
    if rejected:
        from penstock.show.contents.rejected import rejected_facts, rejected_tables

        show(rejected_facts(path, records), rejected_tables, as_json)
        return
    with waiting("reading"):
        if tokens:
            facts = token_facts(path, split, view)
        else:
            refuse_without_tokens(view)
            facts = inspect_facts(path, split, records)
    show(facts, token_tables if tokens else inspect_tables, as_json)


_REPORT_PLACE = "The HTML file to write. [PATH-report.html, beside the dataset]"
_BENCH_REPORT = "Also write the result as an HTML file."


@app.command()
def report(
    path: Dataset,
    output: Annotated[str | None, _option("--output -o", "FILE", _REPORT_PLACE, callback=_local)] = None,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Write one HTML file about a dataset: memory, time, where every row went, distributions, job, checksums."""
    from penstock.show.console import show, waiting
    from penstock.show.report.writing import report_lines, write_report

    with waiting("reading"):
        facts = write_report(path, output)
    show(facts, report_lines, as_json)


@app.command()
def bench(
    path: Looked,
    step_ms: Annotated[
        float | None, _option("--step-ms", "MS", "Also against a consumer busy so long per step.")
    ] = None,
    split: Annotated[str | None, _option("--split", "NAME", "The split to load. [train]")] = None,
    batch_size: Annotated[int, _option("--batch-size", "N", "Rows of a batch.")] = 128,
    length: Annotated[int | None, _option("--length", "N", _LENGTH.format(1024))] = None,
    overflow: Annotated[str | None, _option("--overflow", "NAME", _LONGER_ROWS)] = None,
    fill: Annotated[str | None, _option("--fill", "NAME", "Of events: one_key, or packed. [packed]")] = None,
    workers: Annotated[str, _option("--workers -w", "N", "Threads; 0 makes each batch when asked, or auto.")] = "auto",
    memory: Annotated[str | None, _option("--memory -m", "SIZE", "For the whole process: 2GB, 512MiB, 50%.")] = None,
    seconds: Annotated[float, _option("--seconds", "S", "How long each measurement takes.")] = 5.0,
    cache: Annotated[str | None, _option("--cache", "NAME", "memory: hold all columns. disk: map them.")] = None,
    fields: Annotated[str | None, _option("--fields", "YAML", _FIELD_KINDS)] = None,
    augment: Annotated[bool | None, _option("--augment/--no-augment", None, _AUGMENTED)] = None,
    columns: Annotated[str | None, _option("--columns", "NAMES", "Only these, as arrays: x,label.")] = None,
    report: Annotated[str | None, _option("--report", "FILE", _BENCH_REPORT, callback=_local)] = None,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Measure how fast batches come, alone and against a consumer, and say why one would wait."""
    from penstock.show.bench import bench_facts, bench_tables
    from penstock.show.console import show, stdout_kept_clean, waiting
    from penstock.show.loading import Wanted
    from penstock.show.report.writing import refuse_bench_place, write_bench_report

    if report is not None:
        refuse_bench_place(report, path)
    view: dict[str, Any] = {"batch_size": batch_size, "length": length, "overflow": overflow, "fill": fill}
    view |= {"fields": fields, "augment": augment, "columns": columns, "cache": cache}
    wanted = Wanted(path=path, split=split, workers=workers, memory=memory, **view)
    with stdout_kept_clean(), waiting("measuring"):
        facts = bench_facts(wanted, seconds, step_ms)
        if report is not None:
            write_bench_report(facts, report)
    show(facts, bench_tables, as_json)


@app.command()
def doctor(
    output: Annotated[str, _option("--output -o", "PATH", "Where datasets will go.", callback=_local)] = ".",
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Check what this machine really allows: memory, cores, files, disk, versions."""
    from penstock.show.console import show
    from penstock.show.doctor import doctor_facts, doctor_tables

    show(doctor_facts(output), doctor_tables, as_json)


@app.command(name="warm-up")
def warm_up(
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Compile the loader's kernels ahead, such as in a container image: then no load() compiles anything."""
    from penstock.show.console import show, stdout_kept_clean, waiting
    from penstock.show.warming import warm_up_facts, warm_up_tables

    with stdout_kept_clean(), waiting("compiling"):
        facts = warm_up_facts()
    show(facts, warm_up_tables, as_json)


_FILES = "Your own files, folders or patterns, to propose a job for. None: every key of a job file, explained."


@app.command()
def init(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", callback=_local, help=_FILES, autocompletion=_paths_like)
    ] = None,
    output: Annotated[str | None, _option("--output -o", "FILE", "The job file to write. [job.yaml]")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of job files, for editors.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Look at your files and write a job that runs on them; or write a job file with every key explained."""
    from penstock.show.console import show, stdout_kept_clean, waiting

    if schema:
        from penstock.show.asking.job_schema import job_schema

        show(job_schema(), lambda _: [], as_json=True)
        return
    from penstock.show.asking.initial import initial_facts, initial_lines

    with stdout_kept_clean(), waiting("looking at the first rows"):
        facts = initial_facts(paths or [], output)
    show(facts, initial_lines, as_json)
