#!/usr/bin/env bash
# An environment of its own for a trainer: trainers pin what others pin otherwise.
#   tests/trainers/make_environment.sh NAME FOLDER     (1 to 2 GB each; PYTHON picks the interpreter)
# NAME is a file beside this one, NAME.txt: what to install, one step a line, since the order
# matters (torch first: an index that has a build for processors alone gives that one).
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
