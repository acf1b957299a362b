"""The examples in the docstrings of the adapters."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest
import rag_rewards_adapters

FOLDER = Path(str(rag_rewards_adapters.__file__)).parent
NAMES = sorted(
    ".".join(path.relative_to(FOLDER).with_suffix("").parts).removesuffix(".__init__")
    for path in FOLDER.rglob("*.py")
    if ">>>" in path.read_text("utf-8")
)


@pytest.mark.parametrize("name", NAMES)
def test_doctests(name: str) -> None:
    try:
        module = importlib.import_module(f"rag_rewards_adapters.{name}")
    except ModuleNotFoundError as error:
        pytest.skip(f"requires the package {error.name}")
    failed, attempted = doctest.testmod(module)
    assert (failed, attempted > 0) == (0, True)
