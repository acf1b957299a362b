#!/usr/bin/env bash
# Create the environment of a trainer. Trainers pin different versions of the same packages.
#   tests/trainers/make_environment.sh NAME FOLDER     (1 to 2 GB each; PYTHON picks the interpreter)
# rag_rewards/trainers.py lists the arguments of `pip install`, one step per line.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
name=${1:?which trainer} folder=${2:?the folder to make}
python=${PYTHON:-python3}
stamp=$folder/.installed
steps=$("$python" "$root/rag_rewards/trainers.py" "$name")
if [ -f "$stamp" ] && [ "$(grep -v '^#' "$stamp")" = "$steps" ]; then exit 0; fi
rm -rf "$folder"
"$python" -m venv "$folder"
pip() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
while IFS= read -r line; do
    # shellcheck disable=SC2086  (a line is several arguments)
    pip $line
done <<< "$steps"
pip --editable "$root"
echo "$steps" > "$stamp"
