"""Start scripts from templates: one text file per trainer in `templates/`.

A template contains files. Each begins with a line `==== NAME`. The lines below it are its text,
with these forms:

    {name}              a value of the start (`Start`) or of its training settings (`Training`)
    {name!c:spec}       the value in the form `c` (see FORMS); `spec` is `VALUE=TEXT,VALUE=TEXT`, or
                        the text in place of a true value
    ?name line          the line only if the value is true; `?!name` if it is not; `?a|b` if one of
                        the values is true; `?a=text` if the value is this text
    *name line          the line once for each item of a mapping, with {key} and {value}
    ++++ template       the text of another template
    ---- settings       begins settings, each under a comment; `---- shell` if they are words of a
                        shell, which are quoted; `----` ends them

In settings, a line with a published value is under its source. Another line is under the last
comment of the template, which an empty line ends. A comment is written once for consecutive
settings. The file `check` is not written: it is code that examines the files with the installed
trainer.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from string import Formatter
from typing import Any

import yaml

from rag_rewards.scripts.start import Start
from rag_rewards.training.settings import Stated

HERE = "$PWD/"
"""The folder of the script, as the shell expands it."""
CHECK = "check"
"""The file of a template with the check of the settings."""
_KEY_IN_FOLDER = re.compile(r"[\w.]+=\$PWD/[\w./-]*")
_FILE = re.compile(r"^((?:\?\S+ )?)==== (.+)\n", re.MULTILINE)
_INCLUDE = re.compile(r"(?m)^((?:\?\S+ )?)\+{4} (\w+)$")
_PREFIX = re.compile(r"([?*])(\S+) ")


def render(template: str, start: Start, values: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the files of a template by name. `values` take precedence over those of the start."""
    page = _Page(start, values or {})
    _, *parts = _FILE.split(_text(template))
    return {
        page.format(name): page.text(text)
        for prefix, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        if name != CHECK and page.is_true(prefix)
    }


def check_of(template: str) -> str:
    """Return the check of a template, "" if it has none."""
    return _text(template).partition(f"==== {CHECK}\n")[2]


def _text(template: str) -> str:
    text = (files("rag_rewards.scripts") / "templates" / f"{template}.txt").read_text("utf-8")
    return _INCLUDE.sub(lambda line: re.sub("(?m)^", line[1], _text(line[2]).rstrip("\n")), text)


class _Page(Formatter):
    """The values of a template, and the source of the published value that was read last."""

    def __init__(self, start: Start, values: Mapping[str, Any]) -> None:
        self._start, self._values, self._source = start, values, ""

    def text(self, template: str) -> str:
        return "".join(f"{line}\n" for line in self._lines(template.splitlines()))

    def _lines(self, template: Iterable[str]) -> Iterator[str]:
        style, shown, comment = "", "", ""
        for line in self._selected(template):
            stripped = line.strip()
            if line.startswith("----"):
                style, shown, comment = line[4:].strip(), "", ""
            elif not style:
                yield self.format(line)
            elif not stripped:
                shown, comment = "", ""
                yield ""
            elif stripped.startswith("# "):
                comment = self.format(stripped)
            else:
                text, source = self._setting(line, is_shell=style == "shell")
                heading = f"# {source}" if source else comment
                if heading and heading != shown:
                    yield line[: len(line) - len(stripped)] + heading
                shown = heading
                yield text

    def _selected(self, template: Iterable[str]) -> Iterator[str]:
        for line in template:
            prefix = _PREFIX.match(line)
            if prefix is None:
                yield line
            elif prefix[1] == "*":
                for key, value in self._value(prefix[2]).items():
                    self._values = {**self._values, "key": key, "value": value}
                    yield line[prefix.end() :]
            elif self.is_true(prefix[0]):
                yield from self._selected([line[prefix.end() :]])

    def is_true(self, condition: str) -> bool:
        """Return whether a condition such as `?!name` holds; an empty one does."""
        if not condition:
            return True
        names = condition[1:].strip()
        return any(map(self._holds, names.lstrip("!").split("|"))) != names.startswith("!")

    def _holds(self, condition: str) -> bool:
        name, equals, text = condition.partition("=")
        value = self._value(name)
        return bool(str(value) == text if equals else value)

    def _value(self, name: str) -> Any:
        value = self.get_field(name, (), {})[0]
        self._source = ""
        return value

    def _setting(self, line: str, *, is_shell: bool) -> tuple[str, str]:
        """Return a setting, and the source of its value if it is a published one."""
        self._source = ""
        if not is_shell:
            return self.format(line), self._source
        words: list[str] = []
        for word in line.split():
            value = self._value(word[1:-1]) if re.fullmatch(r"\{[\w.]+\}", word) else None
            words += map(str, value) if isinstance(value, list) else [self.format(word)]
        indentation = " " * (len(line) - len(line.lstrip()))
        return indentation + " ".join(map(_shell_word, words)), self._source

    # --- string.Formatter ----------------------------------------------------------------------

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        if key in self._values:
            return self._values[str(key)]
        place = self._start if hasattr(self._start, str(key)) else self._start.training
        return getattr(place, str(key))

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
        value, key = super().get_field(field_name, args, kwargs)
        if not isinstance(value, Stated):
            return value, key
        self._source = value.source
        return value.value, key

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        return FORMS[conversion](value) if conversion in FORMS else value

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, bool) and format_spec:
            return format_spec if value else ""
        if isinstance(value, str) and format_spec.isdecimal():
            return re.sub(r"(?m)^(?=.)", " " * int(format_spec), value)
        names = dict(pair.split("=") for pair in format_spec.split(",")) if format_spec else {}
        return names.get(str(value), str(value))


