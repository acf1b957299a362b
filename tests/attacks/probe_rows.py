"""Rows that test what the hardened recipes accept: attacks, and honest responses.

    python tests/attacks/probe_rows.py
    python tests/attacks/probe_rows.py --show honest-initials

The first command prints how many rows of each class hold. The second one also prints the rows of a
class that do not hold. `probes/README.md` describes the format.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import rag_rewards as rr
from rag_rewards.audit.capitals import SAME_LIKELIHOOD
from rag_rewards.audit.cases import CaseResponse
from rag_rewards.audit.rule_evidence import rollout_of
from rag_rewards.errors import UsageError
from rag_rewards.recipes import definition_of
from rag_rewards.text.statements import sentences

FOLDER = Path(__file__).with_name("probes")
Settings = tuple[tuple[str, Mapping[str, Any]], ...]
"""Recipes, each with settings that are added to the hardened ones."""
_CITED: Settings = (("ground-grpo", {"citation.judge_by": "gold"}), ("ground-grpo", {}))
_DECIDED: Settings = (
    ("truthrl", {"verifier": "substring"}),
    ("ctrl-rag", {}),
    ("rag-total", {}),
)
_SHORT: Settings = (("arena", {}), ("naive-grpo", {}), ("truthrl", {"verifier": "exact"}))
GROUPS: Mapping[str, Settings] = {
    "all": _DECIDED + _SHORT + _CITED,
    "decided": _DECIDED + _SHORT,
    "cited": _CITED,
}
"""The recipes that decide on the answer, and those that check the citation of each statement."""
_NEUTRAL: Mapping[str, Any] = {
    "documents": [{"id": n, "text": f"Text of document {n}."} for n in range(1, 6)],
    "supporting": [1],
}
_COMPARISONS = ("at_most", "below", "at_least", "above")
_MARKER = re.compile(r"\[\d+\]")

_TOLERANCE = 1e-9


class Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of a file. `probes/README.md` describes the fields."""

    recipes: str | dict[str, dict[str, Any]]
    question: str
    response: str | CaseResponse
    row: dict[str, Any] = {}
    golds: tuple[str, ...] = ()
    correct: bool | None = None
    decision: tuple[str, ...] = ()
    at_most: str | CaseResponse | None = None
    below: str | CaseResponse | None = None
    at_least: str | CaseResponse | None = None
    above: str | CaseResponse | None = None

    def __post_init__(self) -> None:
        comparisons = [getattr(self, name) is not None for name in _COMPARISONS]
        if (
            sum([*comparisons, *map(bool, (self.golds, self.decision)), self.correct is not None])
            != 1
        ):
            raise ValueError("give one of golds, correct, decision and a comparison")
        if len(self.golds) == 1:
            raise ValueError("golds must contain at least two answers")
        if isinstance(self.recipes, str) and self.recipes not in GROUPS:
            raise ValueError(f"recipes must be a mapping or one of {', '.join(GROUPS)}")

    @property
    def settings(self) -> Settings:
        """The recipes and their settings."""
        if isinstance(self.recipes, str):
            return GROUPS[self.recipes]
        return tuple(self.recipes.items())

    @property
    def is_honest(self) -> bool:
        """Whether the response deserves its reward."""
        return any((self.correct, self.decision, self.at_least, self.above))

    def holds(self, *, hardened: bool = True) -> bool:
        """Return whether all recipes score the row as expected."""
        return not self.failures(hardened=hardened)

    def failures(self, *, hardened: bool = True) -> list[str]:
        """Return the recipes that do not score the row as expected, with the scores."""
        return [
            failure
            for name, changes in self.settings
            if (failure := self.failure(name, changes, hardened=hardened))
        ]

    def failure(self, name: str, changes: Mapping[str, Any], *, hardened: bool) -> str:
        """Return how a recipe scores the row, or "" if it scores the row as expected."""
        try:
            recipe = recipe_of(name, changes, hardened)
        except UsageError as error:
            if "has no setting" in str(error):
                raise ValueError(f"a row of the probes: {error}") from None
            # A refused combination of settings cannot pay.
            return f"{name}: {error}" if self.is_honest else ""
        score = _Scorer(recipe, self)
        if self.golds:
            paid = [g for g in self.golds if score(self.response, {"answers": [g]}).correct == 1]
            return f"{name}: correct for {paid}" if len(paid) > 1 else ""
        own = score(self.response)
        if self.decision:
            # The default profile states no decision.
            value = own.details.get("decision", "right" if own.correct == 1 else "wrong")
            return "" if value in self.decision else f"{name}: decided {value}"
        if self.correct is not None:
            return "" if (own.correct == 1) == self.correct else f"{name}: correct {own.correct}"
        for comparison in _COMPARISONS:
            other = getattr(self, comparison)
            if other is not None:
                value, reference = own.value, score(other).value
                if not _compare(comparison, value, reference):
                    return f"{name}: reward {value:.3f}, reference {reference:.3f}"
        return ""


