"""The public data sets: the type of their rows, their conversion, and facts for data cards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from rag_rewards.datasets.alce import AlceRow, asqa, eli5, qampari
from rag_rewards.datasets.crag import CragRow, crag
from rag_rewards.datasets.dpr import DprRow, dpr
from rag_rewards.datasets.gold import Gold, Problem
from rag_rewards.datasets.multihop import FactsRow, MusiqueRow, hotpotqa, musique, two_wiki
from rag_rewards.datasets.package_rows import PackageRow, package_row
from rag_rewards.datasets.prgb import PrgbRow, prgb
from rag_rewards.datasets.pubmedqa import PubmedRow, pubmedqa
from rag_rewards.datasets.ragqa import TOTAL, RagqaRow, ragqa
from rag_rewards.datasets.read_options import ReadOptions
from rag_rewards.errors import UsageError
from rag_rewards.settings import did_you_mean


@dataclass(frozen=True)
class DataSet:
    """A public data set: the type of its rows, their conversion, and facts for a data card."""

    name: str
    title: str
    row: type[msgspec.Struct]
    gold: Callable[[Any, ReadOptions], Gold | Problem]
    """Convert a row."""
    source: str
    licence: str
    supporting: str
    """How supporting documents are identified."""
    top: int | None = None
    """Default number of documents of a row; None keeps all documents."""


_FACTS = "paragraphs that contain an annotated supporting sentence"
_ANSWERS_FOUND = (
    "documents with a 1 in answers_found (Trust-Align: they contain the answer and entail it)"
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
            "documents with a 1 in answers_found (Trust-Align: they entail the claim)",
            top=5,
        ),
        DataSet(
            "expertqa",
            "ExpertQA",
            AlceRow,
            eli5,  # the same rows: the gold data are claims
            "https://github.com/chaitanyamalaviya/ExpertQA, "
            "https://github.com/declare-lab/trust-align",
            "MIT (ExpertQA), CC BY-NC 4.0 (Trust-Align)",
            "documents with a 1 in answers_found (Trust-Align: they entail the claim)",
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
            "retrieved",
            "questions with retrieved passages",
            DprRow,
            dpr,
            "the input file",
            "that of the input file",
            _GOLD_PASSAGES,
            top=5,
        ),
        DataSet(
            "ragqa",
            "RAGQALeaderboard",
            RagqaRow,
            ragqa,
            "https://github.com/AQ-MedAI/RagQALeaderboard",
            "those of its data sets; the project asks for non-commercial use",
            "documents of golden_doc",
            top=TOTAL,
        ),
        DataSet(
            "prgb",
            "PRGB",
            PrgbRow,
            prgb,
            "https://github.com/AQ-MedAI/PRGB",
            "not stated (data)",
            "documents of golden_doc",
        ),
        DataSet(
            "pubmedqa",
            "PubMedQA",
            PubmedRow,
            pubmedqa,
            "https://github.com/pubmedqa/pubmedqa",
            "MIT",
            "all sections of the abstract",
        ),
        DataSet(
            "rows",
            "rows of this package",
            PackageRow,
            package_row,
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
