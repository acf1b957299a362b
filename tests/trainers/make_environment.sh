#!/usr/bin/env bash
# Create the environment of a trainer. Trainers pin different versions of the same packages.
#   tests/trainers/make_environment.sh NAME FOLDER     (1 to 2 GB each; PYTHON picks the interpreter)
# NAME.txt beside this file lists the arguments of `pip install`, one step per line. The order
# matters: torch comes first, so that an index with CPU builds provides it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=${1:?which trainer} folder=${2:?the folder to make}
pins=$here/$name.txt
stamp=$folder/.installed
if [ -f "$stamp" ] && cmp -s "$stamp" "$pins"; then exit 0; fi
rm -rf "$folder"
"${PYTHON:-python3}" -m venv "$folder"
pip() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
while IFS= read -r line; do
    case $line in ''|'#'*) continue ;; esac
    # shellcheck disable=SC2086  (a line is several arguments)
    pip $line
done < "$pins"
pip --editable "$here/../.."
cp "$pins" "$stamp"
