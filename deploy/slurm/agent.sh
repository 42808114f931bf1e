#!/bin/bash
# One agent of Tenuto on each node of a Slurm job: an ordinary user submits it, nothing is installed, nobody is root.
#
#   sbatch --array=0-3 --time=4:00:00 --gres=gpu:4 --cpus-per-task=16 deploy/slurm/agent.sh
#
# Each task of the array is a job of its own, with one node: it starts when it can, and ends without the others.
# Settings come from a file that all nodes see (TENUTO_SLURM_SETTINGS); docs/slurm.md has all of it.
#
# Slurm's own options, where the command line does not give others. The signal is a second warning: the agent also knows the time
# at which its job ends.
#SBATCH --job-name=tenuto
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
# Until the agent listens to it, the signal would end this shell. The agent knows the end of its time without it, too.
trap "" USR1

directory=${TENUTO_SLURM_DIRECTORY:-$HOME/.tenuto-slurm}
settings=${TENUTO_SLURM_SETTINGS:-$directory/agent.env}
python=${TENUTO_SLURM_PYTHON:-python3}

if [ ! -r "$settings" ]; then
    echo "agent: $settings cannot be read; it has the cluster's TENUTO_NATS_URL (docs/slurm.md)." >&2
    exit 64
fi
set -a
. "$settings"
set +a

# A name for each task of the array, always the same: it has credentials, and users find it in `tenuto agent ls`.
name=${SLURM_JOB_NAME:-tenuto}-${SLURM_ARRAY_TASK_ID:-0}
credentials=$directory/credentials/$name.env
if [ -r "$credentials" ]; then
    set -a
    . "$credentials"
    set +a
fi
export TENUTO_AGENT_ID=${TENUTO_AGENT_ID:-$name}

# The agent's own files are on the node's disk; what must last is sent before the job ends.
export TENUTO_AGENT_DIRECTORY=${TENUTO_AGENT_DIRECTORY:-${TMPDIR:-/tmp}/tenuto-$(id -u)-$name}
export TENUTO_CPU_SLOTS=${TENUTO_CPU_SLOTS:-${SLURM_CPUS_ON_NODE:-0}}
export TENUTO_AGENT_LABELS=${TENUTO_AGENT_LABELS:+$TENUTO_AGENT_LABELS,}slurm_job=$SLURM_JOB_ID

# Slurm says when the job ends: newer ones in a variable, older ones if asked, but not always in the job's first moments. The
# number of an array's last task is also that of the whole array, so a task is asked for by its place.
job=$SLURM_JOB_ID
if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
end=${TENUTO_LEAVE_AT:-${SLURM_JOB_END_TIME:-}}
for _ in 1 2 3 4 5; do
    if [ -n "$end" ]; then break; fi
    said=$(squeue --noheader --jobs "$job" --format %e 2>/dev/null || true)
    case $said in
        [0-9]*) end=$(date -d "$said" +%s || true) ;;
        NONE) break ;; # it may run for ever
        *) sleep 1 ;;
    esac
done
if [ -n "$end" ]; then
    export TENUTO_LEAVE_AT=$end
else
    echo "agent: Slurm does not say when job $job ends; its trials save at Slurm's signal." >&2
fi

# What Slurm tells a job would mislead trials: libraries take each process for a task of the job. CUDA_VISIBLE_DEVICES stays.
for variable in ${!SLURM_*} ${!SLURMD_*} ${!SBATCH_*}; do unset "$variable"; done

# The agent takes the place of this shell, so that Slurm's signals reach it.
exec "$python" -m tenuto.workers.agent
