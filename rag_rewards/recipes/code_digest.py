"""Digests of functions and objects: the part of a signature that identifies a reward's own code."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rag_rewards.errors import UsageError

_PACKAGE = "rag_rewards"
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented))
_GENERATED = frozenset(
    "__init__ __repr__ __eq__ __lt__ __le__ __gt__ __ge__ __hash__ __setattr__ __delattr__ "
    "__replace__ __getstate__ __setstate__".split()
)
_FOLDERS = frozenset(("site-packages", "dist-packages"))
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def code_digest(value: Any) -> str:
    """Return a digest of a value: of the source of functions, and of the values that they read.

    A function is identified by its source, its defaults, the variables of an enclosing function
    and the globals that it reads, where they are data, functions or classes. Without source, its
    bytecode is read, which differs between versions of Python. An object is identified by its class
    and its state, installed code by its name, and an object or a function with an attribute
    `signature` by this text. The digest is the same in every process.

    Raises UsageError for a value without a stable identity.

    >>> def half(rollout, share=0.5): return share
    >>> def other(rollout, share=0.25): return share
    >>> code_digest(half) == code_digest(half), code_digest(half) == code_digest(other)
    (True, False)
    """
    try:
        return _Digests().of(value, "").hex()
    except (_Unstable, RecursionError) as error:
        what = str(error) if isinstance(error, _Unstable) else "a deeply nested value"
        raise UsageError(
            f"{what} has no stable identity, so that no signature can identify the reward: give "
            "the function or the object that contains it an attribute `signature`, a text that "
            "names everything that affects its values"
        ) from None


def without_addresses(text: str) -> str:
    """Return a repr without the addresses of objects, which differ in each process.

    >>> without_addresses("<Own object at 0x7f5c1>")
    '<Own object>'
    """
    return _ADDRESS.sub("", text)


class _Unstable(Exception):
    """A value has no stable identity."""


class _Digests:
    """Computes digests, each once. A cycle is identified by its length."""

    def __init__(self) -> None:
        self._digests: dict[int, tuple[Any, bytes]] = {}
        self._open: list[int] = []

    def of(self, value: Any, path: str) -> bytes:
        """Return the digest of a value; `path` describes it in an error."""
        if type(value) in _PLAIN:
            return _hash(type(value).__name__, repr(value))
        if id(value) in self._digests:
            return self._digests[id(value)][1]
        if id(value) in self._open:
            return _hash("cycle", str(len(self._open) - self._open.index(id(value))))
        self._open.append(id(value))
        try:
            digest = self._compute(value, path)
        finally:
            self._open.pop()
        self._digests[id(value)] = (value, digest)  # with the value, whose id stays its own
        return digest

    def _compute(self, value: Any, path: str) -> bytes:
        if isinstance(value, type):
            return self._class(value, path)
        if isinstance(text := getattr(value, "signature", None), str):
            return _hash("signature", text)
        if type(value) in (tuple, list):
            return _hash("list", *(self.of(each, f"{path}[{i}]") for i, each in enumerate(value)))
        if type(value) in (set, frozenset):
            return _hash("set", *sorted(self.of(each, f"an item of {path}") for each in value))
        if type(value) in (dict, types.MappingProxyType):
            return _hash("dict", *sorted(self._items(value, path)))
        if isinstance(value, types.FunctionType):
            return self._function(value, path)
        if isinstance(value, types.MethodType):
            return _hash("method", self.of(value.__func__, path), self.of(value.__self__, path))
        if isinstance(value, functools.partial):
            arguments = (value.args, value.keywords)
            return _hash("partial", self.of(value.func, path), self.of(arguments, path))
        if isinstance(value, types.CodeType):
            return self._bytecode(value, path)
        if isinstance(value, types.ModuleType):
            return _hash("module", value.__name__)
        wrapped = getattr(value, "__wrapped__", None)
        if callable(wrapped) and _is_installed(type(value).__module__):  # such as lru_cache
            return _hash("wrapped", type(value).__name__, self.of(wrapped, path))
        if isinstance(value, types.BuiltinFunctionType):
            owner = value.__self__
            bound = None if isinstance(owner, types.ModuleType) else owner
            name = f"{value.__module__}:{value.__qualname__}"
            return _hash("builtin", name, self.of(bound, path))
        return self._object(value, path)

    def _items(self, mapping: Mapping[Any, Any], path: str) -> Iterator[bytes]:
        for key, value in mapping.items():
            inner = f"{path}.{key}" if path and isinstance(key, str) else f"{path}{key!r}"
            yield _hash("item", self.of(key, inner), self.of(value, inner))

    def _function(self, function: types.FunctionType, path: str) -> bytes:
        code = function.__code__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        captured = {name: _content(cell) for name, cell in cells}
        state = (function.__defaults__, function.__kwdefaults__, captured)
        if _is_installed(function.__module__):
            name = f"{function.__module__}:{function.__qualname__}"
            return _hash("installed", name, self.of(state, path))
        source = _source(code)
        body = self._bytecode(code, path) if source is None else _hash("source", source)
        names, variables = _names(code), function.__globals__
        read = [
            _hash(name, self._lenient(variables[name], names))
            for name in sorted(names & variables.keys())
        ]
        attributes = [_hash(k, self._lenient(v)) for k, v in sorted(vars(function).items())]
        return _hash("function", body, self.of(state, path), *read, *attributes)

    def _lenient(self, value: Any, names: Iterable[str] = ()) -> bytes:
        """Return the digest of a global; of an object without stable identity, that of its type.

        Of a module of the user, the attributes that the function names are read.
        """
        if isinstance(value, types.ModuleType) and not _is_installed(value.__name__):
            read = sorted(set(names) & vars(value).keys())
            return _hash("own module", *(self._lenient(vars(value)[name]) for name in read))
        try:
            return self.of(value, "")
        except _Unstable:
            return _hash("type", f"{type(value).__module__}:{type(value).__qualname__}")

    def _bytecode(self, code: types.CodeType, path: str) -> bytes:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        sizes = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        table = getattr(code, "co_exceptiontable", b"")
        return _hash("bytecode", self.of((code.co_code, table, names, sizes, code.co_consts), path))

    def _class(self, cls: type, path: str) -> bytes:
        if _is_installed(cls.__module__):
            return _hash("installed", f"{cls.__module__}:{cls.__qualname__}")
        members = [
            _hash(name, self._lenient(_function_of(member)))
            for name, member in sorted(vars(cls).items())
            if _is_own_member(name, _function_of(member))
        ]
        return _hash(
            "class", cls.__qualname__, *members, *(self.of(b, path) for b in cls.__bases__)
        )

    def _object(self, value: Any, path: str) -> bytes:
        """Return the digest of the class and the state: fields, or what pickling would store."""
        kind = type(value)
        if is_dataclass(kind):
            state = {each.name: getattr(value, each.name, None) for each in fields(kind)}
            return _hash("object", self.of(kind, path), self.of(state, path))
        if isinstance(value, re.Pattern) or type(value).__module__.partition(".")[0] == "regex":
            return _hash("pattern", self.of((value.pattern, value.flags), path))
        if _is_third_party(kind.__module__):
            raise self._unstable(value, path)
        try:
            reduced = value.__reduce_ex__(2)
        except Exception as error:  # a class can raise anything
            raise self._unstable(value, path) from error
        if isinstance(reduced, str):
            return _hash("name", f"{value.__module__}:{reduced}")
        function, arguments, state, members, items = (*reduced, None, None, None)[:5]
        if isinstance(state, dict):
            caches = [k for k in state if _is_cache(kind, k)]
            state = {key: value for key, value in state.items() if key not in caches}
        rest = (arguments, None if members is None else list(members))
        pairs = None if items is None else dict(items)
        return _hash(
            "object",
            self.of(function, path),
            *(self.of(each, path) for each in (rest, state, pairs)),
        )

    @staticmethod
    def _unstable(value: Any, path: str) -> _Unstable:
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        return _Unstable(f"{path.strip('.') or 'the object'} ({name})")


def _hash(*parts: str | bytes) -> bytes:
    """Return a digest of a sequence of texts. The sizes separate them."""
    digest = blake2b(digest_size=8)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()


def _content(cell: types.CellType) -> Any:
    """Return the value of a variable of an enclosing function; a text if it has none yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return "without a value"


