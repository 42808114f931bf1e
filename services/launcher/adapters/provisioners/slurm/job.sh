# The rest of a node's job; the lines before it set node (of an array: stem and first), directory, python and setup. In the spirit
# of deploy/slurm/agent.sh.
set -euo pipefail
node=${node:-$stem-$((first + SLURM_ARRAY_TASK_ID))}
environment=$directory/$node/agent.env
# Until the agent listens to it, the signal would end it. The agent knows the end of its time without it, too.
trap "" USR1

# What the agent is told, its token included, came by a file of its owner's alone: Slurm keeps command lines, environments and
# scripts of jobs, and shows them. Who reads it first removes it, so a second job of this node finds nothing and ends.
mine=$environment.$SLURM_JOB_ID
if ! mv -- "$environment" "$mine" 2>/dev/null; then
    echo "agent: The token of node $node is gone: another job is this node, or the node was given back." >&2
    exit 65
fi
said=$(cat -- "$mine")
rm -f -- "$mine"
if [ -n "$setup" ]; then
    set +eu
    . "$setup"
    set -eu
fi
set -a
eval "$said"
set +a
unset said

# The agent's directory has a lock, which this shell and the agent hold. What a job left that was killed is removed by the user's
# next one on this machine, if no process names it any more (a worker may outlive its agent); the file says whose machine it was.
# It goes last, as a removal may be killed, too. One that was killed before the file was there, or after, has left nothing else.
ours=${TMPDIR:-/tmp}/tenuto-$(id -u)
place=$ours-$node-$SLURM_JOB_ID
remove() {
    find "$1" -mindepth 1 -maxdepth 1 ! -name job.lock -exec rm -rf -- {} + 2>/dev/null || true
    rm -rf -- "$1"
}
trap 'remove "$place"' EXIT # no other job ever has this name
trap 'exit 143' TERM # until the agent runs, which is told then
if command -v flock >/dev/null; then
    for left in "$ours"-*-*; do
        if [ -d "$left" ] && [ ! -L "$left" ] && [ -O "$left" ]; then rmdir -- "$left" 2>/dev/null || true; fi # only if empty
    done
    for lock in "$ours"-*/job.lock; do
        left=${lock%/job.lock}
        if [ ! -O "$lock" ] || [ "$(cat -- "$lock" 2>/dev/null)" != "$(uname -n)" ]; then continue; fi
        (
            flock --nonblock 9 || exit 0
            if ! grep -qszF -- "=$left" /proc/[0-9]*/environ; then remove "$left"; fi
        ) 9<"$lock" || true
    done
    while true; do
        mkdir -p -m 700 -- "$place"
        if ! { exec 9>"$place/job.lock"; } 2>/dev/null; then continue; fi # another job has just removed it
        flock 9
        if [ -e "$place/job.lock" ]; then break; fi # the same
    done
    uname -n >&9
fi
export TENUTO_AGENT_DIRECTORY=$place
export TENUTO_AGENT_LABELS=${TENUTO_AGENT_LABELS:+$TENUTO_AGENT_LABELS,}slurm_job=$SLURM_JOB_ID

# Slurm says when the job ends: newer ones in a variable, older ones if asked, but not always in the job's first moments. The
# number of an array's last task is also that of the whole array, so a task is asked for by its place.
job=$SLURM_JOB_ID
if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
end=${SLURM_JOB_END_TIME:-}
for _ in 1 2 3 4 5; do
    if [ -n "$end" ]; then break; fi
    shown=$(squeue --noheader --jobs "$job" --format %e 2>/dev/null || true)
    case $shown in
        [0-9]*) end=$(date -d "$shown" +%s || true) ;;
        NONE) break ;; # it may run for ever
        *) sleep 1 ;;
    esac
done
if [ -n "$end" ]; then
    export TENUTO_LEAVE_AT=$end
else
    echo "agent: Slurm does not say when job $SLURM_JOB_ID ends; its trials save at Slurm's signal." >&2
    export TENUTO_LEAVE_SIGNAL_SECONDS=${TENUTO_LEAVE_SIGNAL_SECONDS:-30} # KillWait, and SIGTERM means the end all the same
fi

# What Slurm tells a job would mislead trials: libraries take each process for a task of the job. CUDA_VISIBLE_DEVICES stays.
for variable in ${!SLURM_*} ${!SLURMD_*} ${!SBATCH_*}; do unset "$variable"; done

# This shell stays, to remove the agent's directory.
"$python" -m tenuto.cli.main agent run --name "$node" &
agent=$!
trap 'kill -TERM "$agent" 2>/dev/null || true' TERM
trap 'kill -USR1 "$agent" 2>/dev/null || true' USR1
code=0
while true; do
    code=0
    wait "$agent" || code=$?
    kill -0 "$agent" 2>/dev/null || break # a signal ends the wait, and not the agent
done
last=0
wait "$agent" || last=$?
if [ "$last" != 127 ]; then code=$last; fi
exit "$code"
