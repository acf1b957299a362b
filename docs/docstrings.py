"""A griffe extension: docstrings as Markdown, and the public names of packages with a stub."""

from __future__ import annotations

import re
from inspect import cleandoc
from pathlib import Path
from typing import Any

from griffe import Class, Extension, Module, Object

_COLUMNS = re.compile(r"\S {2,}\S")
_RECORDS = {"Evidence", "NamedTuple", "Struct", "msgspec.Struct"}
_CODE = re.compile(r"(``?[^`]+``?)")


class Docstrings(Extension):
    """Convert the docstrings of a package after it is loaded."""

    def on_module_members(self, *, mod: Module, **_: Any) -> None:
        """Set the public names of a package to those that its stub imports."""
        path = mod.filepath
        if isinstance(path, Path) and path.suffix == ".pyi":
            mod.exports = [name for name, member in mod.members.items() if member.is_alias]

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        _rewrite(pkg)


def _rewrite(within: Object) -> None:
    if within.docstring:
        within.docstring.value = markdown(within.docstring.value) + _fields(within)
    for member in within.members.values():
        if not member.is_alias:
            _rewrite(member)  # type: ignore[arg-type]


def _fields(record: Object) -> str:
    """Return the fields of a record class, which has no constructor in its source."""
    if not isinstance(record, Class) or not _RECORDS & set(map(str, record.bases)):
        return ""
    lines = [
        f"{name}: {field.annotation}" + (f" = {field.value}" if field.value is not None else "")
        for name, field in record.attributes.items()
        if field.annotation is not None and "property" not in field.labels
    ]
    return "\n\n```python\n" + "\n".join(lines) + "\n```" if lines else ""


def markdown(text: str) -> str:
    """Return a docstring as Markdown, paragraph by paragraph."""
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n\s*\n", cleandoc(text)))


def _paragraph(text: str) -> str:
    if text.startswith(">>>"):
        return f"```pycon\n{text}\n```"
    if text.startswith("    "):
        return text
    if any(_COLUMNS.search(line.strip()) for line in text.splitlines()):
        return f"```text\n{text}\n```"
    return "".join(part if part.startswith("`") else _plain(part) for part in _CODE.split(text))


def _plain(text: str) -> str:
    return re.sub(r"([*\[\]])", r"\\\1", text.replace("<", "&lt;"))