def _names(code: types.CodeType) -> set[str]:
    """Return the names that code reads from its module, and those of attributes."""
    inner = (_names(each) for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*inner)


# --- source ------------------------------------------------------------------------------------


def _source(code: types.CodeType) -> str | None:
    """Return the source of a function, or None if it cannot be read or is ambiguous."""
    try:
        if code.co_name != "<lambda>":
            return textwrap.dedent(inspect.getsource(code))
        return _source_of_lambda("".join(inspect.findsource(code)[0]), code.co_firstlineno)
    except (OSError, TypeError, SyntaxError, IndexError):
        return None


def _source_of_lambda(module: str, line: int) -> str | None:
    """Return the source of the only lambda that begins at a line, or None."""
    lambdas = [
        node
        for node in ast.walk(ast.parse(module))
        if isinstance(node, ast.Lambda) and node.lineno == line
    ]
    return ast.get_source_segment(module, lambdas[0]) if len(lambdas) == 1 else None


# --- classes and modules -----------------------------------------------------------------------


def _function_of(member: Any) -> Any:
    """Return the function of a property or a method of a class, or the member itself."""
    if isinstance(member, (staticmethod, classmethod)):
        return member.__func__
    if isinstance(member, property):
        return member.fget
    return member.func if isinstance(member, functools.cached_property) else member


def _is_own_member(name: str, member: Any) -> bool:
    """Return whether a member of a class affects its values: functions, and data without `__`."""
    is_special = name.startswith("__") and name.endswith("__")
    if isinstance(member, types.FunctionType):
        is_generated = name in _GENERATED and member.__code__.co_filename.startswith("<")
        return not is_generated
    return not is_special and not name.startswith("_abc_")


def _is_cache(kind: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(kind, name, None), functools.cached_property)


def _is_installed(module: str | None) -> bool:
    """Return whether a module is part of Python, of this package or of another installed one."""
    return _is_trusted(module) or _is_third_party(module)


def _is_trusted(module: str | None) -> bool:
    """Return whether a module is part of Python or of this package."""
    top = (module or "").partition(".")[0]
    return top == _PACKAGE or (top in sys.stdlib_module_names and top != "__main__")


def _is_third_party(module: str | None) -> bool:
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return not _FOLDERS.isdisjoint(Path(file).parts)
