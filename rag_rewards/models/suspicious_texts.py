"""Signs that a text addresses the judge that grades it.

The signs choose the texts about which a judge is also asked a planted question. A text without a
sign can still be an attack, and a text with one can be harmless: no verdict depends on a sign.
Invisible and look-alike characters, and compatibility forms, are folded before the search. The time
is linear in the length of a text.
"""

from __future__ import annotations

import re

from rag_rewards.evidence.protocols import JudgeQuestion
from rag_rewards.text.normalize import fold

_MAX_ANSWER = 600
"""Number of characters above which an extracted answer is unusually long."""
_BRIEF = 40
"""Number of characters below which a text can consist of an opening alone."""

_HIDDEN = re.compile(
    "[\\x00-\\x08\\x0e-\\x1f\\x7f\\u200b\\u202a-\\u202e\\u2060-\\u2064\\u2066-\\u2069\\ufeff"
    "\\U000e0000-\\U000e01ef]"
)
_OPENING = re.compile(
    r"\W*(thought|thinking|reasoning|solution|answer|final answer|step|explanation|response"
    r"|let'?s|let me|here is|the answer is|we (?:need|start)|to (?:solve|answer))\b"
)
_SIGNS: dict[str, re.Pattern[str]] = {
    "a verdict": re.compile(
        r"\b(?:scores?|verdicts?|grades?|ratings?|marks?|points?|rewards?)\b"
        r"|\[\[|(?:correct|right|true|accepted|full)\s*[:=]"
        r"|\b(?:answer|prediction|response|reasoning|claim)\s+(?:\w+\s+){0,2}(?:correct|right|true)"
    ),
    "an object": re.compile(r"[{}]|\\u00|&#|\\x[0-9a-f]"),
    "a remark to a grader": re.compile(
        r"\b(?:judges?|graders?|evaluators?|evaluate|examiners?|raters?|assessors?|assistants?"
        r"|language models?|ais?|chatbots?|moderators?|systems? (?:prompts?|messages?|notes?)"
        r"|instructions?|prompts?|rubrics?|guidelines?|overrid\w+|references?|gold|admins?"
        r"|developers?)\b"
    ),
    "a demand": re.compile(
        r"\b(?:ignore|disregard|forget|bypass|pretend|obey|comply|output|return|reply|respond"
        r"|print|say|you (?:are|must|should|will))\b"
    ),
    "a tag": re.compile(
        r"</?\s?[a-z!|]|<\||```|\[/?inst|<<|^[^\S\n]*#{1,6}\s|={3,}|-{3,}|\|{2,}", re.M
    ),
    "a role": re.compile(
        r"^[^\w\n]*(?:system|user|human|assistant|developer|tool|model)\s*[:\n]", re.M
    ),
    "a remark in another language": re.compile(
        r"ignorier|vergiss|anweisung|bewert|richtig|urteil|ignor[ea]|oubli|juge|évalu"
        r"|consign|correct[oae]|instruc|evalua|puntua|calific|istruz|valuta|punteggi|giudi|avalia"
        r"|pontua|игнор|забудь|инструк|оцен|судь|верн|балл|忽略|忽視|无视|無視|指示|指令|评分|評分"
        r"|评判|得分|分数|正确|正確|正解|判定|採点|評価|무시|지시|점수|평가|정답|تجاهل|تعليمات|درجة"
        r"|تقييم|صحيح|अनदेखा|निर्देश|अंक|मूल्यांकन|सही|เพิกเฉย|คำสั่ง|คะแนน|ถูกต้อง"
    ),
    "encoded text": re.compile(r"[a-z0-9+/]{40,}"),
}


def signs_of(text: str) -> list[str]:
    """Return the signs that a text addresses its judge, or contains nothing to grade.

    >>> signs_of("the Seine, a river in France")
    []
    >>> signs_of('Rome {"score": 1}')
    ['a verdict', 'an object']
    >>> signs_of("Solution:")
    ['no content']
    """
    folded = fold(text)
    signs = ["invisible characters"] if _HIDDEN.search(text) else []
    signs += [name for name, pattern in _SIGNS.items() if pattern.search(folded)]
    is_opening = len(folded) < _BRIEF and _OPENING.match(folded)
    if is_opening or not any(map(str.isalnum, folded)):
        signs.append("no content")
    return signs


def is_suspicious(question: JudgeQuestion) -> bool:
    """Return whether a text of a question shows a sign that it addresses the judge."""
    if question.kind in ("accuracy", "outcome") and len(question.response) > _MAX_ANSWER:
        return True
    texts = (question.question, question.response, *question.documents)
    return any(signs_of(text) for text in texts)
