"""The models that provide evidence in the tiny world, apart from the policy."""

from __future__ import annotations

import re

from rag_rewards.evidence.protocols import JudgeQuestion, Models
from rag_rewards.testing import TableEntailment, TableJudge
from rag_rewards.text.refusal import REFUSAL
from rag_rewards.tiny_world.formats import ABSTENTION
from rag_rewards.tiny_world.world import FLOWERS

_DOCUMENT = re.compile(r"(\w+) (\w+) (\[\d+\]) \.")
_REASONING = re.compile(r"<think>([^<]*)</think>")


def entails(premise: str, hypothesis: str) -> float:
    """Return 1 if the premise contains every word of the hypothesis, else 0.

    The refusal follows from an abstention, which has other words.

    >>> entails("Ada rose", "rose"), entails("Ada rose", "lily")
    (1.0, 0.0)
    """
    if hypothesis.strip() == REFUSAL:
        return float(ABSTENTION in premise)
    return float(set(hypothesis.strip(" .").split()) <= set(premise.split()))


def world_models() -> Models:
    """Return the tiny world's entailment model."""
    return Models(entailment=TableEntailment(entails, fingerprint="tiny-world"))


def oracle() -> TableJudge:
    """Return a judge without errors, which knows the rules of the tiny world."""
    return TableJudge(verdict, fingerprint="tiny-world-oracle")


def verdict(question: JudgeQuestion) -> int:
    """Return 1 if an answer is right or a reasoning is sound, else 0.

    An answer is right if it contains the flower of a gold answer and no other flower; further words
    do not matter. If the gold answer is an abstention, an abstention without a flower is right.
    Reasoning is sound if it repeats the document about the person with its marker,
    or if there is none and it abstains. For this, the question must be the prompt.

    >>> verdict(JudgeQuestion("accuracy", "Ben", "lily", ("the flower lily",)))
    1
    >>> prompt = "Ada rose [1] . Ben lily [2] . ? Ben"
    >>> verdict(JudgeQuestion("reasoning", prompt, "<think> Ben lily [1] </think>"))
    0
    """
    if question.kind == "reasoning":
        return int(_is_sound(question.question, question.response))
    flowers = _flowers(question.response)
    if ABSTENTION in question.gold:
        return int(not flowers and ABSTENTION in question.response)
    return int(len(flowers) == 1 and any(flowers <= _flowers(gold) for gold in question.gold))


def _is_sound(prompt: str, response: str) -> bool:
    section = _REASONING.search(response)
    if not section:
        return False
    person = prompt.split()[-1]
    evidence = {who: f"{flower} {label}" for who, flower, label in _DOCUMENT.findall(prompt)}
    return section[1].split() == f"{person} {evidence.get(person, ABSTENTION)}".split()


def _flowers(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text) if word in FLOWERS}
