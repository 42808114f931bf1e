#!/bin/sh
# One step of a pipeline: submits an experiment, waits for its end, and writes its id and best metric to the file $1.
# TENUTO_URL and TENUTO_TOKEN say where; STEP_KEY is the same when the step is run again, so that it waits for the same experiment.
# Ends with 0 completed, 2 failed or canceled, 4 not within TIMEOUT_SECONDS (it goes on), 64 a wrong command line, 1 anything else.
set -eu
rm -f "$1"  # of a run before this one: in the model directory it would be taken for code that has changed since
answer=$(tenuto exp create "${CONFIG:-config.yaml}" "${MODEL_DIR:-.}" --idempotency-key "$STEP_KEY" --json)
experiment=$(echo "$answer" | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
echo "experiment $experiment"
tenuto exp wait "$experiment" --timeout "${TIMEOUT_SECONDS:-86400}"
tenuto exp describe "$experiment" --json | python3 -c '
import json, sys
found = json.load(sys.stdin)
print(json.dumps({"experiment": found["id"], "best_trial": found["best_trial_id"], "best_metric": found["best_metric"]}))
' > "$1"
