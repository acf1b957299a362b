"""`ScoredRow`, a rollout with the fields of a score."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from rag_rewards.errors import RolloutError, RowError
from rag_rewards.rollout import Message, Rollout, Score, TurnEntries
from rag_rewards.rows.decoding import row_error
from rag_rewards.text.lazy import lazy

T = TypeVar("T")
Raw = msgspec.Raw | msgspec.UnsetType

SCORE_FIELDS = (
    "reward",
    "turn_rewards",
    "components",
    "correct",
    "details",
    "error",
    "signature",
)
"""The fields that a scoring writes. A later scoring replaces them."""

MISSING = "missing_before"
"""Field of a dump: the number of rollouts before the row that could not be written."""

_COUNT = msgspec.json.Decoder(int | None)
_NUMBER = msgspec.json.Decoder(float | None)
_COMPONENTS = msgspec.json.Decoder(dict[str, float | None] | None)
_DETAILS = msgspec.json.Decoder(dict[str, Any] | str | None)
_MAPPING = msgspec.json.Decoder(dict[str, Any])
_ENTRIES = msgspec.json.Decoder(tuple[float | None, ...] | None)
_TEXT = msgspec.json.Decoder(str | None)
_TEXTS = msgspec.json.Decoder(list[str] | None)
_ANYTHING = msgspec.json.Decoder()


class ScoredRow(
    Rollout,
    frozen=True,
    kw_only=True,
    dict=True,
    rename={f"raw_{name}": name for name in (*SCORE_FIELDS, "tokens", MISSING)},
):
    """A row that can contain a score.

    The fields of a score are decoded on access, so that the score of an earlier scoring cannot make
    a row undecodable. Access to an invalid field raises RowError.

    >>> row = ScoredRow.of(Rollout(response="Paris"), Score(1.0, {"accuracy": 1.0}), "arena")
    >>> row.reward, row.components, row.is_scored
    (1.0, {'accuracy': 1.0}, True)
    """

    raw_reward: Raw = msgspec.UNSET
    raw_turn_rewards: Raw = msgspec.UNSET
    raw_components: Raw = msgspec.UNSET
    raw_correct: Raw = msgspec.UNSET
    raw_details: Raw = msgspec.UNSET
    raw_error: Raw = msgspec.UNSET
    raw_signature: Raw = msgspec.UNSET
    raw_tokens: Raw = msgspec.UNSET
    raw_missing_before: Raw = msgspec.UNSET

    @classmethod
    def of(cls, rollout: Rollout, score: Score, signature: str = "") -> ScoredRow:
        """Return the rollout with this score in place of an earlier one."""
        fields = {name: getattr(rollout, name) for name in rollout.__struct_fields__}
        fields["raw_turn_rewards"] = msgspec.UNSET
        values = score_fields(rollout, score) | {"signature": signature}
        fields |= {f"raw_{name}": _raw(value) for name, value in values.items()}
        return cls(**fields)

    @property
    def has_score_fields(self) -> bool:
        """Whether the row contains any field that a scoring writes, even as null."""
        return not (
            self.raw_reward is msgspec.UNSET
            and self.raw_turn_rewards is msgspec.UNSET
            and self.raw_components is msgspec.UNSET
            and self.raw_correct is msgspec.UNSET
            and self.raw_details is msgspec.UNSET
            and self.raw_error is msgspec.UNSET
            and self.raw_signature is msgspec.UNSET
        )

    @property
    def is_scored(self) -> bool:
        """Whether a scoring wrote the row."""
        return self.components is not None

    @lazy
    def score(self) -> Score:
        """The score. Its value is None if the row has no reward."""
        return Score(
            self.reward,
            self.components or {},
            self.correct,
            self.details or {},
            self.turn_rewards or (),
        )

    @lazy
    def reward(self) -> float | None:
        """The reward, or None if the row is unscored."""
        return _decoded(self.raw_reward, _NUMBER, "reward")

    @lazy
    def turn_rewards(self) -> TurnEntries | None:
        """The reward of each turn, or None if the row has no turns."""
        return _decoded(self.raw_turn_rewards, _ENTRIES, "turn_rewards")

    @lazy
    def components(self) -> dict[str, float | None] | None:
        """The components of the reward by name."""
        return _decoded(self.raw_components, _COMPONENTS, "components")

    @lazy
    def correct(self) -> float | None:
        """Whether the answer is right, 0 to 1, or None if the recipe does not define it."""
        return _decoded(self.raw_correct, _NUMBER, "correct")

    @lazy
    def details(self) -> dict[str, Any] | None:
        """The details of the score. Parquet files contain them as JSON text."""
        details = _decoded(self.raw_details, _DETAILS, "details")
        if not isinstance(details, str):
            return details
        try:
            return _MAPPING.decode(details)
        except msgspec.MsgspecError as error:
            raise RowError(f"must be a mapping, or its JSON: {error}", "details") from None

    @lazy
    def error(self) -> Any:
        """The error of a row that an earlier scoring could not score."""
        return _decoded(self.raw_error, _ANYTHING, "error")

    @property
    def error_text(self) -> str:
        """The error as one text, "" for a row without an error of a known form.

        >>> ScoredRow(response="", raw_error=msgspec.Raw(b'{"type": "DataError"}')).error_text
        'DataError'
        """
        if not isinstance(self.error, dict):
            return ""
        parts = (self.error.get(name) for name in ("type", "path", "message"))
        return ": ".join(part for part in parts if isinstance(part, str) and part)

    @lazy
    def signature(self) -> str | None:
        """The signature of the scoring that wrote the row."""
        return _decoded(self.raw_signature, _TEXT, "signature")

    @lazy
    def tokens(self) -> list[str] | None:
        """The texts of the tokens of the response, or None if the row does not contain them."""
        return _decoded(self.raw_tokens, _TEXTS, "tokens")

    @lazy
    def missing_before(self) -> int:
        """The number of rollouts before this one that a dump could not write."""
        return _decoded(self.raw_missing_before, _COUNT, MISSING) or 0


class QuestionRow(ScoredRow, frozen=True, kw_only=True, dict=True):
    """A row of a question, which may have no response yet."""

    response: str | list[Message] = ""


def score_fields(rollout: Rollout, score: Score, names: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields of a score in a row, in their order, without the signature.

    names  components that are written even without a value

    >>> score_fields(Rollout(response="Paris"), Score(1.0, {"accuracy": 1.0}))["components"]
    {'accuracy': 1.0}
    """
    fields: dict[str, Any] = {"reward": score.value}
    turns = rollout.turns
    entries = turn_rewards(score.turns, score.value, None if turns is None else len(turns))
    if entries is not None:
        fields["turn_rewards"] = entries
    fields["components"] = dict.fromkeys(names) | dict(score.components)
    fields["correct"] = score.correct
    fields["details"] = score.details
    fields["error"] = None
    return fields


