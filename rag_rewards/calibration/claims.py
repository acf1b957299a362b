"""Rows with a premise and a claim, for the calibration of entailment models.

    {"premise": "…", "claim": "…", "label": true, "scores": {"model": 0.93}}

`premise` can be called `source`, and can be a list of documents; `claim` can be called `summary`.
A file of FaithBench (`batch_N.json`) is read as such rows, see `faithbench_rows`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.files.sources import open_source
from rag_rewards.rows import Line, decode_line, line_key, row_error
from rag_rewards.text.statements import sentences


class Claim(msgspec.Struct, frozen=True):
    """A premise and a claim, under one of the names that data sets use."""

    premise: str | list[str] | None = None
    source: str | list[str] | None = None
    claim: str | None = None
    summary: str | None = None

    @property
    def texts(self) -> tuple[str, str]:
        """The premise and the claim. Raises DataError if one of them is missing or empty."""
        premise = self.source if self.premise is None else self.premise
        claim = self.summary if self.claim is None else self.claim
        text = premise if isinstance(premise, str) else "\n\n".join(premise or ())
        if not text.strip():
            raise DataError("missing or empty; add the text that supports the claim", "premise")
        if not (claim or "").strip():
            raise DataError("missing or empty; add the text to check", "claim")
        return text, str(claim)


_CLAIM = msgspec.json.Decoder(Claim)


def read_claim(line: bytes) -> tuple[str, str]:
    """Return the premise and the claim of a row. Raises a RolloutError for an invalid row."""
    claim = decode_line(line, _CLAIM)  # type: ignore[type-var]
    if isinstance(claim, RolloutError):
        raise claim
    return claim.texts


def claim_key(line: bytes) -> str | None:
    """Return the group of a row or, without one, its premise. Claims about it are not independent.

    >>> claim_key(b'{"premise": "A.", "claim": "B."}')
    'A.'
    """
    key = line_key(line)
    if key is not None:
        return key
    try:
        return read_claim(line)[0]
    except RolloutError:
        return None


def claim_statements(claim: str) -> list[str]:
    """Return the sentences and list items of a claim. A piece without a word is left out.

    >>> claim_statements("A won. B lost. …")
    ['A won.', 'B lost.']
    """
    pieces = [piece.strip() for piece in sentences(claim)]
    return [piece for piece in pieces if any(map(str.isalnum, piece))] or [claim]


def claim_lines(path: str) -> Iterator[Line]:
    """Yield the rows of a file of claims: JSON lines, Parquet, or a FaithBench file (.json)."""
    if path.endswith(".json"):
        rows = faithbench_rows(Path(path))
        yield from ((at, msgspec.json.encode(row)) for at, row in enumerate(rows, start=1))
        return
    with contextlib.closing(open_source(path)) as source:
        yield from source.lines


# --- FaithBench ----------------------------------------------------------------------------------


class _Annotation(msgspec.Struct):
    label: list[str] = []


class _Sample(msgspec.Struct):
    source: str
    summary: str
    sample_id: int | str | None = None
    annotations: list[_Annotation] = []
    metadata: dict[str, Any] = {}


class _Batch(msgspec.Struct):
    samples: list[_Sample]


_GRADES = {"unwanted": 0, "questionable": 1, "benign": 2}
_CONSISTENT = 3
_FIX = "; a file with one row per line needs a name that ends in .jsonl"
_BATCH = msgspec.json.Decoder(_Batch)


def faithbench_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the samples of a FaithBench file as rows with these fields.

    premise, claim  the source and the summary
    consistent      true without an annotation, or if all annotations are benign
    grade           3 without an annotation, else that of the worst one: 2 benign, 1 questionable,
                    0 unwanted
    summarizer      the model that wrote the summary
    scores          the outputs of detectors, by model: higher is more consistent

    Raises UsageError for a file that cannot be read. Source: FaithBench (Bao et al. 2025), the
    format of `data_for_release` and the aggregation "worst" of its scripts.
    """
    try:
        batch = _BATCH.decode(path.read_bytes())
        grades = [_grade(sample.annotations) for sample in batch.samples]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is not a FaithBench file: {row_error(error)}{_FIX}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}{_FIX}") from None
    except KeyError as error:
        raise UsageError(
            f"{path} is not a FaithBench file: unknown label {error}; the labels are "
            f"{', '.join(map(str.capitalize, _GRADES))}"
        ) from None
    for place, (sample, grade) in enumerate(zip(batch.samples, grades, strict=True)):
        yield {
            "id": f"{path.stem}/{place if sample.sample_id is None else sample.sample_id}",
            "premise": sample.source,
            "claim": sample.summary,
            "consistent": grade >= _GRADES["benign"],
            "grade": grade,
            "summarizer": sample.metadata.get("summarizer"),
            "scores": {
                name: value
                for name, value in sample.metadata.items()
                if isinstance(value, (int, float)) and name != "raw_sample_id"
            },
        }


def _grade(annotations: Sequence[_Annotation]) -> int:
    """Return the lowest grade of the labels; `Unwanted.Intrinsic` is a kind of `Unwanted`."""
    labels = [label.partition(".")[0].casefold() for each in annotations for label in each.label]
    return min((_GRADES[label] for label in labels), default=_CONSISTENT)
