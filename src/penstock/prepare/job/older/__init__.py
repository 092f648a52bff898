"""Configs of older programs -> job files of penstock."""

from typing import Any

from penstock.prepare.job.job_file import Translated
from penstock.prepare.job.older import krill, preprocessing


def translated(written: dict[str, Any], keys: tuple[str, ...]) -> Translated:
    """The job file that was written, or the one that another program's config means. `keys` are those of a job."""
    if preprocessing.BLOCK in written:
        return preprocessing.translate(written, keys)
    return krill.translate(written, keys) if krill.is_krill(written) else Translated(written, ())
