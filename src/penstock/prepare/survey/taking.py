"""Taking: turn a Config into a Survey. Reads listings, footers, headers and a hundred rows; writes nothing."""

import math

from penstock.base.errors import PlanError
from penstock.base.fingerprint import fingerprint
from penstock.base.memory import Budget, own_memory
from penstock.base.sizes import format_size
from penstock.prepare.job.config import Config
from penstock.prepare.survey.agreement import agree
from penstock.prepare.survey.checking import check_stages
from penstock.prepare.survey.finding import find_files
from penstock.prepare.survey.first_rows import beginnings_of, first_rows
from penstock.prepare.survey.output import kept_origins
from penstock.prepare.survey.scouting import Scout, scout_sources
from penstock.prepare.survey.survey import MANY_FILES, Survey, describe_files, in_ranges, slices_of

_FILE_BYTES = 1536  # of the driver's memory for each file, at the most: benchmarks/RESULTS.md


def take_survey(config: Config, scout: Scout, budget: Budget | None = None) -> Survey:
    """`scout` calls a user's function somewhere, to see what it yields. Planning itself must fit in `budget`."""
    stages = config.build_stages()
    found = find_files(config)
    if budget:
        _refuse_too_many(len(found.files), budget)
    sources, scouted = scout_sources(config, found.files, scout)
    agreed = agree(config, stages, sources, found.files)
    reading = agreed.reading(found.formats)
    if budget:
        reading = reading.within(budget.for_rows)
    pieces = in_ranges(agreed.pieces, found.ranges, agreed.bad, reading)
    slices = slices_of(pieces, config.slice_bytes, len(found.files), stages, found.formats)
    if scouted:
        sample, stored_row_bytes = scouted.sample.select(list(agreed.columns)), scouted.stored_row_bytes
    else:
        sample, stored_row_bytes = first_rows(slices, reading)
        if not any(stage.code() for stage in stages):  # a user's function is given whole rows
            sample = beginnings_of(sample)
    made_from = fingerprint(describe_files(slices, agreed.bad))
    checked = check_stages(config, stages, sample, agreed.schema, agreed.columns, made_from)
    kept = kept_origins(config, checked, found.formats, slices)
    return Survey(
        stages=checked.stages,
        schema=agreed.schema,
        columns=agreed.columns,
        strict=agreed.strict,
        output=kept.output,
        slices=slices,
        formats=found.formats,
        files=found.count,
        bad_files=agreed.bad,
        unread=found.unread,
        sample=sample,
        stored_row_bytes=stored_row_bytes,
        given=checked.given,
        sources=agreed.sources,
        feature_names=checked.feature_names,
        optional=checked.optional,
        not_seen=agreed.not_seen,
        hashed=kept.hashed,
        lineage=kept.lineage,
        divided_by=agreed.divided_by,
        decoded_bytes=agreed.decoded_bytes,
    )


def _refuse_too_many(files: int, budget: Budget) -> None:
    """The driver holds something of every file: it must not be killed while it counts them."""
    if files < MANY_FILES:
        return
    held = own_memory().counted
    needed = held + files * _FILE_BYTES
    if needed > budget.allowed:
        raise PlanError(
            f"the input has {files:,} files, and the driver needs {format_size(needed)} to plan them: "
            f"{format_size(held)} of its own and about {_FILE_BYTES:,} bytes per file; "
            f"{budget} allows {format_size(budget.allowed)}",
            where="counted when the input was listed",
            next_step=f"memory: {math.ceil(1.5 * needed / 10e6) * 10}MB, or join small files into larger ones",
        )
