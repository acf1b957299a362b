"""`make audit` covers all dependencies that a user can install."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).resolve().parents[2]
NOT_OF_USERS = {"dev", "docs"}


def test_the_audit_has_every_extra_of_users():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    line = re.search(r"^AUDIT_EXTRAS := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert line
    assert set(line[1].split()) == project["optional-dependencies"].keys() - NOT_OF_USERS
