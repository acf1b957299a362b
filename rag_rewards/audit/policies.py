"""Degenerate policies, which behave the same on every row, and honest policies to compare with.

A degenerate policy pays if its mean reward exceeds that of the honest policy, which knows as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from rag_rewards.audit.capitals import (
    CITIES,
    COUNTRIES,
    SAME_LIKELIHOOD,
    TEXTS,
    Row,
    question_row,
)
from rag_rewards.audit.rule_evidence import COMPANIONS, reward_of
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import definition_of
from rag_rewards.recipes.sample import STATEMENT
from rag_rewards.text.refusal import ABSTENTIONS, REFUSAL

Answer = Callable[[int], str]
"""The answer of a policy to the question about a country."""
WRONG = "Bonn"
ABSTENTION = ABSTENTIONS[0]


@dataclass(frozen=True, eq=False)
class DegeneratePolicy:
    """A degenerate policy under one recipe, with its rows and those of the honest policy.

    rivals  the other rows of a group, for recipes that compare
    """

    attack: int
    recipe: str
    name: str
    attacked: tuple[Row, ...]
    honest: tuple[Row, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    rivals: tuple[Row, ...] = COMPANIONS

    @property
    def variant(self) -> str:
        """The name."""
        return self.name

    @property
    def id(self) -> str:
        """The recipe, the name and the settings."""
        return "-".join([self.recipe, self.name, *map(str, self.settings.values())])

    def rewards(self, recipe: Recipe) -> tuple[float, float]:
        """Return the mean rewards of the honest and of the degenerate policy."""
        honest, attacked = (
            mean(reward_of(recipe, row, self.rivals) for row in rows)
            for rows in (self.honest, self.attacked)
        )
        return honest, attacked


def every_document(*, cited: bool = True) -> str:
    """Return the sentences of every document, with or without citations."""
    return " ".join(
        f"{sentence.rstrip('.')}{f' [{number}]' if cited else ''}."
        for number, text in enumerate(TEXTS, 1)
        for sentence in text.split(". ")
    )


def _always(text: str) -> Answer:
    return lambda number: text


def _city(number: int) -> str:
    return CITIES[number]


def _policies() -> Iterator[DegeneratePolicy]:
    yield from _ground_policies()
    yield from _truthrl_policies()
    yield from _answer_policies()
    yield from _lear_policies()


def _ground_policies() -> Iterator[DegeneratePolicy]:
    """Yield policies over rows of which half have an answer in their documents."""
    write = definition_of("ground-grpo").output.write

    def rows(answerable: Answer, unanswerable: Answer) -> tuple[Row, ...]:
        return tuple(
            question_row(number, write(answer(number)), answerable=is_answerable)
            for answer, is_answerable in ((answerable, True), (unanswerable, False))
            for number in range(len(CITIES))
        )

    def cited(number: int) -> str:
        return f"{CITIES[number]} is the capital of {COUNTRIES[number]} [{number + 1}]."

    def hedged(number: int) -> str:
        return f"{REFUSAL} {cited(number)}"

    def uncited(number: int) -> str:
        return f"{REFUSAL} There is no doubt it is {CITIES[number]}."

    refused, copied = _always(REFUSAL), _always(every_document())
    wrong = _always(f"{REFUSAL} There is no doubt it is {WRONG}.")
    honest = rows(cited, refused)
    for attack, name, answers in (
        (22, "always abstains", (refused, refused)),
        (22, "never abstains", (cited, cited)),
        (25, "copies", (copied, copied)),
        (15, "hedges", (hedged, hedged)),
        (15, "hedges, uncited", (uncited, wrong)),
    ):
        yield DegeneratePolicy(attack, "ground-grpo", name, rows(*answers), honest)


def _truthrl_policies() -> Iterator[DegeneratePolicy]:
    """Yield policies that know the answers of half of the rows."""
    write = definition_of("truthrl").output.write

    def rows(easy: Answer, hard: Answer) -> tuple[Row, ...]:
        half = len(CITIES) // 2
        answers = [easy(number) if number < half else hard(number) for number in range(4)]
        return tuple(
            question_row(number, write(answer), verdicts={"outcome": 0})
            for number, answer in enumerate(answers)
        )

    unsure, wrong = _always(ABSTENTION), _always(WRONG)
    copied, listed = _always(every_document(cited=False)), _always(". ".join(CITIES))

    def hedged(number: int) -> str:
        return f"{CITIES[number]}, or {ABSTENTION}"

    honest = rows(_city, unsure)
    for verifier in ("judge", "exact", "substring"):
        for attack, name, answers in (
            (22, "always abstains", (unsure, unsure)),
            (22, "never abstains", (_city, wrong)),
            (32, "hedges", (hedged, _always(f"{WRONG}, {ABSTENTION}"))),
            (25, "copies", (copied, copied)),
            (1, "lists", (listed, listed)),
        ):
            yield DegeneratePolicy(
                attack, "truthrl", name, rows(*answers), honest, {"verifier": verifier}
            )


def _answer_policies() -> Iterator[DegeneratePolicy]:
    """Yield policies against one that is right on half of the rows and guesses on the others."""
    for recipe in ("arena", "naive-grpo", "ctrl-rag", "rag-total"):
        write = definition_of(recipe).output.write

        def rows(answer: Answer, write: Callable[..., str] = write) -> tuple[Row, ...]:
            likelihood = SAME_LIKELIHOOD["logprobs"]
            return tuple(
                question_row(
                    number,
                    write(answer(number)),
                    logprobs=likelihood | {"without": {str(number + 1): [-2.0] * 10}},
                )
                for number in range(len(CITIES))
            )

        honest = rows(lambda number: CITIES[number] if number < 2 else WRONG)
        rivals = ({"response": write(WRONG)} | SAME_LIKELIHOOD,)
        for attack, name, text in (
            (22, "always abstains", ABSTENTION),
            (25, "copies", every_document()),
            (25, "copies, uncited", every_document(cited=False)),
            (1, "lists", ", ".join(CITIES)),
            (1, "lists as sentences", ". ".join(CITIES) + "."),
        ):
            yield DegeneratePolicy(attack, recipe, name, rows(_always(text)), honest, rivals=rivals)


def _lear_policies() -> Iterator[DegeneratePolicy]:
    """Yield policies on a row whose sections lead to the right answer for the honest policy."""
    write = definition_of("lear").output.write

    def masked(answer: str) -> Row:
        return {"masked_answers": {"rationale": answer, "evidence": answer}}

    documents = " ".join(TEXTS)
    honest = ({"response": write("Paris", extract=f"{STATEMENT}.")} | masked("Paris"),)
    copied = {"response": write("Paris", extract=documents, reason=documents)} | masked("Paris")
    abstained = {"response": write(ABSTENTION)} | masked(ABSTENTION)
    yield DegeneratePolicy(25, "lear", "copies", (copied,), honest)
    yield DegeneratePolicy(22, "lear", "always abstains", (abstained,), honest)


POLICIES = tuple(_policies())
