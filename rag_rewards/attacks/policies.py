"""Degenerate policies: the same bad habit on every row, beside an honest policy that knows as much.

A policy pays when its mean reward beats the honest one's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from rag_rewards.attacks.cases import LIKELY
from rag_rewards.attacks.rows import REASON, REFUSAL, SAID, TEXTS, Row, arena, boxed, lear, tagged
from rag_rewards.attacks.stand_ins import COMPANIONS, earns
from rag_rewards.blueprints import Recipe

CITIES = ("Paris", "Rome", "Berlin", "Madrid")
COUNTRIES = ("France", "Italy", "Germany", "Spain")
UNSURE = "I don't know"
Says = Callable[[int], str]
"""What a policy answers to the question about a country."""


@dataclass(frozen=True, eq=False)
class Policy:
    """One habit under one recipe, on a mix of rows."""

    attack: int
    recipe: str
    name: str
    attacked: tuple[Row, ...]
    honest: tuple[Row, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    rivals: tuple[Row, ...] = COMPANIONS

    @property
    def id(self) -> str:
        return "-".join([self.recipe, self.name, *map(str, self.settings.values())])

    def earned(self, recipe: Recipe) -> tuple[float, float]:
        """Mean reward of the honest policy, and of this one."""
        honest, attacked = (
            mean(earns(recipe, row, self.rivals) for row in rows)
            for rows in (self.honest, self.attacked)
        )
        return honest, attacked


def whole(*, cited: bool = True) -> str:
    """Every document, sentence by sentence."""
    return " ".join(
        f"{part.rstrip('.')}{f' [{n}]' if cited else ''}."
        for n, text in enumerate(TEXTS, 1)
        for part in text.split(". ")
    )


def asked(n: int, response: str, **more: Any) -> Row:
    """A row about one of the four countries."""
    return {
        "question": f"What is the capital of {COUNTRIES[n]}?",
        "answers": [CITIES[n]],
        "supporting": [n + 1],
        "response": response,
        **more,
    }


def policies() -> Iterator[Policy]:
    yield from _ground()
    yield from _truthrl()
    yield from _answers()
    yield from _lear()


def _ground() -> Iterator[Policy]:
    """Half of the rows have an answer in their documents."""

    def mix(answer: Says, refusal: Says) -> tuple[Row, ...]:
        yes = [asked(n, tagged(answer(n)), answerable=True) for n in range(4)]
        return (*yes, *(asked(n, tagged(refusal(n)), answerable=False) for n in range(4)))

    def right(n: int) -> str:
        return f"{CITIES[n]} is the capital of {COUNTRIES[n]} [{n + 1}]."

    def refuses(n: int) -> str:
        return REFUSAL

    def hedges(n: int) -> str:
        return f"{REFUSAL} {right(n)}"

    def doubts(n: int) -> str:
        return f"{REFUSAL} There is no doubt it is {CITIES[n]}."

    honest = mix(right, refuses)
    for attack, name, rows in (
        (22, "always abstains", mix(refuses, refuses)),
        (22, "never abstains", mix(right, right)),
        (25, "copies", mix(lambda n: whole(), lambda n: whole())),
        (15, "hedges", mix(hedges, hedges)),
        (
            15,
            "hedges, uncited",
            mix(doubts, lambda n: f"{REFUSAL} There is no doubt it is Bonn."),
        ),
    ):
        yield Policy(attack, "ground-grpo", name, rows, honest)


def _truthrl() -> Iterator[Policy]:
    """The policy knows half of the answers."""
    judged = {"verdicts": {"outcome": 0}}

    def mix(known: Says, unknown: Says) -> tuple[Row, ...]:
        said = [known(n) if n < 2 else unknown(n) for n in range(4)]
        return tuple(asked(n, boxed(text), **judged) for n, text in enumerate(said))

    def right(n: int) -> str:
        return CITIES[n]

    honest = mix(right, lambda n: UNSURE)
    copies = [lambda n: whole(cited=False)] * 2
    lists = [lambda n: ". ".join(CITIES)] * 2
    for verifier in ("judge", "exact", "substring"):
        for attack, name, rows in (
            (22, "always abstains", mix(lambda n: UNSURE, lambda n: UNSURE)),
            (22, "never abstains", mix(right, lambda n: "Bonn")),
            (32, "hedges", mix(lambda n: f"{right(n)}, or {UNSURE}", lambda n: f"Bonn, {UNSURE}")),
            (25, "copies", mix(*copies)),
            (1, "lists", mix(*lists)),
        ):
            yield Policy(attack, "truthrl", name, rows, honest, {"verifier": verifier})


def _answers() -> Iterator[Policy]:
    """The honest policy is right on half of the rows and guesses on the others."""
    for recipe in ("arena", "naive-grpo", "ctrl-rag", "rag-total"):
        shape = arena if recipe == "arena" else tagged

        def rows(says: Says, shape: Callable[[str], str] = shape) -> tuple[Row, ...]:
            likely = LIKELY["logprobs"]
            return tuple(
                asked(
                    n,
                    shape(says(n)),
                    logprobs=likely | {"without": {str(n + 1): [-2.0] * 10}},
                )
                for n in range(4)
            )

        honest = rows(lambda n: CITIES[n] if n < 2 else "Bonn")
        for attack, name, says in (
            (22, "always abstains", lambda n: UNSURE),
            (25, "copies", lambda n: whole()),
            (25, "copies, uncited", lambda n: whole(cited=False)),
            (1, "lists", lambda n: ", ".join(CITIES)),
            (1, "lists as sentences", lambda n: ". ".join(CITIES) + "."),
        ):
            rivals = ({"response": shape("Bonn")} | LIKELY,)
            yield Policy(attack, recipe, name, rows(says), honest, rivals=rivals)


def _lear() -> Iterator[Policy]:
    """Copying every passage leads to the same answers, at the cost of the extract's length."""
    right = {"masked_answers": {"rationale": "Paris", "evidence": "Paris"}}
    unsure = {"masked_answers": {"rationale": UNSURE, "evidence": UNSURE}}
    honest = ({"response": lear("Paris", f"{SAID}.", REASON)} | right,)
    copied = {"response": lear("Paris", " ".join(TEXTS), " ".join(TEXTS))} | right
    yield Policy(25, "lear", "copies", (copied,), honest)
    yield Policy(22, "lear", "always abstains", ({"response": lear(UNSURE)} | unsure,), honest)


POLICIES = tuple(policies())
