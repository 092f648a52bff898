"""Workers that come by themselves write the bytes of a run on one machine, however many they are."""

import json
import shutil

import pytest

from tests import golden
from tests.promises import members, workshop
from tests.promises.killing import assert_no_leftovers

KNOWN = json.loads(golden.FILE.read_text())
SOME = ["group, split, statistics", "text with provenance", "samples split and normalized", "split by position"]
JOBS = [name for name, job in golden.JOBS.items() if "intermediate_dir" not in job]  # which are two runs
COUNTS = (1, 2, 5) if workshop.THOROUGH else (2,)


@pytest.mark.proof
def test_every_kind_of_job_has_the_same_dataset_with_any_number_of_workers(tmp_path, monkeypatch):
    golden.make_folder(tmp_path / "golden")
    monkeypatch.syspath_prepend(str(tmp_path / "golden"))
    with members.machines(max(COUNTS)) as machines:
        for name in JOBS if workshop.THOROUGH else SOME:
            for count in COUNTS:
                output = tmp_path / "golden" / "out"
                job = members.watched(*golden.job_of(name, tmp_path / "golden", output), output)
                watcher = members.Watcher(job)
                for machine in machines[:count]:
                    machine.begin(output, workers=2 if count == 2 else 0)
                ended = [machine.end() for machine in machines[:count]]
                watcher.end()
                assert ended == [(0, "")] * count, name
                made = json.loads((output / "manifest.json").read_text())["digest"]
                assert made == KNOWN[name]["dataset"], f"{name}, {count} workers"
                assert_no_leftovers(output)
                assert not (output / ".penstock" / "plan.json").exists()
                shutil.rmtree(output)
