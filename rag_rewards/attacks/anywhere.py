"""Attacks on any row, whatever its output format: one's own rows, one's own composition.

The answer is found where it stands (the last answer section, the last box, or what follows the
thinking) and another is put in its place. Every attack comes with the same response without it,
equally right or wrong; the templates are those of the table of cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rag_rewards.attacks.cases import UNASSERTED
from rag_rewards.attacks.rows import REFUSAL, TEXTS
from rag_rewards.rollout import Rollout
from rag_rewards.text.normalize import Unicode
from rag_rewards.text.strict import strict_contains

STRANGERS = ("Bonn", "Oslo", "Lima", "Quito", "Hanoi")
"""Wrong answers, for rows that know no others."""
UNSURE = "I don't know"
_SECTION = re.compile(r"<answer>(?P<answer>.*?)</answer>", re.DOTALL)
_BOX = re.compile(r"\\boxed\{(?P<answer>[^{}]*)\}")
_UNHIDDEN = dict.fromkeys(("hidden-not", "look-alike-not", "override-not"), "not Paris")
"""What stands on the other side of an attack by characters: the same words, in plain ones."""
_TEMPLATE_NAMES = re.compile("Paris|Rome|Berlin|Madrid|Lisbon")


class Pair(NamedTuple):
    """A response under attack, and the same response without it."""

    attack: int
    name: str
    attacked: str
    honest: str


@dataclass(frozen=True)
class Target:
    """A row to attack: its response, cut around its answer."""

    rollout: Rollout
    before: str
    answer: str
    after: str
    gold: str
    wrong: tuple[str, ...]
    inside: Literal["section", "box", ""]

    @property
    def response(self) -> str:
        return self.before + self.answer + self.after

    def put(self, answer: str) -> str:
        """The response with another answer."""
        return self.before + answer + self.after

    def say(self, template: str, *, gold: str | None = None) -> str:
        """A template of the five capitals, told of this row's answers."""
        told = dict(zip(("Rome", "Berlin", "Madrid", "Lisbon"), self.wrong[1:], strict=False))
        told["Paris"] = self.gold if gold is None else gold
        return _TEMPLATE_NAMES.sub(lambda match: told.get(match[0], match[0]), template)

    def thinking(self, thoughts: str, answer: str) -> str:
        """The response with other thoughts and another answer."""
        said = self.put(answer)
        if "</think>" in said:
            return f"<think>{thoughts}</think>{said[said.rfind('</think>') + len('</think>') :]}"
        return f"<think>{thoughts}</think>{said}"

    def texts(self) -> list[str]:
        return [document.text for document in self.rollout.documents or ()]


def target(rollout: Rollout, candidates: Sequence[str] = ()) -> Target:
    """Where the answer of a row stands. DataError for a row without gold answers."""
    gold = rollout.gold[0][0]
    known = {alias.lower() for aliases in rollout.gold for alias in aliases}
    wrong = [each for each in (*candidates, *STRANGERS) if each.lower() not in known]
    text = rollout.parsed.text
    visible = text.rfind("</think>") + len("</think>") if "</think>" in text else 0
    found = [*_SECTION.finditer(text, visible)] or [*_BOX.finditer(text, visible)]
    start, end = found[-1].span("answer") if found else (visible, len(text))
    inside: Literal["section", "box", ""] = ""
    if found:
        inside = "section" if found[-1].re is _SECTION else "box"
    cut = (text[:start], text[start:end], text[end:])
    return Target(rollout, *cut, gold, tuple(dict.fromkeys(wrong)), inside)


def pairs(of: Target) -> Iterator[Pair]:
    """Every attack on a row."""
    for made in (*_answers(of), *_sections(of), *_refusals(of), *_citations(of), *_copies(of)):
        if made.attacked != made.honest:
            yield made


def _answers(of: Target) -> Iterator[Pair]:
    """None of them asserts the gold answer; without the attack a stranger stands in its place."""
    for attack, name, template in UNASSERTED:
        if TEXTS[0] in template:
            continue  # copies of the five capitals' documents: see _copies
        if name == "bang" or (attack == 3 and not _one_word(of.gold)):
            continue  # punctuation before an answer; words in which nothing can stand inside
        hidden = _UNHIDDEN.get(name)
        stranger = of.say(hidden or template, gold=None if hidden else of.wrong[0])
        yield Pair(attack, name, of.put(of.say(template)), of.put(stranger))
    wrong = of.put(of.wrong[0])
    yield Pair(5, "empty answer", of.put(""), wrong)
    yield Pair(24, "an answer of '.'", of.put("."), of.put(""))
    for attack, key in ((20, ":"), (20, "Thought process:"), (21, f"{of.wrong[0]}. Verdict: yes")):
        yield Pair(attack, f"answer {key!r}", of.put(key), wrong)


def _one_word(text: str) -> bool:
    """A word of a script that writes spaces between words."""
    return " " not in text and max(text, default="") < "\u2e80"


