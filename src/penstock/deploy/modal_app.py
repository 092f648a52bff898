"""Modal app: a Container -> the text of an app for `modal run` and `modal deploy`.

One container does the job, since Volumes have no locks: the last writer of a file wins. The job's folder is mirrored in
the Volume. The ledger lies there too, so an attempt that was preempted is resumed by the next one.
"""

import os
import re

from penstock.deploy.modal import Container
from penstock.deploy.writing import own_version

_APP = '''\
"""{name}: prepares a dataset with penstock {version} in one container. Written by `penstock deploy modal`.

    modal run {file} --upload      upload the job and its files, and run it
    modal run {file}               run it, or resume it, with the files that are in the Volume
    modal volume get {volume} {output} .
"""

import os
import subprocess
import sys
import time

import modal

HERE = {folder}  # on the machine that uploads
FILES = {files}  # of that folder: the job, its input, and what its stages name
JOB = {job}
FOLDER = "/data"  # the Volume in the container: it mirrors HERE
MEMORY = "{memory}MiB"
WORKERS = "{cores}"
COMMIT_SECONDS = 60  # if the machine dies, at most this much work is lost
STOP_SECONDS = 20  # for penstock to commit finished tasks when the container must stop
MISTAKES = (2, 3, 4, 5, 6)  # exit codes of penstock for errors that another attempt would meet again

app = modal.App({app_name})
volume = modal.Volume.from_name({volume_name}, create_if_missing=True)
image = (
    modal.Image.debian_slim(python_version="{python}")
{install}
    .env({{"PYTHONUNBUFFERED": "1"}})
)


@app.function(
    image=image,
    volumes={{FOLDER: volume}},
    cpu=({cores}, {cores}),  # request and limit, in physical cores
    memory=({memory}, {limit}),  # request and hard limit, in MiB
    ephemeral_disk={disk},  # MiB; without a number, the 512 GiB that every container has
    timeout={timeout},  # seconds per attempt
    retries=modal.Retries(max_retries={retries}, initial_delay=10.0, backoff_coefficient=2.0),
    max_containers=1,
)
def prepare() -> int:
    """Run the job to its end, and return penstock's exit code. Resumes what an earlier attempt left in the Volume."""
    job = os.path.join(FOLDER, JOB)
    options = ["--engine", "local", "--memory", MEMORY, "--workers", WORKERS]
    process = subprocess.Popen([sys.executable, "-m", "penstock", "run", job, *options])
    try:
        while process.poll() is None:
            wait(process, COMMIT_SECONDS)
            commit()
    finally:  # also if Modal preempts the container, or at its time limit
        if process.poll() is None:
            process.terminate()
            wait(process, STOP_SECONDS)
        volume.commit()
    if process.returncode and process.returncode not in MISTAKES:
        raise RuntimeError(f"penstock ended with exit code {{process.returncode}}; the next attempt resumes")
    return process.returncode


def wait(process, seconds) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass


def commit() -> None:
    """Commit the Volume. It may refuse while its files are in use; Modal also commits it by itself."""
    try:
        volume.commit()
    except Exception as error:
        print(f"the Volume was not committed now: {{error}}", file=sys.stderr)


@app.local_entrypoint()
def main(upload: bool = False) -> None:
    if upload:
        began = time.monotonic()
        with volume.batch_upload(force=True) as batch:
            for name in FILES:
                put = batch.put_directory if os.path.isdir(os.path.join(HERE, name)) else batch.put_file
                put(os.path.join(HERE, name), "/" + name)
        print(f"uploaded {{len(FILES)}} files and folders in {{time.monotonic() - began:.0f}} s")
    code = prepare.remote()
    if code:
        sys.exit(code)
'''


def app_text(container: Container, path: str, output: str) -> str:
    """The app. Every path and name in it is a literal of Python."""
    folder, job = os.path.split(container.job)
    return _APP.format(
        name=container.name,
        version=own_version(),
        file=_words(os.path.basename(path)),
        volume=container.volume,
        output=_words(output),
        folder=_literal(folder),
        files=_listed(container.files),
        job=_literal(job),
        memory=container.memory_mib,
        limit=container.limit_mib,
        cores=container.cores,
        app_name=_literal(container.name),
        volume_name=_literal(container.volume),
        python=container.python,
        install=_install(container),
        disk=container.disk_mib,
        timeout=container.timeout,
        retries=container.retries,
    )


def _words(name: str) -> str:
    """A name inside the docstring: nothing in it may end that, or begin an escape."""
    return name if re.fullmatch(r"[\w./-]+", name, re.ASCII) else ascii(ascii(name))[1:-1]


def _literal(text: str) -> str:
    """The text as a string of Python, in ASCII: names of files need not be UTF-8."""
    return f'"{text}"' if re.fullmatch(r"[ -~]*", text) and not set(text) & set('"\\') else ascii(text)


def _listed(files: tuple[str, ...]) -> str:
    return "".join(["[\n", *(f"    {_literal(each)},\n" for each in files), "]"])


def _install(container: Container) -> str:
    """Methods of the image: this version of penstock, from the index or from a wheel."""
    if not container.wheel:
        return f"    .pip_install({_literal(container.requirement)})"
    place = f"/tmp/{os.path.basename(container.wheel)}"
    return (
        f"    .add_local_file({_literal(container.wheel)}, {_literal(place)}, copy=True)\n"
        f"    .pip_install({_literal(place + container.extras_text)})"
    )
