"""Execute a notebook, and write it with its outputs.

    python tests/run_notebook.py examples/scores.ipynb [OUTPUT.ipynb]

The output contains no times and no identifiers of the run. The default output is the notebook.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def execute(source: Path, output: Path) -> None:
    """Execute the notebook `source` in its folder, and write it to `output`."""
    notebook = nbformat.read(source, as_version=4)
    client = NotebookClient(notebook, timeout=300, record_timing=False)
    client.execute(cwd=str(source.resolve().parent))
    notebook.metadata.pop("language_info", None)  # contains the version of Python
    nbformat.write(notebook, output)


if __name__ == "__main__":
    paths = [Path(each) for each in sys.argv[1:]]
    execute(paths[0], paths[-1])
