"""`penstock deploy modal` writes an app, says about what it costs, and refuses what Modal would not do."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli import main
from penstock.deploy.deploying import refuse_without_modal
from penstock.deploy.prices import Cost
from tests.deploy.making import deploy, make_job, refused

GIVEN = ("--memory", "2GB", "--cores", 4)


def constants_of(app: Path) -> dict[str, Any]:
    """Values of the app's literals in capitals."""
    tree = ast.parse(app.read_bytes())
    named = [each for each in tree.body if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)]
    return {each.targets[0].id: ast.literal_eval(each.value) for each in named if each.targets[0].id.isupper()}


def test_memory_and_cores_come_from_the_plan_and_the_cost_from_both(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    facts = deploy(capfd, "modal", make_job(tmp_path))
    assert facts["app"] == "job_modal.py"
    assert facts["memory_bytes"] >= 900 * 10**6
    assert facts["limit_bytes"] > facts["memory_bytes"]
    assert facts["disk_bytes"] is None
    assert facts["timeout"] == max(3600, int(4 * facts["projection"]["seconds"]))
    assert facts["requirement"] == f"penstock=={penstock.__version__}"
    cost = Cost(facts["cores"], facts["memory_bytes"])
    assert facts["dollars"] == pytest.approx(cost.dollars(facts["projection"]["seconds"]))
    assert facts["dollars_per_hour"] == pytest.approx(cost.dollars(3600))


def test_the_container_of_the_older_app_costs_what_its_document_says_at_most():
    """8 cores, 32 GB, 20 to 25 minutes: about $0.80 then."""
    assert 0.2 < Cost(8, 32 * 10**9).dollars(25 * 60) < 0.8


def test_disk_is_charged_as_memory_where_it_is_more():
    assert Cost(1, 10**9, disk_bytes=20 * 10**10).dollars(60) == pytest.approx(Cost(1, 10**10).dollars(60))


def test_the_app_names_the_files_that_the_job_names(tmp_path, capfd):
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "__init__.py").write_text("def step(batch):\n    return batch\n")
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "other.txt").write_text("not named")
    stages = ["steps:step", {"split": {"by": "user", "test": 0.3}}]
    job = make_job(tmp_path, input={"path": ["data/*.jsonl", "more/day=*/x.jsonl"]}, stages=stages)
    facts = deploy(capfd, "modal", job, *GIVEN, "-o", tmp_path / "app.py")
    assert facts["files"] == ["job.yaml", "data", "more", "beside.py", "steps"]
    assert constants_of(tmp_path / "app.py")["FILES"] == facts["files"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"input": "/elsewhere/*.jsonl"}, "input[0].path: /elsewhere/*.jsonl is not in the folder of the job file"),
        ({"output": "../prepared"}, "output: "),
        ({"input": "*.jsonl"}, "is a pattern in the folder of the job file itself"),
        ({"output": "."}, "is the folder of the job file itself"),
    ],
)
def test_what_is_not_beside_the_job_file_is_refused(keys, said, tmp_path, capfd):
    job = make_job(tmp_path / "job", **keys)
    (tmp_path / "job" / "rows.jsonl").write_text('{"user": "a", "x": 1}\n')
    error = refused(capfd, "modal", job, *GIVEN, "-o", tmp_path / "app.py")
    assert error["error"] == "ConfigError"
    assert said in error["what"]
    assert not (tmp_path / "app.py").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cores", 0], "--cores 0 is not between 1 and 64"),
        (["--cores", 65], "--cores 65 is not between 1 and 64"),
        (["--memory", "100MB"], "--memory 100MB is not between 268 MB and 360 GB"),
        (["--memory", "1TB"], "--memory 1TB is not between 268 MB and 360 GB"),
        (["--disk", "1MB"], "--disk 1MB is not between 550 GB and 3.3 TB"),
        (["--disk", "4TB"], "--disk 4TB is not between 550 GB and 3.3 TB"),
        (["--timeout", 0], "--timeout 0 is not between 60 and 86,400"),
        (["--timeout", 90_000], "--timeout 90000 is not between 60 and 86,400"),
        (["--retries", -1], "--retries -1 is not between 0 and 10"),
        (["--retries", 11], "--retries 11 is not between 0 and 10"),
        (["--volume", "a b"], "--volume 'a b' is not a name"),
        (["--volume", "v" * 65], "is not a name"),
        (["--volume", "ap-" + "x" * 22], "is not a name"),
        (["--wheel", "job.yaml"], "--wheel job.yaml is not a wheel of penstock"),
        (["-o", "modal.py"], "in place of the library"),
        (["-o", "app.txt"], "an app is a file of Python"),
    ],
)
def test_a_value_that_modal_would_not_take_is_refused_with_the_range(words, said, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = make_job(tmp_path)
    error = refused(capfd, "modal", job, *words)
    assert error["error"] == "ConfigError"
    assert said in error["what"]
    assert error["next_step"]
    assert not list(tmp_path.glob("*.py"))


def test_a_wheel_of_another_version_is_refused(tmp_path, capfd):
    wheel = tmp_path / "penstock-0.0.1-py3-none-any.whl"
    wheel.touch()
    words = ["--wheel", wheel, "-o", tmp_path / "app.py"]
    assert (
        f"is penstock 0.0.1, and this is {penstock.__version__}"
        in refused(capfd, "modal", make_job(tmp_path), *words)["what"]
    )


def test_every_path_is_a_literal_of_the_app(tmp_path, capfd):
    folder = tmp_path / 'it\'s """ {braces} \\ \udcff é 😀'
    job = make_job(folder, 'a "job".yaml', output="out '''")
    app = folder / "app.py"
    deploy(capfd, "modal", job, *GIVEN, "-o", app)
    found = constants_of(app)
    assert (found["HERE"], found["JOB"]) == (str(folder), 'a "job".yaml')
    assert found["FILES"] == ['a "job".yaml', "data"]
    assert app.read_bytes().isascii()


def test_without_credentials_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.deploy.deploying.find_spec", lambda _: True)
    with pytest.raises(penstock.ConfigError, match="--run needs credentials of Modal"):
        refuse_without_modal({"MODAL_CONFIG_PATH": str(tmp_path / "none.toml")})
    refuse_without_modal({"MODAL_TOKEN_ID": "ak", "MODAL_TOKEN_SECRET": "as"})


def test_what_is_printed_says_about_what_it_costs_and_how_to_run_it(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["deploy", "modal", str(make_job(tmp_path))]) == 0
    out = capfd.readouterr().out
    assert re.search(r"cost +about \$0\.01; about \$0\.\d\d per hour, at the prices of \w+ 20\d\d\n", out)
    assert "  modal run job_modal.py --upload" in out
    assert "  modal volume get penstock-job prepared ." in out


def test_the_app_has_the_python_of_this_machine(tmp_path, capfd):
    deploy(capfd, "modal", make_job(tmp_path), *GIVEN, "-o", tmp_path / "app.py")
    assert f'python_version="{sys.version_info.major}.{sys.version_info.minor}"' in (tmp_path / "app.py").read_text()
    assert json.dumps(constants_of(tmp_path / "app.py")["MEMORY"]) == '"1907MiB"'
    assert os.fspath(tmp_path) == constants_of(tmp_path / "app.py")["HERE"]
