#!/usr/bin/env bash
# An SGLang server on a CPU, for the conformance tests of the engine: an environment of its own (2.6 GB, made once), then
# docker/sglang/cpu.py with SemanticSpec's models. It computes as a server on a GPU does, slowly, one thread.
#
#   docker/sglang/cpu.sh                                   SmolLM2-135M on port 30000, until Ctrl-C
#   docker/sglang/cpu.sh --model-path FOLDER --port 30001  any option of SGLang's
#   pytest -m sglang                                       the tests, in SemanticSpec's own environment
#
# PYTHON makes the environment (3.11 or later) in SEMSPEC_SGLANG_VENV. TORCH_INDEX: where PyTorch's CPU build is, if the
# package index has only the one with CUDA (https://download.pytorch.org/whl/cpu).
set -euo pipefail
cd "$(dirname "$0")/../.."
home=${SEMSPEC_HOME:-$HOME/.cache/semspec}
venv=${SEMSPEC_SGLANG_VENV:-$home/sglang-venv}

# What SGLang 0.5.23 imports where it serves a plain language model; it asks for much more, most of it for CUDA.
packages=(
  transformers==5.19.0 triton compressed-tensors==0.18.0 apache-tvm-ffi==0.1.11 openai==2.8.0
  openai-harmony==0.0.4 soundfile==0.13.1 sentencepiece==0.2.1 uvicorn uvloop fastapi python-multipart
  aiohttp cachetools dill einops gguf interegular IPython jsonschema msgspec numpy orjson packaging partial_json_parser
  pillow prometheus-client psutil pybase64 pydantic pyzmq regex requests scipy setproctitle tiktoken tqdm watchfiles
  xxhash zstandard
)
if [ ! -e "$venv/ready" ]; then
  "${PYTHON:-python3}" -m venv "$venv"
  pip=("$venv/bin/pip" install --quiet --disable-pip-version-check)
  "${pip[@]}" torch==2.13.0 ${TORCH_INDEX:+--index-url "$TORCH_INDEX"}
  "${pip[@]}" --no-deps sglang==0.5.23 torchvision==0.28.0 xgrammar==0.2.7
  "${pip[@]}" "${packages[@]}" torch==2.13.0
  touch "$venv/ready"
fi

export PYTHONPATH=$PWD/src SGLANG_EXTERNAL_MODEL_PACKAGE=semspec.sglang_server
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 DO_NOT_TRACK=1
[[ " $* " == *" --model-path "* ]] || set -- --model-path "$home/models/smollm2-135m-instruct" "$@"
[[ " $* " == *" --port "* ]] || set -- --port 30000 "$@"
exec "$venv/bin/python" docker/sglang/cpu.py "$@"
