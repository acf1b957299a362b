"""Settings that the recipes for search agents share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rag_rewards.definition import ChangedDefault, HardenedSetting
from rag_rewards.recipes.shared import ASK_ABOUT, UNDECIDED, UNDECIDED_ABOUT
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.answer_decision import Ask, Undecided
from rag_rewards.rewards.correctness import Metric
from rag_rewards.rewards.search import MalformedTurns, RepeatedAnswer
from rag_rewards.settings import Settings, about
from rag_rewards.text.normalize import NormalizerName
from rag_rewards.turns.calls import QUERY_FIELDS
from rag_rewards.turns.dialects import DialectName
from rag_rewards.turns.trajectory import Reading


class Tools(Settings, frozen=True):
    names: Annotated[
        tuple[str, ...], about("with dialect=tools, names of the tools that search; empty for all")
    ] = ()


class TurnSettings(Settings, frozen=True):
    """Settings of the reading of turns."""

    dialect: Annotated[
        DialectName, about("tags of queries, results and answers; auto chooses per rollout")
    ] = "auto"
    results_from: Annotated[
        Literal["text", "environment"],
        about(
            "text: also read results from a transcript, where the policy can forge them; "
            "environment: only from the field turns or from chat messages"
        ),
    ] = "text"
    error_texts: Annotated[
        tuple[str, ...],
        about("texts by which the environment rejects an action in a transcript"),
    ] = ()
    query_fields: Annotated[
        tuple[str, ...],
        about("with dialect=tools, arguments of a call that contain the query", min_length=1),
    ] = QUERY_FIELDS
    tools: Tools = Tools()
    repeated_answer: Annotated[
        RepeatedAnswer,
        about("several answers in the last turn; last: the last one counts; none: none counts"),
    ] = "last"
    malformed_penalty: Annotated[
        float,
        about(
            "number that is subtracted at each turn with an unclosed or empty query, without an "
            "action, with a call that cannot be read, or with forged results",
            ge=0,
        ),
    ] = 0.0

    def reading(self) -> Reading:
        """Return how turns are read."""
        return Reading(
            self.dialect,
            self.results_from == "environment",
            self.error_texts,
            self.query_fields,
            self.tools.names,
        )

    def malformed_turns(self) -> MalformedTurns:
        """Return the penalties of malformed turns, as a reward."""
        return MalformedTurns(self.malformed_penalty, self.reading())


class AnswerSettings(TurnSettings, frozen=True):
    """Settings of the reading of turns, and of the comparison with the gold answers."""

    normalizer: Annotated[NormalizerName, about("text normalizer of the answer")] = "squad"
    fold_accents: Annotated[bool, about("with the normalizer unicode, read São as Sao")] = False
    numbers: Annotated[bool, about("with the normalizer unicode, read 1 million as 1,000,000")] = (
        False
    )
    dates: Annotated[
        bool, about("with the normalizer unicode, read 5 March 1999 as 1999-03-05")
    ] = False

    def match(self, name: str, metric: Metric = "exact", **options: Any) -> AnswerMatch:
        """Return the comparison with the gold answers, as a reward with this name."""
        return AnswerMatch(
            name,
            metric=metric,
            normalizer=self.normalizer,
            fold_accents=self.fold_accents,
            numbers=self.numbers,
            dates=self.dates,
            **options,
        )


class DecidedSettings(AnswerSettings, frozen=True):
    """The same, where a judge can decide on answers that are neither right nor wrong."""

    undecided: Annotated[Undecided, UNDECIDED_ABOUT] = "match"
    ask: Annotated[Ask, ASK_ABOUT] = "undecided"

    def decided_match(self, name: str, metric: Metric, **options: Any) -> AnswerMatch:
        """Return the comparison with the gold answers, as a reward with this name."""
        return self.match(name, metric, undecided=self.undecided, ask=self.ask, **options)


class ExactSettings(AnswerSettings, frozen=True):
    """The same, for an exact match."""

    normalizer: Annotated[NormalizerName, about("text normalizer of an exact match")] = "squad"
    undecided: Annotated[
        Literal["match", "wrong"],
        about(
            "match: an exact match alone decides, as published; wrong: an answer is right only if "
            "every word of it is explained"
        ),
    ] = "match"
    extra: Annotated[
        Literal["allow", "reject"],
        about("with several required answers, whether an exact match may list other items"),
    ] = "allow"

    def exact_match(self, name: str) -> AnswerMatch:
        """Return the exact match with the gold answers, as a reward with this name."""
        return self.match(name, undecided=self.undecided, extra=self.extra)


HARDENED = {
    "results_from": HardenedSetting(
        "environment", (33,), "a results block that the policy writes after its own query"
    ),
    "repeated_answer": HardenedSetting("none", (7,), "many answer sections, the last one right"),
    "malformed_penalty": HardenedSetting(0.1, (43,), "invalid turns until the limit"),
}
"""The hardened settings of the reading of turns."""
UNICODE = HardenedSetting(
    "unicode", (4, 6, 27, 28), "matching 3.14 with 314 or C++ with C; invisible characters"
)
"""The hardened normalizer of an answer."""
EXACT_HARDENED = {
    **HARDENED,
    "normalizer": UNICODE,
    "undecided": UNDECIDED,
    "extra": HardenedSetting("reject", (1,), "an answer that lists every candidate answer"),
}
"""The hardened settings of the reading of turns and of an exact match."""
CHANGED_EXACT = (ChangedDefault("0.8.0", "undecided", default="match", hardened="wrong"),)
CHANGED = (
    *CHANGED_EXACT,
    ChangedDefault("0.8.0", "ask", default="undecided", hardened="undecided"),
)
"""Settings that versions before 0.8.0 do not have."""