def recipe_of(name: str, settings: Mapping[str, Any], hardened: bool = False) -> rr.Recipe:
    """Return a recipe, which many rows share."""
    return _recipe(name, json.dumps(settings), hardened)


@functools.cache
def _recipe(name: str, settings: str, hardened: bool) -> rr.Recipe:
    return rr.recipe(name, json.loads(settings), hardened=hardened)


def _compare(comparison: str, value: float | None, reference: float | None) -> bool:
    if value is None or reference is None:
        raise ValueError("a row of the probes has no score")
    difference = value - reference
    if comparison == "at_most":
        return difference <= _TOLERANCE
    if comparison == "below":
        return difference < -_TOLERANCE
    if comparison == "at_least":
        return difference >= -_TOLERANCE
    return difference > _TOLERANCE


@dataclass(frozen=True)
class _Scorer:
    """Scores responses to the row of a probe with one recipe."""

    recipe: rr.Recipe
    probe: Probe

    def __call__(self, response: str | CaseResponse, more: Mapping[str, Any] = {}) -> rr.Score:
        form = definition_of(self.recipe.name).output
        if isinstance(response, str) and isinstance(self.probe.recipes, str):
            response, more = self._with_citations(response, more)
        if isinstance(response, str):
            response = CaseResponse(answer=response)
        # The log-probabilities of both sides are equal, so that only the texts differ.
        row = {
            **_NEUTRAL,
            **SAME_LIKELIHOOD,
            "question": self.probe.question,
            **self.probe.row,
            **more,
            **response.row,
        }
        if response.turns is not None:
            row["turns"] = response.turns
        else:
            row["response"] = response.text(form)
        return self.recipe([rollout_of(self.recipe, row)])[0]

    def _with_citations(self, text: str, more: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return a text and its row, so that each statement cites what it says of an answer.

        There is one document for each answer, and for an honest text one that says the same.
        """
        row = {**self.probe.row, **more}
        if self.recipe.name != "ground-grpo" or "documents" in row or "answers" not in row:
            return text, more
        golds = self.probe.golds or [row["answers"][0]]
        texts = [f"{self.probe.question} {each}." for each in golds]
        if self.probe.is_honest:
            text = _MARKER.sub("", text)
            texts = [text]
        right = [n for n, each in enumerate(golds, 1) if each == row["answers"][0]]
        documents = [{"id": n, "text": each} for n, each in enumerate(texts, 1)]
        more = {**more, "documents": documents, "supporting": right, "answerable": True}
        return text if _MARKER.search(text) else _cited(text, golds, self.probe.is_honest), more


def _cited(text: str, golds: Sequence[Any], everywhere: bool) -> str:
    """Return a text whose sentences cite the document of each answer that they contain."""
    parts = []
    for sentence in sentences(text):
        numbers = [n for n, gold in enumerate(golds, 1) if everywhere or gold in sentence]
        markers = "".join(f"[{n}]" for n in numbers)
        bare = sentence.rstrip(" .\n")
        parts.append(f"{bare} {markers}{sentence[len(bare) :]}" if markers else sentence)
    return "".join(parts)


def classes() -> list[str]:
    """Return the names of the classes."""
    return sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def read(name: str) -> Iterator[Probe]:
    """Yield the rows of a class. Raises ValueError if a row is invalid."""
    decoder = msgspec.json.Decoder(Probe)
    for number, line in enumerate((FOLDER / f"{name}.jsonl").read_bytes().splitlines(), 1):
        try:
            yield decoder.decode(line)
        except msgspec.DecodeError as error:
            raise ValueError(f"{name}.jsonl line {number}: {error}") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", metavar="CLASS", help="print the rows of CLASS that do not hold")
    parser.add_argument("--default", action="store_true", help="use the default profile")
    options = parser.parse_args()
    for name in [options.show] if options.show else classes():
        failures = [probe.failures(hardened=not options.default) for probe in read(name)]
        share = failures.count([]) / len(failures)
        print(f"{name:32} {failures.count([]):4} / {len(failures):3} {share:7.1%}")
        for number, (probe, lines) in enumerate(zip(read(name), failures, strict=True), 1):
            if lines and options.show:
                gold = probe.golds or probe.row.get("answers", "")
                print(f"\nline {number}: {probe.question}  gold: {gold}\n  {probe.response}")
                print("".join(f"    {line}\n" for line in lines), end="")


if __name__ == "__main__":
    main()
