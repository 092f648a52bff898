"""Slurm script: an Array -> the text that sbatch takes.

Every element runs the same lines, in any order and again after a requeue:

- The first one begins the run. Each is a worker: it claims tasks, and one of them finishes the dataset. So no element
  is special, and none depends on another.
- SIGTERM reaches penstock through the shell, which would otherwise keep it back. Exit code 130 means: my tasks are
  given back, run me again. The element requeues itself, unless Slurm is ending it: a cancelled one would come back.
"""

import shlex

from penstock.deploy.slurm import GRACE_SECONDS, Array
from penstock.deploy.writing import own_version

_SCRIPT = """\
#!/bin/bash
# penstock {version}: prepares a dataset with up to {nodes} nodes. Written by `penstock deploy slurm`.
#
#   sbatch SCRIPT             submit it, from a folder that all nodes see; its logs are written there
#   squeue --me               see its elements; docs/how-to/slurm.md says how to see its progress
#
# Elements may start in any order, and may be requeued or cancelled at any time. To continue, submit the script again.
{options}

set -u
penstock=({python} -m penstock)  # of this environment: all nodes must see it at the same path
job={job}
output={output}
memory={worker_mib}MiB  # {memory_mib} MiB, less a little for this shell
cores={cores}
element=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID

child=
stopping=
stop() {{
  stopping=yes
  [[ -z $child ]] || kill -TERM "$child" 2>/dev/null
}}
trap stop TERM

# Run a command in the background and wait: bash would keep SIGTERM back until a command in the foreground ends.
attended() {{
  [[ -z $stopping ]] || return 130
  "$@" &
  child=$!
  [[ -z $stopping ]] || stop  # it came while the command started
  while wait "$child"; kill -0 "$child" 2>/dev/null; do :; done
  wait "$child"
}}

leave() {{
  # 143: SIGTERM came while Python started. COMPLETING: Slurm ends this element itself, and a requeue would bring back
  # one that was cancelled.
  if [[ $1 == 130 || $1 == 143 ]] && scontrol show job --oneliner "$element" | grep -q ' JobState=RUNNING '; then
    scontrol requeue "$element"
  fi
  exit "$1"
}}

attended "${{penstock[@]}}" work "$output" --job "$job" --memory "$memory" --workers "$cores"
{ending}"""

# `work` makes no export: a `run` that finds the dataset finished does. 5: another element is doing it.
_EXPORT = """
attended "${penstock[@]}" run "$job" --engine workers --memory "$memory" --workers "$cores"
code=$?
[[ $code == 5 ]] && leave 0
leave "$code"
"""


def script_text(array: Array) -> str:
    """The script. Every path and name in it is quoted for the shell, or consists of harmless characters."""
    return _SCRIPT.format(
        version=own_version(),
        nodes=f"{array.nodes:,}",
        options="\n".join(f"#SBATCH --{option}" for option in _options(array)),
        python=shlex.quote(array.python),
        job=shlex.quote(array.job),
        output=shlex.quote(array.output),
        worker_mib=array.worker_mib,
        memory_mib=array.memory_mib,
        cores=array.cores,
        ending=f'code=$?\n[[ $code == 0 ]] || leave "$code"\n{_EXPORT}' if array.exports else "leave $?\n",
    )


def _options(array: Array) -> list[str]:
    """Options of sbatch. It reads them without a shell, so all of them are words of harmless characters."""
    wanted = [f"time={array.time.strip()}"] if array.time else []
    wanted += [f"partition={array.partition}"] if array.partition else []
    return [
        f"job-name={array.name}",
        f"array=0-{array.nodes - 1}",
        "nodes=1",
        "ntasks=1",
        f"cpus-per-task={array.cores}",
        f"mem={array.memory_mib}M",
        *wanted,
        "requeue",
        "open-mode=append",
        f"signal=B:TERM@{GRACE_SECONDS}",
        "output=%x-%A_%a.out",
    ]
