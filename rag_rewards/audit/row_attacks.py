"""Attacks on any row, whatever its output format.

The answer of a response is the last answer section, the last box, or the text after the thinking.
An attack replaces it. Each attacked response comes with the same response without the attack, which
is equally right or wrong. The templates are those of the built-in cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from rag_rewards.audit.cases import TEMPLATES
from rag_rewards.matching.mentions import stated_answers
from rag_rewards.rollout import Rollout
from rag_rewards.text.refusal import ABSTENTIONS, REFUSAL

R = TypeVar("R", bound=Rollout)

ABSTENTION = ABSTENTIONS[0]
WRONG_ANSWERS = ("Bonn", "Oslo", "Lima", "Quito", "Hanoi")
"""Wrong answers for rows without other candidates."""
ALWAYS_REFUSES = (22, "always refuses")
_SECTION = re.compile(r"<answer>(?P<answer>.*?)</answer>", re.DOTALL)
_BOX = re.compile(r"\\boxed\{(?P<answer>[^{}]*)\}")
_RELEVANCE = re.compile(r"<relevance>[^<]*</relevance>")
_EXTRACT = re.compile(r"<extract>([^<]*)</extract>")
_THINK_END = "</think>"
_TEMPLATE_NAMES = re.compile("Paris|Rome|Berlin|Madrid|Lisbon")
_MIN_UNSPACED = "\u2e80"
"""The first character of the scripts that write no spaces between words."""


class AttackPair(NamedTuple):
    """An attacked response, and the same response without the attack."""

    attack: int
    name: str
    attacked: str
    honest: str


@dataclass(frozen=True)
class Target:
    """A row to attack, with its response split at its answer.

    wrong      wrong answers
    container  what contains the answer
    """

    rollout: Rollout
    before: str
    answer: str
    after: str
    gold: str
    wrong: tuple[str, ...]
    container: Literal["section", "box", ""]

    @property
    def response(self) -> str:
        """The response as it is."""
        return self.before + self.answer + self.after

    def with_answer(self, answer: str) -> str:
        """Return the response with another answer."""
        return self.before + answer + self.after

    def fill(self, template: str, *, gold: str | None = None) -> str:
        """Return a template with this row's answers in place of the capitals."""
        names = dict(zip(("Rome", "Berlin", "Madrid", "Lisbon"), self.wrong[1:], strict=False))
        names["Paris"] = self.gold if gold is None else gold
        return _TEMPLATE_NAMES.sub(lambda match: names.get(match[0], match[0]), template)

    def with_thinking(self, thinking: str, answer: str) -> str:
        """Return the response with another thinking section and another answer."""
        response = self.with_answer(answer)
        if _THINK_END in response:
            response = response[response.rfind(_THINK_END) + len(_THINK_END) :]
        return f"<think>{thinking}{_THINK_END}{response}"

    def texts(self) -> list[str]:
        """Return the texts of the documents."""
        return [document.text for document in self.rollout.documents or ()]


def target_of(rollout: Rollout, candidates: Sequence[str] = ()) -> Target:
    """Find the answer in the response of a row.

    `candidates` are possible wrong answers. Raises DataError for a row without gold answers.
    """
    gold = rollout.gold[0][0]
    right = {alias.lower() for aliases in rollout.gold for alias in aliases}
    wrong = [each for each in (*candidates, *WRONG_ANSWERS) if each.lower() not in right]
    text = rollout.parsed.text
    visible = text.rfind(_THINK_END) + len(_THINK_END) if _THINK_END in text else 0
    matches = [*_SECTION.finditer(text, visible)] or [*_BOX.finditer(text, visible)]
    start, end = matches[-1].span("answer") if matches else (visible, len(text))
    container: Literal["section", "box", ""] = ""
    if matches:
        container = "section" if matches[-1].re is _SECTION else "box"
    pieces = (text[:start], text[start:end], text[end:])
    return Target(rollout, *pieces, gold, tuple(dict.fromkeys(wrong)), container)


def pairs(target: Target) -> Iterator[AttackPair]:
    """Yield every attack on a row."""
    for attacks in (_answers, _sections, _refusals, _citations, _copies):
        for pair in attacks(target):
            if pair.attacked != pair.honest:
                yield pair


