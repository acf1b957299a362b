"""Copies of documents."""

from __future__ import annotations

import pytest
from growth import assert_linear

import rag_rewards as rr
from rag_rewards.rollout import LogProbs
from rag_rewards.text.copies import copies_document

DOCUMENTS = (
    "Paris lies on the Seine. It has two million people.",
    "Rome lies on the Tiber, and Berlin lies on the Spree.",
    "长江全长六千多公里。黄河是第二长的河流。",
    "Oslo is a port.",
    "Lima is a port.",
    "Kyiv is a port.",
)
COPIES = (
    DOCUMENTS[0],
    DOCUMENTS[1],
    DOCUMENTS[2],
    "Paris lies on the Seine. It has two million people [1].",
    "**Paris** lies on the Seine [1]. It has two million people [1].",
    "Paris lies on the Seine. It has two million people",
    f"{DOCUMENTS[0]} {DOCUMENTS[1]}",
    f"{DOCUMENTS[0]} [1]\n{DOCUMENTS[2]} [3]",
    "长江全长六千多公里。黄河是第二长的河流。[3]",
    " ".join(DOCUMENTS[3:]),
)
OWN = (
    "",
    ".",
    "[1]",
    "Paris",
    "It is Paris.",
    "Paris lies on the Seine.",
    "Paris lies on the Seine [1].",
    "Oslo is a port.",
    "Oslo is a port [4]. Lima is a port [5].",
    "It has two million people.",
    "The city is Paris. It has two million people, as document 1 says.",
    "Paris lies on the Seine. Rome lies on the Tiber.",
    "长江全长六千多公里。",
    "Berlin lies on the Spree. So it is Berlin, and nothing else.",
    "A. B. C.",
)


@pytest.mark.parametrize("text", COPIES)
def test_copies(text: str) -> None:
    assert copies_document(text, DOCUMENTS)


@pytest.mark.parametrize("text", OWN)
def test_own_text(text: str) -> None:
    assert not copies_document(text, DOCUMENTS)


@pytest.mark.parametrize("name", ["ctrl-rag", "rag-total", "truthrl"])
def test_a_copy_is_not_an_answer(name: str) -> None:
    settings = {"verifier": "substring"} if name == "truthrl" else {}
    recipe = rr.recipe(name, settings, hardened=True)
    for text, expected in ((DOCUMENTS[0], 0.0), ("It is Paris.", 1.0)):
        rollout = rr.Rollout(
            response=recipe.output_form.write(text),
            answers="Paris",
            documents=[rr.Document(text=each) for each in DOCUMENTS],
            supporting=(1,),
            logprobs=LogProbs(full=(-1.0,) * 4, without={"1": (-2.0,) * 4}, answer_span=(0, 4)),
        )
        assert recipe([rollout])[0].correct == expected


def test_the_time_is_linear() -> None:
    def read(size: int) -> None:
        text = "Paris lies on the Seine. " * size
        copies_document(text, [*DOCUMENTS * 10, text[:-30]])

    assert_linear(read, 20_000)
