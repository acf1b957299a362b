"""Public data sets: their rows as questions with documents and gold data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from rag_rewards.datasets.alce import AlceRow, asqa, eli5, qampari
from rag_rewards.datasets.crag import CragRow, crag
from rag_rewards.datasets.dpr import DprRow, dpr
from rag_rewards.datasets.files import Records
from rag_rewards.datasets.gold import Gold, Problem
from rag_rewards.datasets.multihop import FactsRow, MusiqueRow, hotpotqa, musique, two_wiki
from rag_rewards.datasets.own import OwnRow, own
from rag_rewards.errors import UsageError
from rag_rewards.settings import did_you_mean


@dataclass(frozen=True)
class DataSet:
    """A public data set: the type of its rows, their conversion, and facts for a data card."""

    name: str
    title: str
    row: type[msgspec.Struct]
    gold: Callable[[Any, int | None], Gold | Problem]
    """Convert a row, with at most so many documents."""
    source: str
    licence: str
    supporting: str
    """How supporting documents are identified."""
    top: int | None = None
    """Default number of documents of a row; None keeps all documents."""


_FACTS = "paragraphs that contain an annotated supporting sentence"
_ANSWERS_FOUND = (
    "documents with a bit in answers_found (Trust-Align: they contain the answer and entail it)"
)
_GOLD_PASSAGES = (
    "passages marked isgold, otherwise passages that contain an answer (not annotated by people)"
)

DATASETS: dict[str, DataSet] = {
    data_set.name: data_set
    for data_set in (
        DataSet(
            "hotpotqa",
            "HotpotQA",
            FactsRow,
            hotpotqa,
            "https://hotpotqa.github.io",
            "CC BY-SA 4.0",
            _FACTS,
        ),
        DataSet(
            "2wikimultihopqa",
            "2WikiMultiHopQA",
            FactsRow,
            two_wiki,
            "https://github.com/Alab-NII/2wikimultihop",
            "Apache-2.0",
            _FACTS,
        ),
        DataSet(
            "musique",
            "MuSiQue",
            MusiqueRow,
            musique,
            "https://github.com/StonyBrookNLP/musique",
            "CC BY 4.0",
            "paragraphs annotated as supporting",
        ),
        DataSet(
            "asqa",
            "ASQA",
            AlceRow,
            asqa,
            "https://github.com/princeton-nlp/ALCE, https://github.com/declare-lab/trust-align",
            "Apache-2.0 (ASQA), MIT (ALCE), CC BY-NC 4.0 (Trust-Align)",
            _ANSWERS_FOUND,
            top=5,
        ),
        DataSet(
            "qampari",
            "QAMPARI",
            AlceRow,
            qampari,
            "https://github.com/princeton-nlp/ALCE, https://github.com/declare-lab/trust-align",
            "CC0 (QAMPARI), MIT (ALCE), CC BY-NC 4.0 (Trust-Align)",
            _ANSWERS_FOUND,
            top=5,
        ),
        DataSet(
            "eli5",
            "ELI5",
            AlceRow,
            eli5,
            "https://github.com/princeton-nlp/ALCE, https://github.com/declare-lab/trust-align",
            "not stated (ELI5), MIT (ALCE), CC BY-NC 4.0 (Trust-Align)",
            "documents with a bit in answers_found (Trust-Align: they entail the claim)",
            top=5,
        ),
        DataSet(
            "crag",
            "CRAG",
            CragRow,
            crag,
            "https://github.com/facebookresearch/CRAG",
            "CC BY-NC 4.0",
            "not annotated",
        ),
        DataSet(
            "nq",
            "Natural Questions",
            DprRow,
            dpr,
            "https://github.com/facebookresearch/DPR",
            "CC BY-SA 3.0",
            _GOLD_PASSAGES,
            top=5,
        ),
        DataSet(
            "triviaqa",
            "TriviaQA",
            DprRow,
            dpr,
            "https://nlp.cs.washington.edu/triviaqa, https://github.com/facebookresearch/DPR",
            "not stated (questions), CC BY-SA 3.0 (passages)",
            _GOLD_PASSAGES,
            top=5,
        ),
        DataSet(
            "rows",
            "rows of this package",
            OwnRow,
            own,
            "the input file",
            "that of the input file",
            "from the rows",
        ),
    )
}


def data_set(name: str) -> DataSet:
    """Return the data set with a name. UsageError suggests the most similar name."""
    try:
        return DATASETS[name]
    except KeyError:
        raise UsageError(f"unknown data set {name!r}{did_you_mean(name, DATASETS)}") from None


class _Form(NamedTuple):
    """A form of rows, identified by fields that it has and fields that it lacks."""

    names: tuple[str, ...]
    has: frozenset[str]
    lacks: frozenset[str] = frozenset()
    foreign: str = ""
    """For a form that is not supported: what it is, and what to use instead."""


def _form(names: str, has: str, lacks: str = "", foreign: str = "") -> _Form:
    return _Form(tuple(names.split()), frozenset(has.split()), frozenset(lacks.split()), foreign)


_FORMS = (
    _form("2wikimultihopqa", "question context supporting_facts evidences"),
    _form("hotpotqa", "question context supporting_facts", "evidences"),
    _form("musique", "question paragraphs answer"),
    _form("asqa", "question docs qa_pairs"),
    _form("eli5", "question docs claims"),
    _form("asqa qampari eli5", "question docs answers", "qa_pairs claims"),
    _form("crag", "query search_results"),
    _form("nq triviaqa", "question answers ctxs"),
    _form("nq triviaqa", "question answers positive_ctxs"),
    _form("rows", "question documents"),
    _form(
        "",
        "Question Answer",
        foreign="in TriviaQA's original form, with documents in separate files: use DPR's form",
    ),
    _form("", "input output", foreign="in KILT's form, which has no documents: use ALCE's form"),
    _form(
        "",
        "question golden_answers",
        foreign="a file of questions without documents: use a file with documents",
    ),
    _form("", "id contents", foreign="a corpus without questions: give it to --noise-from"),
)


def refuse_other(row: object, wanted: DataSet, path: str) -> None:
    """Raise UsageError when the first row of a file belongs to another data set."""
    if not isinstance(row, Mapping):
        return
    matches = [form for form in _FORMS if form.has <= row.keys() and not form.lacks & row.keys()]
    if not matches or any(wanted.name in form.names for form in matches):
        return
    first = matches[0]
    if first.foreign:
        raise UsageError(f"{path} is {first.foreign}")
    names = " or ".join(first.names)
    raise UsageError(
        f"{path} looks like {names}, not {wanted.name}: its rows have the fields "
        f"{', '.join(sorted(first.has))}"
    )


def read_gold(
    wanted: DataSet, records: Records, top: int | None = None
) -> Iterator[tuple[int, Gold | Problem]]:
    """Yield the rows of a file with their numbers, each as gold data or as a problem.

    `top` is the number of documents of a row; None is the data set's default, and 0 keeps all.
    Raises UsageError when the file belongs to another data set, or is cut off.
    """
    is_first = True
    for number, row in records:
        if isinstance(row, Problem):
            yield number, row
            continue
        if is_first:
            refuse_other(row, wanted, records.path)
            is_first = False
        yield number, _gold(wanted, number, row, wanted.top if top is None else top or None)


def _gold(wanted: DataSet, number: int, row: object, top: int | None) -> Gold | Problem:
    try:
        gold = wanted.gold(msgspec.convert(row, wanted.row), top)
    except (msgspec.ValidationError, ValueError) as error:
        return Problem("broken row", str(error))
    if isinstance(gold, Problem):
        return gold
    if not gold.question.strip():
        return Problem("no question")
    if not gold.documents:
        return Problem("no documents")
    if not gold.answers or not all(gold.answers):
        return Problem("no gold answer")
    if not gold.id:
        return msgspec.structs.replace(gold, id=f"{wanted.name}-{number}")
    return gold
