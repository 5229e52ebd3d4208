#!/usr/bin/env bash
# Runs what docker/compose.yaml runs, without containers: the same commands and the same health checks, read from that
# file, on free ports of the loopback interface and with all state in a temporary folder. Ends every service and
# exits 0 when all have become healthy; else shows the logs and exits 1.
#
#   docker/native.sh            prefect, mlflow, worker; server too if SEMSPEC_SERVED names a bundle or models:/NAME@ALIAS
#   docker/native.sh --print    only say what would be run
#
# For a machine without a container engine, and for CI. `semspec`, `prefect` and `mlflow` must be on PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
limit=600 # seconds for all services to become healthy

services=(prefect mlflow worker)
[ -z "${SEMSPEC_SERVED:-}" ] || services+=(server)

state=$(mktemp -d)
mkdir "$state/prefect" "$state/mlflow"
declare -A pid
finish() {
  exec 2>/dev/null # the shell's own word about each job that it ends
  for signal in TERM KILL; do
    for leader in "${pid[@]}"; do kill "-$signal" -- "-$leader" 2>/dev/null || true; done
    for _ in {1..50}; do
      [ -z "$(jobs -pr)" ] || sleep 0.2
    done
  done
  wait
  rm -rf "$state"
}
trap finish EXIT
trap 'exit 130' INT TERM

read -r prefect_port mlflow_port reports_port server_port < <(python - <<'EOF'
import socket

taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
print(*(s.getsockname()[1] for s in taken))
EOF
)
export SEMSPEC_BIND=127.0.0.1 SEMSPEC_STATE=$state SEMSPEC_MODELS=${SEMSPEC_HOME:-$HOME/.cache/semspec}
export SEMSPEC_PREFECT_HOST=127.0.0.1 SEMSPEC_MLFLOW_HOST=127.0.0.1
export SEMSPEC_PREFECT_PORT=$prefect_port SEMSPEC_MLFLOW_PORT=$mlflow_port
export SEMSPEC_REPORTS_PORT=$reports_port SEMSPEC_SERVER_PORT=$server_port

# Each service as shell functions. ${NAME:-default} means the same to compose and to the shell, so it is left as it is.
functions=$(python - "${services[@]}" <<'EOF'
import shlex
import sys

from ruamel.yaml import YAML


def quoted(words):
    return " ".join('"' + w.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`") + '"' for w in words)


with open("docker/compose.yaml", encoding="utf-8") as file:
    services = YAML(typ="safe").load(file)["services"]
for name in sys.argv[1:]:
    service = services[name]
    environment = quoted(f"{k}={v}" for k, v in service["environment"].items())
    command, (kind, *check) = shlex.split(service["command"]), service["healthcheck"]["test"]
    assert kind == "CMD", name
    print(f"command_{name}=({quoted(command)})")
    print(f"start_{name}() {{ exec env {environment} {quoted(command)}; }}")
    print(f"healthy_{name}() {{ env {environment} {quoted(check)}; }}")
EOF
)
eval "$functions"

if [ "${1:-}" = --print ]; then
  for name in "${services[@]}"; do
    declare -n words="command_$name"
    echo "$name: ${words[*]@Q}"
  done
  exit 0
fi

set -m # a process group for each service
start() { # a service that ends is started again, as compose does; here twice at most
  for _ in 1 2 3; do ("start_$1") || true; sleep 2; done >"$state/$1.log" 2>&1 &
  pid[$1]=$!
}
healthy() {
  until "healthy_$1" >/dev/null 2>&1; do
    if ! kill -0 "${pid[$1]}" 2>/dev/null || ((SECONDS > limit)); then
      echo "$1 did not become healthy; its log:" >&2
      tail -n 40 "$state/$1.log" >&2
      exit 1
    fi
    sleep 1
  done
  echo "$1 is healthy after $SECONDS s"
}
start prefect
start mlflow
healthy prefect
healthy mlflow
for name in "${services[@]:2}"; do start "$name"; done # they depend on the first two
for name in "${services[@]:2}"; do healthy "$name"; done
echo "all services are healthy: ${services[*]}"
