"""The example notebook runs, and the outputs in the file are those of this version.

Write the notebook with new outputs by `python tests/run_notebook.py examples/scores.ipynb`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples" / "scores.ipynb"


def _explanations(path: Path) -> list[str]:
    """Return the HTML that this package wrote. That of pandas depends on the version of pandas."""
    texts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        for output in cell.get("outputs", []):
            html = "".join(_data(output).get("text/html", []))
            if '<pre style="font' in html:
                texts.append(html)
    return texts


def _data(output: dict[str, Any]) -> dict[str, Any]:
    assert output["output_type"] == "execute_result", output
    data: dict[str, Any] = output["data"]
    return data


def test_the_notebook_runs(tmp_path: Path) -> None:
    output = tmp_path / "scores.ipynb"
    command = [sys.executable, str(ROOT / "tests" / "run_notebook.py"), str(NOTEBOOK), str(output)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(_explanations(output)) == 2
    assert _explanations(output) == _explanations(NOTEBOOK)


def test_the_notebook_of_a_training_is_valid_and_has_no_outputs() -> None:
    """tests/trainers/trl/test_trl_notebook.py executes it."""
    notebook = nbformat.read(ROOT / "examples" / "train.ipynb", as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)