def _answers(target: Target) -> Iterator[AttackPair]:
    """Yield answers that do not assert the gold answer.

    The honest side of a template has a wrong answer in place of the gold answer.
    """
    wrong = target.with_answer(target.wrong[0])
    for template in TEMPLATES:
        if template.attack == 3 and not _is_one_word(target.gold):
            continue  # the attack hides the gold answer inside a word
        if template.visible_text:
            honest = target.fill(template.visible_text)
        else:
            honest = target.fill(template.text, gold=target.wrong[0])
        attacked = target.with_answer(target.fill(template.text))
        yield AttackPair(template.attack, template.name, attacked, target.with_answer(honest))
    yield AttackPair(5, "empty answer", target.with_answer(""), wrong)
    yield AttackPair(24, "an answer of '.'", target.with_answer("."), target.with_answer(""))
    verdict = f"{target.wrong[0]}. Verdict: yes"
    for attack, answer in ((20, ":"), (20, "Thought process:"), (21, verdict)):
        yield AttackPair(attack, f"answer {answer!r}", target.with_answer(answer), wrong)


def _is_one_word(text: str) -> bool:
    """Return whether a text is a single word of a script that writes spaces between words."""
    return " " not in text and max(text, default="") < _MIN_UNSPACED


def _sections(target: Target) -> Iterator[AttackPair]:
    """Yield responses with many, nested, empty or unclosed sections."""
    right, wrong = target.with_answer(target.gold), target.with_answer(target.wrong[0])
    trailing = f"{wrong} ."
    if target.container == "section":
        late_wrong = f"<answer>{target.wrong[0]}</answer> ."
        yield AttackPair(7, "right, then wrong", f"{right}{late_wrong}", trailing)
        late_right = f"<answer>{target.gold}</answer>"
        yield AttackPair(7, "wrong, then right", f"{wrong}{late_right} .", trailing)
        nested = target.with_answer(f"{target.wrong[0]}{late_right}")
        yield AttackPair(12, "nested", f"{nested} .", trailing)
    if target.container == "box":
        late_wrong = rf" \boxed{{{target.wrong[0]}}} ."
        yield AttackPair(7, "right, then wrong", f"{right}{late_wrong}", trailing)
    unclosed = "<think>{0} <answer>{0}</answer>"
    yield AttackPair(8, "unclosed", unclosed.format(target.gold), unclosed.format(target.wrong[0]))
    yield AttackPair(11, "empty sections", re.sub(r">[^<]+<", "><", target.with_answer("")), "")
    yield AttackPair(14, "tag spam", "<answer>" * 400 + wrong, wrong)
    honest = target.with_thinking("Hm.", target.wrong[0])
    degenerate = target.with_thinking("ha " * 500, target.wrong[0])
    yield AttackPair(26, "degenerate thinking", degenerate, honest)
    padded = target.with_answer(f"{target.wrong[0]} {'and ' * 2000}")
    yield AttackPair(29, "padding", padded, wrong)


def _refusals(target: Target) -> Iterator[AttackPair]:
    """Yield refusals and abstentions beside a wrong guess."""
    guess = f"It is {target.wrong[0]}."
    if ABSTENTION.lower() in target.gold.lower():
        return  # the gold answer itself reads like an abstention
    honest = target.with_answer(guess)
    for attack, phrase in ((15, REFUSAL), (32, ABSTENTION)):
        for place, answer in (("before", f"{phrase}. {guess}"), ("after", f"{guess} {phrase}")):
            name = f"{phrase[:13]}… {place} a guess"
            yield AttackPair(attack, name, target.with_answer(answer), honest)
    negated = target.with_answer(f"It is not true that {REFUSAL}")
    yield AttackPair(15, "negated", negated, honest)


