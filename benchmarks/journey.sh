#!/usr/bin/env bash
# A user's day, played for real in the small world (profile synthetic): a run started as Prefect's UI does, a search,
# promotion, serving, a crash, a rollback, and the same results in a fresh clone. A line for each thing done and seen, with
# the seconds since its station began; exit code 0 when all was as it should be, else 1 and the station that was not.
#
#   benchmarks/journey.sh [FOLDER]     everything happens in FOLDER (default: a temporary one, removed after success)
#   JOURNEY_SET="contexts.questions=16 bench.limit=8" benchmarks/journey.sh      more parameters, for a shorter day
#
# The pipeline alone takes 6 minutes on two quiet cores; it runs once, and half of it again. Clones the last commit;
# `semspec` and the `test` extra of the current environment are used. All servers listen on free ports of the loopback
# interface and end with the script.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
keep=${1:-}
work=${keep:-$(mktemp -d)}
mkdir -p "$work/logs"
work=$(cd "$work" && pwd -P)
first=$work/first second=$work/second
helper() { python "$repo/benchmarks/journey.py" "$@"; }

station=start began=0
begin() { station=$1 began=$SECONDS; }
saw() { printf '%4d s  %-9s %s\n' "$((SECONDS - began))" "$station" "$*"; }
attentive() { "$@" & wait $!; } # bash obeys a signal at once while it waits, and later while a command runs
see() { # WORDS COMMAND...: what the command printed, behind the words
  attentive "${@:2}" >"$work/seen"
  saw "$1$(<"$work/seen")"
}
wrong() { echo "$*" >&2; false; }
quietly() { attentive "$@" >>"$work/logs/$station.log" 2>&1 || { tail -n 20 "$work/logs/$station.log" >&2; false; }; }
finish() {
  local code=$?
  trap - EXIT
  case $code in
    0) ;;
    130) echo "interrupted at the station $station" >&2 ;;
    *) echo "FAILED at the station $station; logs are in $work/logs" >&2 ;;
  esac
  cd /
  helper end "$work" || code=1
  if [ "$code" = 0 ] && [ -z "$keep" ]; then rm -rf "$work"; else echo "everything is kept in $work"; fi
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM

read -r prefect_port mlflow_port reports_port serve_port < <(helper ports 4)
export PREFECT_API_URL=http://127.0.0.1:$prefect_port/api MLFLOW_TRACKING_URI=http://127.0.0.1:$mlflow_port
export PREFECT_SERVER_ANALYTICS_ENABLED=false DO_NOT_TRACK=true MLFLOW_DISABLE_TELEMETRY=true DVC_NO_ANALYTICS=true
api=http://127.0.0.1:$serve_port

background() { # NAME COMMAND...: its process number is in $started
  "${@:2}" >>"$work/logs/$1.log" 2>&1 &
  started=$!
  disown
}
serve() { # the champion, until it answers
  background serve semspec serve --model "models:/$model@champion" --port "$serve_port"
  attentive helper answers "$api/health" "$started" || { tail -n 5 "$work/logs/serve.log" >&2; false; }
}
registry() { semspec registry list --json | helper "$@"; }
champion_is() { [ "$(registry champion)" = "$1" ] || wrong "version $1 is not the champion"; }
commit() { git -c user.name=journey -c user.email=journey@localhost commit --quiet --all --message "$1"; }

begin clone
git clone --quiet "$repo" "$first"
cd "$first"
saw "commit $(git rev-parse --short HEAD)"

begin servers
PREFECT_HOME=$work/prefect background prefect prefect server start --port "$prefect_port"
prefect=$started
background mlflow mlflow server --port "$mlflow_port" --workers 1 \
  --backend-store-uri "sqlite:///$work/mlflow.db" --artifacts-destination "$work/artifacts"
attentive helper answers "$PREFECT_API_URL/health" "$prefect"
attentive helper answers "$MLFLOW_TRACKING_URI/health" "$started"
background deploy semspec deploy --port "$reports_port"
see "prefect server, mlflow server, and semspec deploy with the deployments " helper offered pipeline bench tune

begin pipeline
# shellcheck disable=SC2086
more=$(helper words ${JOURNEY_SET:-})
see "by REST, as the UI does: " helper run pipeline "{\"profile\": \"synthetic\", \"overrides\": $more}"
model=$(registry name)
champion_is 1
saw "$model version 1 is registered, and the champion"
cp results/bench/results.jsonl "$work/version-1.jsonl"
commit "The first run"

begin tune
see "by REST: " helper run tune '{"name": "day", "apply": true, "tune": {"trials": 20}}'
see "" helper search results/tune/day/results.json 20
change='{}'
if git diff --quiet params.yaml; then change='{"decide": {"threshold": 0.5}}'; fi
saw "params.yaml has the winner: $(git diff --numstat params.yaml | cut -f 1) lines; the next run's form is $change"

begin promote
see "by REST: " helper run pipeline "$change"
see "version 2 is registered; the gate: " registry gate 2
if [ "$(registry champion)" != 2 ]; then
  if semspec registry promote 2 2>"$work/logs/promote.log"; then wrong "the gate has changed its mind"; fi
  saw "semspec registry promote 2 is refused, too; once more with --force"
  quietly semspec registry promote 2 --force
fi
champion_is 2
saw "version 2 is the champion"
commit "The second run"

begin serve
serve
see "models:/$model@champion decodes by " helper dial "$api"
see "" helper ask "$api" results/bench/results.jsonl 10

begin crash
see "" helper interrupt "$api" results/bench/results.jsonl "$started"
serve
see "started again on the same port: " helper ask "$api" results/bench/results.jsonl 10

begin rollback
see "" semspec registry rollback
champion_is 1
kill "$started"
helper gone "$started"
see "the server, after SIGTERM: " tail -n 1 "$work/logs/serve.log"
serve
see "models:/$model@champion decodes by " helper dial "$api"
see "" helper ask "$api" "$work/version-1.jsonl" 10

begin reproduce
quietly dvc remote add --default store "$work/store"
quietly dvc push
commit "Where the data is"
git clone --quiet "$first" "$second"
cd "$second"
quietly dvc pull
quietly dvc repro
grep -q "Data and pipelines are up to date" "$work/logs/reproduce.log" || wrong "dvc repro found something to do"
git diff --exit-code dvc.lock
saw "fresh clone, dvc pull, dvc repro: up to date, dvc.lock unchanged"
stages=(models entailment contexts sample cluster train)
quietly dvc repro --force --single-item "${stages[@]}"
git diff --exit-code dvc.lock
saw "dvc repro --force ${stages[*]}: made anew, the same bytes, dvc.lock unchanged"

station=end began=0
saw "all was as it should be"
