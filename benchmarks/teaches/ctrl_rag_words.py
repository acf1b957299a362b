"""CTRL-RAG on a base that knows further words, and what the policy's own likelihood pays for."""

import sys

import ctrl_rag
from ctrl_rag import accuracy_only, variant
from experiment import Experiment, main

EXPERIMENT = Experiment(
    name="ctrl_rag_words",
    title="CTRL-RAG on a base that knows the other formats",
    form="plain",
    variants=(
        variant("base", None),
        variant("accuracy only", accuracy_only),
        variant("CLR only", ctrl_rag.ctrl_rag(fusion="none")),
        variant("gate", ctrl_rag.ctrl_rag()),
        variant("gate, frozen scorer", ctrl_rag.frozen),
    ),
    columns=("answer", "citation", "reliance", "abstains"),
    panels=("answer", "citation"),
)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
