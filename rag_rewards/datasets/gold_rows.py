"""Read the rows of a data set's file as gold data, and recognize files of other data sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import msgspec

from rag_rewards.datasets.catalog import DataSet
from rag_rewards.datasets.gold import Gold, Problem, source_fields
from rag_rewards.datasets.read_options import ALL, ReadOptions
from rag_rewards.datasets.records import Records
from rag_rewards.errors import OptionError, UsageError
from rag_rewards.rows.column_map import missing_fields_hint
from rag_rewards.rows.decoding import row_error

PACKAGE_ROWS = "rows"
"""The name of the data set whose rows have the fields of this package."""


class _Form(NamedTuple):
    """A form of rows, identified by fields that it has and fields that it lacks."""

    data_sets: tuple[str, ...]
    has: frozenset[str]
    lacks: frozenset[str] = frozenset()
    unsupported: str = ""
    """Description of a form that is not supported, and what to use instead."""


def _form(data_sets: str, has: str, lacks: str = "", unsupported: str = "") -> _Form:
    present, absent = frozenset(has.split()), frozenset(lacks.split())
    return _Form(tuple(data_sets.split()), present, absent, unsupported)


_FORMS = (
    _form("2wikimultihopqa", "question context supporting_facts evidences"),
    _form("hotpotqa", "question context supporting_facts", "evidences"),
    _form("musique", "question paragraphs answer"),
    _form("asqa", "question docs qa_pairs"),
    _form("eli5", "question docs claims"),
    _form("asqa qampari eli5 expertqa", "question docs answers", "qa_pairs claims"),
    _form("crag", "query search_results"),
    _form("crag", "query retrieved_chunks"),
    _form("ragqa", "query golden_doc reference ground_truth"),
    _form("prgb", "query golden_doc placeholder_item"),
    _form("pubmedqa", "QUESTION CONTEXTS"),
    _form("pubmedqa", "question context long_answer"),
    _form("nq triviaqa retrieved", "question answers ctxs"),
    _form("nq triviaqa retrieved", "question answers positive_ctxs"),
    _form("rows", "question documents"),
    _form(
        "",
        "Question Answer",
        unsupported="in TriviaQA's original form, with documents in separate files: use DPR's form",
    ),
    _form(
        "", "input output", unsupported="in KILT's form, which has no documents: use ALCE's form"
    ),
    _form(
        "",
        "question golden_answers",
        unsupported="a file of questions without documents: use a file with documents",
    ),
    _form(
        "",
        "question answers annotator_id",
        unsupported="in ExpertQA's original form, which has no retrieved documents: use "
        "Trust-Align's form",
    ),
    _form("", "id contents", unsupported="a corpus without questions: use it as {noise_from}"),
)


def refuse_other(row: object, source: DataSet, path: str) -> None:
    """Raise UsageError when the first row of a file belongs to another data set."""
    if not isinstance(row, Mapping):
        return
    matches = [form for form in _FORMS if form.has <= row.keys() and not form.lacks & row.keys()]
    if not matches or any(source.name in form.data_sets for form in matches):
        return
    first = matches[0]
    if first.unsupported:
        raise OptionError("{path} is " + first.unsupported, path=path)
    names = " or ".join(first.data_sets)
    raise UsageError(
        f"{path} looks like {names}, not {source.name}: its rows have the fields "
        f"{', '.join(sorted(first.has))}"
    )


def read_gold(
    source: DataSet, records: Records, options: ReadOptions = ALL
) -> Iterator[tuple[int, Gold | Problem]]:
    """Yield the rows of a file with their numbers, each as gold data or as a problem.

    Raises UsageError when the file belongs to another data set, or is cut off.
    """
    top = source.top if options.top is None else options.top or None
    options = replace(options, top=top)
    is_first = True
    for number, row in records:
        if isinstance(row, Problem):
            yield number, row
            continue
        if options.columns is not None and isinstance(row, Mapping):
            row = options.columns.rename(row)
        if is_first:
            refuse_other(row, source, records.path)
            is_first = False
        gold = _gold(source, number, row, options)
        if options.requires_documents and isinstance(gold, Gold) and not gold.documents:
            gold = Problem("no documents", _columns_hint("documents", source, row))
        yield number, gold


def _described(error: msgspec.ValidationError, source: DataSet, row: object) -> str:
    """Return an error, for rows of this package with the columns that may contain the fields."""
    fault = row_error(error)
    hint = _columns_hint(fault.path, source, row) if fault.message == "missing" else ""
    return f"{fault}; {hint}" if hint else str(error)


def _columns_hint(field: str, source: DataSet, row: object) -> str:
    """Return the option that maps the columns of a row of this package, or ""."""
    if source.name != PACKAGE_ROWS or not isinstance(row, Mapping):
        return ""
    return missing_fields_hint(field, {"response": "", **row}).removeprefix("; ")


def _gold(source: DataSet, number: int, row: object, options: ReadOptions) -> Gold | Problem:
    try:
        gold = source.gold(msgspec.convert(row, source.row), options)
    except msgspec.ValidationError as error:
        return Problem("broken row", _described(error, source, row))
    except ValueError as error:
        return Problem("broken row", str(error))
    if isinstance(gold, Problem):
        return gold
    if not gold.question.strip():
        return Problem("no question")
    if not gold.answers or not all(gold.answers):
        return Problem("no gold answer", _columns_hint("answers", source, row))
    facts = {**row, **gold.source_fields} if isinstance(row, Mapping) else gold.source_fields
    return msgspec.structs.replace(
        gold,
        id=gold.id or f"{source.name}-{number}",
        source_fields=source_fields(facts),
    )