def error_fields(error: RolloutError, names: Iterable[str] = ()) -> dict[str, Any]:
    """Return the fields of a score in a row that cannot be scored."""
    empty = {"reward": None, "components": dict.fromkeys(names), "correct": None, "details": {}}
    return empty | {"error": error_data(error)}


def error_data(error: RolloutError) -> dict[str, str]:
    """Return an error as JSON. Halves of surrogate pairs, which JSON cannot contain, are escaped.

    >>> error_data(RowError("missing", "answers"))
    {'type': 'RowError', 'message': 'missing', 'path': 'answers'}
    """
    data = {"type": type(error).__name__, "message": error.message, "path": error.path}
    return {name: encodable(text) for name, text in data.items()}


def encodable(text: str) -> str:
    """Return a text with an escape in place of each half of a surrogate pair."""
    return text.encode(errors="backslashreplace").decode()


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _decoded(raw: Raw, decoder: msgspec.json.Decoder[T], name: str) -> T | None:
    if isinstance(raw, msgspec.UnsetType):
        return None
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        fault = row_error(error)
        inside = fault.path if fault.path.startswith("[") or not fault.path else f".{fault.path}"
        raise RowError(fault.message, name + inside) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RowError(f"not JSON: {error}", name) from None


def turn_rewards(
    entries: TurnEntries, value: float | None, turns: int | None
) -> TurnEntries | None:
    """Return the entries of a scored row, or None for a row without turns.

    A reward without entries is at the last turn.

    >>> turn_rewards((), 1.0, 3), turn_rewards((), 1.0, None), turn_rewards((0.5, 1.0), 1.5, None)
    ((None, None, 1.0), None, (0.5, 1.0))
    """
    if entries:
        return entries
    return None if turns is None else (*[None] * (turns - 1), value)
