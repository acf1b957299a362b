"""The characters whose properties depend on the version of Python.

Python 3.10 contains Unicode 13.0, 3.11 contains 14.0, 3.12 contains 15.0 and 3.13 contains 15.1.
docs/reproducibility.md describes the limit.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

ADDED = """
61D 870-88E 890-891 898-89F 8B5 8C8-8D2 C3C C5D CDD CF3 ECE 170D 1715 171F 180F 1AC1-1ACE
1B4C 1B7D-1B7E 1DFA 20C0 2C2F 2C5F 2E53-2E5D 2FFC-2FFF 31EF 9FFD-9FFF A7C0-A7C1 A7D0-A7D1
A7D3 A7D5-A7D9 A7F2-A7F4 FBC2 FD40-FD4F FDCF FDFE-FDFF 10570-1057A 1057C-1058A 1058C-10592
10594-10595 10597-105A1 105A3-105B1 105B3-105B9 105BB-105BC 10780-10785 10787-107B0
107B2-107BA 10EFD-10EFF 10F70-10F89 11070-11075 110C2 1123F-11241 116B9 11740-11746
11AB0-11ABF 11B00-11B09 11F00-11F10 11F12-11F3A 11F3E-11F59 12F90-12FF2 1342F 13439-13455
16A70-16ABE 16AC0-16AC9 1AFF0-1AFF3 1AFF5-1AFFB 1AFFD-1AFFE 1B11F-1B122 1B132 1B155
1CF00-1CF2D 1CF30-1CF46 1CF50-1CFC3 1D1E9-1D1EA 1D2C0-1D2D3 1DF00-1DF1E 1DF25-1DF2A
1E030-1E06D 1E08F 1E290-1E2AE 1E4D0-1E4F9 1E7E0-1E7E6 1E7E8-1E7EB 1E7ED-1E7EE 1E7F0-1E7FE
1F6DC-1F6DF 1F774-1F776 1F77B-1F77F 1F7D9 1F7F0 1F979 1F9CC 1FA75-1FA77 1FA7B-1FA7C
1FA87-1FA88 1FAA9-1FAAF 1FAB7-1FABD 1FABF 1FAC3-1FAC5 1FACE-1FACF 1FAD7-1FADB 1FAE0-1FAE8
1FAF0-1FAF8 2A6DE-2A6DF 2B735-2B739 2EBF0-2EE5D 31350-323AF
"""
"""Characters that Unicode added after 13.0, up to 15.1, as ranges in hexadecimal."""

CHANGED = {0x1734}
"""HANUNOO SIGN PAMUDPOD: a nonspacing mark in Unicode 13.0, later a spacing mark."""

DIGEST = "3fb476f2f7b55bb3"
"""Digest of the properties of all other characters, the same in Python 3.10 to 3.13."""

CLASSES = [re.compile(text) for text in (r"\w", r"\d", r"\s")]
PREDICATES = (str.isalnum, str.isalpha, str.isdecimal, str.isdigit, str.isspace, str.isupper)
ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")


def dependent() -> set[int]:
    """Return the code points of characters that depend on the version of Python."""
    points = set(CHANGED)
    for text in ADDED.split():
        first, _, last = text.partition("-")
        points.update(range(int(first, 16), int(last or first, 16) + 1))
    return points


def properties(chars: Sequence[str]) -> Iterator[str]:
    """Yield the properties of characters that decide how this package reads a text."""
    lines = "\n".join(chars)  # characters of different lines are not composed
    yield from (lines, lines.lower(), lines.upper(), lines.casefold())
    yield "".join(map(unicodedata.category, chars))
    yield from ("".join(filter(each, chars)) for each in PREDICATES)
    yield from ("".join(each.findall(lines)) for each in CLASSES)
    yield from (unicodedata.normalize(form, lines) for form in ("NFC", "NFD", "NFKC"))


def test_other_characters_have_the_same_properties_in_all_versions_of_python() -> None:
    skipped = dependent() | set(range(0xD800, 0xE000))
    points = (point for point in range(sys.maxunicode + 1) if point not in skipped)
    chars = [char for char in map(chr, points) if unicodedata.category(char) != "Cn"]
    digest = hashlib.sha256()
    for text in properties(chars):
        digest.update(text.encode())
    assert digest.hexdigest()[:16] == DIGEST


def test_real_rows_contain_no_character_that_depends_on_the_version(shared: Path) -> None:
    points = dependent()
    files = sorted((shared / "data").rglob("*.json*"))
    for path in files:
        # JSON can contain characters as escapes of one or of two code units.
        text = ESCAPE.sub(lambda match: json.loads(f'"{match[0]}"'), path.read_text("utf-8"))
        assert not points & set(map(ord, set(text))), path
    assert len(files) > 20