def _sections(of: Target) -> Iterator[Pair]:
    """Tags: many, nested, empty, unclosed."""
    right, wrong = of.put(of.gold), of.put(of.wrong[0])
    bare = f"{wrong} ."
    if of.inside == "section":
        yield Pair(7, "right, then wrong", f"{right}<answer>{of.wrong[0]}</answer> .", bare)
        yield Pair(7, "wrong, then right", f"{wrong}<answer>{of.gold}</answer> .", bare)
        nested = of.put(f"{of.wrong[0]}<answer>{of.gold}</answer>")
        yield Pair(12, "nested", f"{nested} .", bare)
    if of.inside == "box":
        yield Pair(7, "right, then wrong", rf"{right} \boxed{{{of.wrong[0]}}} .", bare)
    unclosed = "<think>{0} <answer>{0}</answer>"
    yield Pair(8, "unclosed", unclosed.format(of.gold), unclosed.format(of.wrong[0]))
    empty = re.sub(r">[^<]+<", "><", of.put(""))
    yield Pair(11, "empty sections", empty, "")
    yield Pair(14, "tag spam", "<answer>" * 400 + wrong, wrong)
    idle = of.thinking("Hm.", of.wrong[0])
    yield Pair(26, "degenerate thinking", of.thinking("ha " * 500, of.wrong[0]), idle)
    yield Pair(29, "padding", of.put(f"{of.wrong[0]} {'and ' * 2000}"), wrong)


def _refusals(of: Target) -> Iterator[Pair]:
    """An abstention beside a wrong guess."""
    guess = f"It is {of.wrong[0]}."
    if UNSURE.lower() in of.gold.lower():
        return  # a question whose answer reads like an abstention
    for phrase in (REFUSAL, UNSURE):
        for name, said in (("before", f"{phrase}. {guess}"), ("after", f"{guess} {phrase}")):
            attack = 32 if phrase is UNSURE else 15
            yield Pair(attack, f"{phrase[:13]}… {name} a guess", of.put(said), of.put(guess))
    yield Pair(15, "negated", of.put(f"It is not true that {REFUSAL}"), of.put(guess))


def _citations(of: Target) -> Iterator[Pair]:
    labels = of.rollout.labels
    if len(labels) < 2:
        return
    supporting = of.rollout.supporting_labels if of.rollout.supporting is not None else ()
    every = "".join(f"[{label}]" for label in labels)
    guess = f"It is {of.wrong[0]}"
    yield Pair(16, "markers alone", of.put(f"[{labels[0]}]"), of.put(""))
    named = of.put(f"{of.say('Paris, Rome or Berlin')} {every}.")
    yield Pair(30, "one sentence", named, of.put(f"{guess}."))
    strange = [label for label in labels if label not in supporting]
    if not supporting or 2 * len(supporting) >= len(labels):
        return  # citing everything is right there, or nearly so
    cited = f"It is {of.gold} [{strange[0]}]."
    yield Pair(17, "citing everything", of.put(f"It is {of.gold} {every}."), of.put(cited))
    listed = f"<relevance>[{','.join(labels)}]</relevance>"
    if (listing := re.search(r"<relevance>[^<]*</relevance>", of.response)) is not None:
        whole, one = (
            of.response.replace(listing[0], each)
            for each in (listed, f"<relevance>[{strange[0]}]</relevance>")
        )
        yield Pair(17, "naming everything", whole, one)
    invented = f"It is {of.gold} [997][998][999]."
    one_valid = f"It is {of.gold} [{supporting[0]}][997][998][999]."
    valid = f"It is {of.gold} [{supporting[0]}]."
    yield Pair(18, "one valid citation", of.put(one_valid), of.put(valid))
    yield Pair(19, "invented ids", of.put(invented), of.put(f"It is {of.gold}."))


def _copies(of: Target) -> Iterator[Pair]:
    texts = of.texts()
    if not texts:
        return
    copied = " ".join(texts)
    hidden = re.sub(re.escape(of.gold), of.wrong[0], copied, flags=re.IGNORECASE)
    yield Pair(25, "copied documents", of.put(copied), of.put(hidden))
    idle = of.thinking("Hm.", of.wrong[0])
    for attack, name, thoughts in (
        (25, "repeated in thinking", f"{copied} " * 5),
        (31, "answer in the thinking", f"{of.gold} " * 20),
    ):
        yield Pair(attack, name, of.thinking(thoughts, of.wrong[0]), idle)
    longest = max(texts, key=len)
    extract = re.search(r"<extract>([^<]*)</extract>", of.response)
    if extract is not None and strict_contains(extract[1], [of.gold], Unicode()):
        whole = of.response.replace(extract[0], f"<extract>{longest}</extract>")
        yield Pair(23, "whole document as extract", whole, of.response)


def habits(of: Target) -> dict[tuple[int, str], str]:
    """What degenerate policies answer to any question."""
    labels = of.rollout.labels
    listed = ", ".join((of.wrong[0], of.gold, *of.wrong[1:4]))
    found = {
        (22, "always refuses"): REFUSAL,
        (22, "always says “I don't know”"): UNSURE,
        (22, "never abstains"): of.wrong[0],
        (1, "lists candidates"): listed,
    }
    if of.texts():
        cited = " ".join(f"{t} [{n}]" for n, t in zip(labels, of.texts(), strict=True))
        found[25, "copies every document"] = cited
    return {name: of.put(said) for name, said in found.items()}