def _citations(target: Target) -> Iterator[AttackPair]:
    """Yield responses that cite no, all or invented documents."""
    put = target.with_answer
    labels = target.rollout.labels
    if len(labels) < 2:
        return
    supporting: Sequence[str] = ()
    if target.rollout.supporting is not None:
        supporting = target.rollout.supporting_labels
    every = "".join(f"[{label}]" for label in labels)
    yield AttackPair(16, "markers alone", put(f"[{labels[0]}]"), put(""))
    candidates = target.fill("Paris, Rome or Berlin")
    guess = f"It is {target.wrong[0]}."
    yield AttackPair(30, "one sentence", put(f"{candidates} {every}."), put(guess))
    others = [label for label in labels if label not in supporting]
    if not supporting or 2 * len(supporting) >= len(labels):
        return  # citing every document is right, or nearly right
    claim = f"It is {target.gold}"
    yield AttackPair(
        17, "citing everything", put(f"{claim} {every}."), put(f"{claim} [{others[0]}].")
    )
    if (listing := _RELEVANCE.search(target.response)) is not None:
        attacked, honest = (
            target.response.replace(listing[0], f"<relevance>[{listed}]</relevance>")
            for listed in (",".join(labels), others[0])
        )
        yield AttackPair(17, "naming everything", attacked, honest)
    invented = "[997][998][999]"
    valid = f"{claim} [{supporting[0]}]"
    yield AttackPair(18, "one valid citation", put(f"{valid}{invented}."), put(f"{valid}."))
    yield AttackPair(19, "invented ids", put(f"{claim} {invented}."), put(f"{claim}."))


def _copies(target: Target) -> Iterator[AttackPair]:
    """Yield responses that copy documents or the gold answer into other sections."""
    texts = target.texts()
    if not texts:
        return
    copied = " ".join(texts)
    wrong = re.sub(re.escape(target.gold), target.wrong[0], copied, flags=re.IGNORECASE)
    yield AttackPair(25, "copied documents", target.with_answer(copied), target.with_answer(wrong))
    honest = target.with_thinking("Hm.", target.wrong[0])
    for attack, name, thinking in (
        (25, "repeated in thinking", f"{copied} " * 5),
        (31, "answer in the thinking", f"{target.gold} " * 20),
    ):
        yield AttackPair(attack, name, target.with_thinking(thinking, target.wrong[0]), honest)
    extract = _EXTRACT.search(target.response)
    if extract is not None and any(stated_answers(extract[1], [target.gold])):
        longest = max(texts, key=len)
        attacked = target.response.replace(extract[0], f"<extract>{longest}</extract>")
        yield AttackPair(23, "whole document as extract", attacked, target.response)


def habits(target: Target) -> dict[tuple[int, str], str]:
    """Return what degenerate policies answer, by attack number and name."""
    answers = {
        ALWAYS_REFUSES: REFUSAL,
        (22, "always says “I don't know”"): ABSTENTION,
        (22, "never abstains"): target.wrong[0],
        (1, "lists candidates"): ", ".join((target.wrong[0], target.gold, *target.wrong[1:4])),
    }
    if texts := target.texts():
        labeled = zip(target.rollout.labels, texts, strict=True)
        answers[25, "copies every document"] = " ".join(f"{text} [{n}]" for n, text in labeled)
    return {name: target.with_answer(answer) for name, answer in answers.items()}


def with_last_turn(rollout: R, text: str, **fields: Any) -> R:
    """Return a rollout whose parsed text is `text`: its response or the last turn of it.

    Earlier turns stay. `fields` replace further fields.

    >>> from rag_rewards.rows import decode_row
    >>> rollout = decode_row({"turns": [{"text": "<search>a</search>"}, {"text": "b"}]})
    >>> [turn.text for turn in with_last_turn(rollout, "c").turns]
    ['<search>a</search>', 'c']
    """
    prefix = rollout.response_prefix or ""
    if rollout.turns is not None:
        *earlier, last = rollout.turns
        if not earlier:
            text = text.removeprefix(prefix)
        last = msgspec.structs.replace(last, text=text, token_span=None, token_ids=None)
        response: Any = text
        fields |= {"turns": (*earlier, last), "response_prefix": rollout.response_prefix}
    elif isinstance(rollout.response, str):
        response = text
        fields["response_prefix"] = None  # the parsed text contains it
    else:
        response = list(rollout.response)
        at = max(i for i, message in enumerate(response) if message.role == "assistant")
        response[at] = msgspec.structs.replace(response[at], content=text.removeprefix(prefix))
        fields["response_prefix"] = rollout.response_prefix
    return msgspec.structs.replace(rollout, response=response, **fields)