def _shell_word(word: str) -> str:
    """Return a quoted word. A path in the folder of the script, or a key with one, is expanded."""
    if word.startswith(HERE) or _KEY_IN_FOLDER.fullmatch(word):
        return f'"{word}"'
    return shlex.quote(word)


# --- forms of values ----------------------------------------------------------------------------


def python_value(value: Any) -> str:
    """Return a value as Python code, text in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def keywords(options: Mapping[str, Any]) -> str:
    """Return options as keyword arguments.

    >>> keywords({"recipe": "arena", "hardened": True})
    'recipe="arena", hardened=True'
    """
    return ", ".join(f"{name}={python_value(value)}" for name, value in options.items())


def arguments(options: Mapping[str, Any]) -> str:
    """Return options as arguments, of which the recipe is positional.

    >>> arguments({"recipe": "arena", "hardened": True})
    '"arena", hardened=True'
    """
    return keywords(options).removeprefix("recipe=") if "recipe" in options else keywords(options)


_BARE = re.compile(r"[A-Za-z_./][\w./:@+-]*")
"""Texts that Hydra reads without quotes, except for literals."""
_LITERALS = {"true", "false", "null", "none", "nan", "inf"}


def hydra_value(value: Any) -> str:
    """Return a value as Hydra's command line reads it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{hydra_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    if isinstance(value, str) and (not _BARE.fullmatch(value) or value.lower() in _LITERALS):
        return "'" + value.replace("'", "\\'") + "'"
    return str(value)


def json_value(value: Any) -> str:
    """Return a number or a text in JSON, which YAML reads. `1e-06` needs a point in YAML 1.1."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text


def yaml_block(value: Any) -> str:
    """Return a mapping as lines of YAML that fit after 8 spaces, or a text as one scalar."""
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=72)
    return text.removesuffix("...\n").rstrip("\n")


def comment(text: str) -> str:
    """Return text for comments and docstrings: one line without `"` and backslashes.

    >>> comment('say "x"')
    "say 'x'"
    """
    return " ".join(text.split()).replace('"', "'").replace("\\", "/")


FORMS: Mapping[str | None, Callable[[Any], str]] = {
    "a": arguments,
    "c": comment,
    "f": lambda path: path if Path(path).is_absolute() else f"{HERE}{path}",
    "h": hydra_value,
    "j": json_value,
    "k": keywords,
    "n": lambda names: ", ".join(map(python_value, names)),
    "p": python_value,
    "q": lambda text: "'" + text.replace("'", "''") + "'",
    "u": json.dumps,
    "y": yaml_block,
}
"""The forms of values: arguments, a comment, a path in the folder of the script, Hydra, JSON,
keyword arguments, names as arguments, Python, quotation marks of YAML, JSON in ASCII, YAML."""
