#!/usr/bin/env bash
# Does the SGLang engine work on this GPU? In under 8 minutes, on one GPU of 80 GB, says PASS or FAIL:
#
#   1. starts a target and a draft server with the options of docker/compose.yaml, side by side on one GPU;
#   2. runs the engine's conformance suite on each, against the Hugging Face model of the same weights: counts exact,
#      pooled states, rollback, exact verification, the prefix cache;
#   3. answers two problems with `target`, `draft` and `speculative_sampling`, draft and target on their servers.
#
# Needs SemanticSpec's environment with a CUDA build of PyTorch as it stands, and SGLang 0.5.23 in another one:
#
#   SGLANG_PYTHON=/opt/sglang/bin/python benchmarks/gpu_check.sh
#
# TARGET and DRAFT name other models (hub ids or folders; fetch them before: fetching counts). The default pair fits
# beside its Hugging Face copy; the 32B target of the profile `paper` does not.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${SGLANG_PYTHON:?set SGLANG_PYTHON to the python of an environment with sglang==0.5.23}
target=${TARGET:-deepseek-ai/DeepSeek-R1-Distill-Qwen-7B}
draft=${DRAFT:-deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B}
limit=480 # seconds for everything
out=$(mktemp -d)
began=$SECONDS
pids=()

finish() {
  for pid in "${pids[@]}"; do kill -TERM -- "-$pid" 2>/dev/null; done
  wait
}
trap finish EXIT

fail() {
  echo "FAIL after $((SECONDS - began)) s: $1 (logs in $out)"
  exit 1
}

left() { echo $((limit - (SECONDS - began))); }

serve() { # role, model, port, share of the GPU's memory
  PYTHONPATH=$PWD/src SGLANG_EXTERNAL_MODEL_PACKAGE=semspec.sglang_server \
    setsid "$python" -m sglang.launch_server --model-path "$2" --host 127.0.0.1 --port "$3" \
    --mem-fraction-static "$4" --cuda-graph-backend-prefill disabled --cuda-graph-max-bs-decode 16 \
    >"$out/$1.log" 2>&1 &
  pids+=($!)
}

await() { # role, port
  until "$python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$2/health', timeout=5)" 2>/dev/null; do
    kill -0 "${pids[-1]}" 2>/dev/null || fail "the $1 server ended: $(tail -1 "$out/$1.log")"
    [ "$(left)" -gt 0 ] || fail "the $1 server was not healthy in time"
    sleep 2
  done
  echo "$1 server healthy after $((SECONDS - began)) s"
}

# one after the other: the second one's share is of what the first one leaves
serve target "$target" 30000 0.45 && await target 30000
serve draft "$draft" 30001 0.35 && await draft 30001

for role in draft target; do
  port=$([ "$role" = target ] && echo 30000 || echo 30001)
  SEMSPEC_SGLANG_URL=http://127.0.0.1:$port SEMSPEC_SGLANG_MODEL=${!role} SEMSPEC_SGLANG_DEVICE=cuda SEMSPEC_SGLANG_WEIGHTS=bf16 \
    timeout "$(left)" python -m pytest -m sglang -p no:cacheprovider tests/e2e/test_sglang_real.py \
    >"$out/conformance-$role.log" 2>&1 || fail "conformance of the $role: $(tail -1 "$out/conformance-$role.log")"
  echo "$role: $(tail -1 "$out/conformance-$role.log")"
done

for id in 1 2; do echo "{\"id\": \"$id\", \"question\": \"What is $id + 17?\", \"answer\": \"$((id + 17))\"}"; done \
  >"$out/problems.jsonl"
timeout "$(left)" semspec bench --methods target,draft,speculative_sampling \
  --dataset "$out/problems.jsonl" --out "$out/bench" --set engine.kind=sglang --set models.target="$target" \
  --set models.draft="$draft" --set bench.max_tokens=256 >"$out/bench.log" 2>&1 \
  || fail "the bench: $(tail -1 "$out/bench.log")"
[ "$(wc -l <"$out/bench/results.jsonl")" -eq 6 ] || fail "the bench wrote no 6 answers"
tail -12 "$out/bench.log"

[ "$(left)" -gt 0 ] || fail "it took longer than $limit s"
echo "PASS in $((SECONDS - began)) s (logs in $out)"
