#!/usr/bin/env bash
# The main job, as a user would do it: a cluster of its own, a real search, its result, and the verdict on its record.
# Needs `tenuto` on PATH (make demo sees to that). Leaves nothing running; the data stays in $TENUTO_DATA_DIRECTORY.
set -euo pipefail
cd "$(dirname "$0")"
export TENUTO_DATA_DIRECTORY="${TENUTO_DATA_DIRECTORY:-$PWD/../.demo}"
ACCURACY_MIN=0.97

finish() { tenuto down >/dev/null 2>&1 || true; }
trap finish EXIT INT TERM

tenuto up --detach --cpu-slots 2
id=$(tenuto exp create digits/config.yaml digits --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
tenuto exp wait "$id" --follow
tenuto exp describe "$id"
tenuto exp replay "$id" --verify
tenuto log verify
tenuto exp describe "$id" --json | python3 -c '
import json, sys
experiment = json.load(sys.stdin)
accuracy, trial = experiment["best_metric"], experiment["best_trial_id"]
print(f"best trial {trial}: accuracy {accuracy:.4f}")
sys.exit(f"accuracy {accuracy:.4f} is not above '"$ACCURACY_MIN"'") if accuracy <= '"$ACCURACY_MIN"' else None
'
tenuto down
