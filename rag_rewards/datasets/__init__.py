"""Public data sets: each one's own rows, as questions with documents and what is known of them."""

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
    """A public data set: how its own row is read, and what to say of it in a data card."""

    name: str
    title: str
    row: type[msgspec.Struct]
    gold: Callable[[Any, int | None], Gold | Problem]
    source: str
    licence: str
    supporting: str
    """Where the supporting documents come from."""
    top: int | None = None
    """How many documents a row keeps unless asked otherwise; None keeps all."""


_FACTS = "paragraphs that hold an annotated supporting sentence"
_FOUND = "documents with a bit in answers_found (Trust-Align: the answer stands there and follows)"
_HELD = "passages marked isgold, else those that hold an answer: not annotated by people"

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
            _FOUND,
            top=5,
        ),
        DataSet(
            "qampari",
            "QAMPARI",
            AlceRow,
            qampari,
            "https://github.com/princeton-nlp/ALCE, https://github.com/declare-lab/trust-align",
            "CC0 (QAMPARI), MIT (ALCE), CC BY-NC 4.0 (Trust-Align)",
            _FOUND,
            top=5,
        ),
        DataSet(
            "eli5",
            "ELI5",
            AlceRow,
            eli5,
            "https://github.com/princeton-nlp/ALCE, https://github.com/declare-lab/trust-align",
            "not stated (ELI5), MIT (ALCE), CC BY-NC 4.0 (Trust-Align)",
            "documents with a bit in answers_found (Trust-Align: the claim follows)",
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
            _HELD,
            top=5,
        ),
        DataSet(
            "triviaqa",
            "TriviaQA",
            DprRow,
            dpr,
            "https://nlp.cs.washington.edu/triviaqa, https://github.com/facebookresearch/DPR",
            "not stated (questions), CC BY-SA 3.0 (passages)",
            _HELD,
            top=5,
        ),
        DataSet("rows", "own rows", OwnRow, own, "the file itself", "its owner's", "the rows' own"),
    )
}


def data_set(name: str) -> DataSet:
    """The data set of that name. UsageError names the nearest."""
    try:
        return DATASETS[name]
    except KeyError:
        raise UsageError(f"no data set {name!r}{did_you_mean(name, DATASETS)}") from None


class _Form(NamedTuple):
    """A form of rows, known by fields that it has and fields that it has not."""

    names: tuple[str, ...]
    has: frozenset[str]
    lacks: frozenset[str] = frozenset()
    foreign: str = ""
    """For a form that nothing here takes: what it is, and the way out."""


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
        foreign="TriviaQA's own form, whose documents are files of their own; take the DPR form",
    ),
    _form("", "input output", foreign="KILT's form, which has no documents; take ALCE's"),
    _form("", "question golden_answers", foreign="questions without documents"),
    _form("", "id contents", foreign="a corpus without questions; --noise-from takes one"),
)


def refuse_other(row: object, wanted: DataSet, path: str) -> None:
    """UsageError when a file's first row is that of another data set."""
    if not isinstance(row, Mapping):
        return
    likely = [form for form in _FORMS if form.has <= row.keys() and not form.lacks & row.keys()]
    if not likely or any(wanted.name in form.names for form in likely):
        return
    first = likely[0]
    if first.foreign:
        raise UsageError(f"{path} is {first.foreign}")
    names = " or ".join(first.names)
    raise UsageError(
        f"{path} looks like {names}, not {wanted.name}: its rows have "
        f"{', '.join(sorted(first.has))}"
    )


def read_gold(
    wanted: DataSet, records: Records, top: int | None = None
) -> Iterator[tuple[int, Gold | Problem]]:
    """The rows of a file, numbered, each as what is known of its question or as a problem.

    UsageError when the file is that of another data set, or is not whole.
    """
    first = True
    for number, row in records:
        if isinstance(row, Problem):
            yield number, row
            continue
        if first:
            refuse_other(row, wanted, records.path)
            first = False
        yield number, _gold(wanted, number, row, wanted.top if top is None else top or None)


def _gold(wanted: DataSet, number: int, row: object, top: int | None) -> Gold | Problem:
    try:
        found = wanted.gold(msgspec.convert(row, wanted.row), top)
    except (msgspec.ValidationError, ValueError) as error:
        return Problem("broken row", str(error))
    if isinstance(found, Problem):
        return found
    if not found.question.strip():
        return Problem("no question")
    if not found.documents:
        return Problem("no documents")
    if not found.answers or not all(found.answers):
        return Problem("no gold answer")
    if not found.id:
        return msgspec.structs.replace(found, id=f"{wanted.name}-{number}")
    return found
