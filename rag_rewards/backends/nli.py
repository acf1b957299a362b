"""Does one text entail another: P(premise entails hypothesis), from a model in a folder.

Two kinds are told apart by the model's config: classifiers over pairs (BERT, RoBERTa, DeBERTa,
BART, …), and T5 models that write "1" or "0" (TRUE, as in ALCE and Trust-Score). A premise that is
too long is read in pieces, and the best piece counts. What a text spells out ("[SEP]", "</s>") is
text to the model, never one of its control tokens.
"""

from __future__ import annotations

import asyncio
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rag_rewards.backends.local_models import (
    free_memory,
    identity,
    is_out_of_memory,
    load_model,
    load_tokenizer,
    model_files,
    model_folder,
    needs_extra,
    read_config,
    require_complete,
    sentence_modules,
    torch_device,
    torch_dtype,
)
from rag_rewards.errors import BackendError, UsageError

_TOKEN_BUDGET = {"cuda": 16_384, "cpu": 1_024}
"""Tokens of a batch, padding included. A CPU gains nothing from more, and would pad more."""
_PREMISE_SHARE = 8
"""The premise gets at least this part of the model's length, so that pieces stay few."""


def load_entailment(
    model: str | Path,
    *,
    device: str | None = None,
    dtype: str = "float32",
    revision: str | None = None,
    max_length: int | None = None,
    overlap: int = 64,
    token_budget: int | None = None,
    entailment_label: str | int | None = None,
    answers: tuple[str, str] = ("1", "0"),
    too_long: TooLong = "zero",
) -> LocalEntailment:
    """Load an entailment model from a folder, or by its name from the Hugging Face hub.

    device            "cpu", "cuda", "cuda:1", …; None takes a GPU where there is one
    dtype             "float32", "bfloat16", "float16", or "auto": as saved
    revision          of a model from the hub
    max_length        tokens that the model reads at once; None is what its files say. T5 has no
                      table of positions and may be given more than it says (TRUE: 2048)
    overlap           tokens that neighbouring pieces of a long premise share
    token_budget      tokens in a batch, padding included; halved when memory runs out. None is
                      16,384, on a CPU 1,024
    entailment_label  name or index of a classifier's label, where its config does not tell
    answers           what a T5 model writes for yes and for no
    too_long          a hypothesis that the model cannot read whole: "zero", nothing entails what
                      nobody can check; "cut", its beginning is read; "error" for the whole call

    Raises MissingExtraError without the packages, UsageError for arguments that cannot be used
    (among them a folder that is not there and a label that nobody can tell), BackendError for a
    folder that lacks weights or a tokenizer, or whose weights are not those of such a model.
    """
    with needs_extra("nli"):
        import torch  # noqa: F401
        import transformers  # noqa: F401
    if overlap < 0 or any(n is not None and n < 1 for n in (max_length, token_budget)):
        raise UsageError("overlap is 0 or more, max_length and token_budget are 1 or more")
    where, precision = torch_device(device), torch_dtype(dtype)
    folder = model_folder(model, revision)
    require_complete(folder)
    config = read_config(folder)
    if _writes_text(config):
        if entailment_label is not None:
            raise UsageError("entailment_label is for classifiers; this model writes `answers`")
        reader: _Classifier | _Writer = _writer(folder, precision, where, answers)
    else:
        reader = _classifier(folder, precision, where, config, entailment_label)
    return LocalEntailment(
        reader,
        name=f"nli {config.get('model_type', '')} {identity(folder, model_files(folder))}",
        max_length=_length(reader, max_length),
        overlap=overlap,
        token_budget=token_budget or _TOKEN_BUDGET.get(where.type, _TOKEN_BUDGET["cuda"]),
        too_long=too_long,
    )


TooLong = Literal["zero", "cut", "error"]


class HypothesisTooLong(BackendError):
    """A statement that does not fit into the model."""


# --- the backend -------------------------------------------------------------------------------


@dataclass
class EntailmentUsage:
    """What the model was run on: pairs asked for, pieces, their tokens, and with padding."""

    pairs: int = 0
    pieces: int = 0
    tokens: int = 0
    padded: int = 0


class LocalEntailment:
    """P(premise entails hypothesis), 0 to 1, by a model in this process; see `load_entailment`.

    Equal pairs are asked once. An empty premise or hypothesis (no text, or none that the
    tokenizer has a token for) entails nothing: 0.0, without asking. Values do not depend on what
    else is asked, up to float noise (1e-5 in float32).
    """

    def __init__(
        self,
        reader: _Classifier | _Writer,
        *,
        name: str,
        max_length: int,
        overlap: int,
        token_budget: int,
        too_long: TooLong,
    ) -> None:
        self.max_length = max_length
        self.overlap = overlap
        self.token_budget = token_budget
        self.too_long = too_long
        self.usage = EntailmentUsage()
        self._reader: _Classifier | _Writer | None = reader
        self._lock = threading.Lock()
        precision = str(reader.model.dtype).removeprefix("torch.")
        self._fingerprint = (
            f"{name} {precision} {reader.label} max_length={max_length} overlap={overlap}"
            + (f" too_long={too_long}" if too_long != "zero" else "")
        )

    @property
    def fingerprint(self) -> str:
        """Which weights, in which precision, and what else changes a value."""
        return self._fingerprint

    async def entail(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Probabilities of (premise, hypothesis) pairs, in their order. In a thread, one call
        at a time.

        Raises BackendError: a value that is not a number, memory that does not suffice for a
        single piece, and with too_long="error" a hypothesis that is.
        """
        return await asyncio.to_thread(self.entail_sync, pairs)

    def entail_sync(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The same for callers without an event loop."""
        with self._lock:
            if self._reader is None:
                raise BackendError("the entailment model is closed")
            distinct = list(dict.fromkeys((p, h) for p, h in pairs if p.strip() and h.strip()))
            known = dict(zip(distinct, self._distinct(self._reader, distinct), strict=True))
            self.usage.pairs += len(distinct)
            return [known.get((premise, hypothesis), 0.0) for premise, hypothesis in pairs]

    async def close(self) -> None:
        """Let go of the model. Asking again is an error."""
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        with self._lock:
            self._reader = None
            free_memory()

    def _distinct(
        self, reader: _Classifier | _Writer, pairs: Sequence[tuple[str, str]]
    ) -> list[float]:
        """The best piece of every pair."""
        pieces: list[Piece] = []
        owners: list[int] = []
        for at, frame in enumerate(reader.frames(pairs)):
            if frame is None:
                continue
            try:
                cut = frame.pieces(self.max_length, self.overlap, self.too_long == "cut")
            except HypothesisTooLong as error:
                if self.too_long == "zero":
                    continue
                raise BackendError(f"{error}: {_short(pairs[at][1])}") from None
            pieces.extend(cut)
            owners.extend([at] * len(cut))
        best = [0.0] * len(pairs)
        for owner, value in zip(owners, self._run(reader, pieces), strict=True):
            best[owner] = max(best[owner], value)
        return best

    def _run(self, reader: _Classifier | _Writer, pieces: Sequence[Piece]) -> list[float]:
        """Longest first: little padding, and what memory does not suffice for comes at once."""
        order = sorted(range(len(pieces)), key=lambda i: len(pieces[i].ids), reverse=True)
        values = [0.0] * len(pieces)
        done = 0
        while done < len(order):
            longest = len(pieces[order[done]].ids)
            batch = order[done : done + max(1, self.token_budget // longest)]
            found = self._within_memory(reader, [pieces[i] for i in batch])
            if found is None:
                continue
            for i, value in zip(batch, found, strict=True):
                values[i] = value
            done += len(batch)
        return values

    def _within_memory(
        self, reader: _Classifier | _Writer, batch: Sequence[Piece]
    ) -> list[float] | None:
        """The values of a batch; None when memory ran out and the budget was halved."""
        padded = len(batch) * max(len(piece.ids) for piece in batch)
        try:
            values = _values(reader, batch)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise BackendError(f"the entailment model failed: {error}") from error
            if len(batch) == 1:
                raise BackendError(f"out of memory with one piece of {padded} tokens") from error
        else:
            self.usage.pieces += len(batch)
            self.usage.tokens += sum(len(piece.ids) for piece in batch)
            self.usage.padded += padded
            return values
        self.token_budget = max(padded // 2, 1)
        free_memory()
        warnings.warn(
            f"out of memory: going on with a token budget of {self.token_budget}", stacklevel=2
        )
        return None


def _values(reader: _Classifier | _Writer, batch: Sequence[Piece]) -> list[float]:
    """Probabilities of a padded batch."""
    import torch

    longest = max(len(piece.ids) for piece in batch)
    inputs = {
        "input_ids": [piece.ids + [reader.pad] * (longest - len(piece.ids)) for piece in batch],
        "attention_mask": [
            [1] * len(piece.ids) + [0] * (longest - len(piece.ids)) for piece in batch
        ],
    }
    if batch[0].types is not None:
        inputs["token_type_ids"] = [
            (piece.types or []) + [0] * (longest - len(piece.ids)) for piece in batch
        ]
    with torch.inference_mode():
        where = reader.model.device
        tensors = {name: torch.tensor(rows, device=where) for name, rows in inputs.items()}
        found = reader.probabilities(tensors)
        if not bool(torch.isfinite(found).all()):
            raise BackendError(
                f"the entailment model gives values that are not numbers in {reader.model.dtype}; "
                "try dtype='bfloat16' or 'float32'"
            )
        values: list[float] = found.tolist()
    return values


# --- pieces ------------------------------------------------------------------------------------


def windows(length: int, room: int, overlap: int) -> list[tuple[int, int]]:
    """Spans of at most `room` that cover 0 to `length`; neighbours share `overlap` or more.

    All are full, the last as well: it begins early enough. `overlap` is less than `room`.

    >>> windows(10, 4, 1)
    [(0, 4), (3, 7), (6, 10)]
    >>> windows(9, 4, 1)
    [(0, 4), (3, 7), (5, 9)]
    """
    if length <= room:
        return [(0, length)]
    starts = [*range(0, length - room, room - overlap), length - room]
    return [(start, start + room) for start in starts]


@dataclass(frozen=True)
class Piece:
    """What the model reads at once."""

    ids: list[int]
    types: list[int] | None


@dataclass(frozen=True)
class Frame:
    """A whole pair as the model would read it, and where in it the two texts stand."""

    ids: list[int]
    types: list[int] | None
    premise: tuple[int, int]
    hypothesis: tuple[int, int]

    def pieces(self, limit: int, overlap: int, cut_hypothesis: bool = False) -> list[Piece]:
        """Pieces of at most `limit` tokens, each with the whole hypothesis.

        Together they hold every token of the premise; neighbours share `overlap` tokens, at most
        half of what fits. HypothesisTooLong where the hypothesis does not leave the premise what it
        needs, at most an eighth of `limit`, unless its end may be cut off.
        """
        if len(self.ids) <= limit:
            return [Piece(self.ids, self.types)]
        (start, end), (_, tail) = self.premise, self.hypothesis
        around = len(self.ids) - (end - start)
        least = min(end - start, max(limit // _PREMISE_SHARE, 1))
        if (excess := around + least - limit) > 0:
            self._refuse(limit, least, excess, cut_hypothesis)
            around -= excess
        excess = max(excess, 0)
        room = limit - around
        return [
            Piece(
                _cut(self.ids, start, end, a, b, tail, excess),
                self.types and _cut(self.types, start, end, a, b, tail, excess),
            )
            for a, b in windows(end - start, room, min(overlap, room // 2))
        ]

    def _refuse(self, limit: int, least: int, excess: int, cut_hypothesis: bool) -> None:
        found = self.hypothesis[1] - self.hypothesis[0]
        if excess >= found:
            raise BackendError(
                f"max_length={limit} leaves no room for a hypothesis beside {least} tokens of the "
                "premise and the model's own"
            )
        if not cut_hypothesis:
            raise HypothesisTooLong(
                f"a hypothesis of {found} tokens is too long: {found - excess} fit into "
                f'{limit} beside {least} of the premise; too_long="cut" reads those'
            )


def _cut(ids: list[int], start: int, end: int, a: int, b: int, tail: int, excess: int) -> list[int]:
    """Tokens a to b of the premise, and the hypothesis without its last `excess` tokens."""
    return ids[:start] + ids[start + a : start + b] + ids[end : tail - excess] + ids[tail:]


def _span(where: Sequence[bool]) -> tuple[int, int] | None:
    """From the first to behind the last true one."""
    found = [i for i, here in enumerate(where) if here]
    return (found[0], found[-1] + 1) if found else None


def _frame(
    ids: list[int],
    types: list[int] | None,
    premise: tuple[int, int] | None,
    hypothesis: tuple[int, int] | None,
    control: Mapping[int, int],
) -> Frame | None:
    """None where a text has no token. Control tokens that a text spells out become unknown."""
    if premise is None or hypothesis is None:
        return None
    clean = list(ids)
    for start, end in (premise, hypothesis):
        clean[start:end] = [control.get(i, i) for i in ids[start:end]]
    return Frame(clean, types, premise, hypothesis)


def _control(tokenizer: Any) -> dict[int, int]:
    """Ids that no text may give, and what stands for them."""
    unknown = tokenizer.unk_token_id
    return {} if unknown is None else dict.fromkeys(tokenizer.all_special_ids, unknown)


_PLAIN = {
    "truncation": False,
    "padding": False,
    "return_attention_mask": False,
    "split_special_tokens": True,
    "verbose": False,
}


# --- classifiers -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Classifier:
    """One logit per label, of a pair; a single logit is that of entailment itself."""

    model: Any
    tokenizer: Any
    pad: int
    index: int

    @property
    def label(self) -> str:
        return f"label={self.index}"

    def frames(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Frame | None]:
        if not pairs:
            return
        premises, hypotheses = zip(*pairs, strict=True)
        found = self.tokenizer(list(premises), list(hypotheses), **_PLAIN)
        typed = "token_type_ids" in self.tokenizer.model_input_names
        control = _control(self.tokenizer)
        for encoded in found.encodings:
            of = encoded.sequence_ids
            premise, hypothesis = (_span([i == text for i in of]) for text in (0, 1))
            types = list(encoded.type_ids) if typed else None
            yield _frame(list(encoded.ids), types, premise, hypothesis, control)

    def probabilities(self, inputs: Mapping[str, Any]) -> Any:
        logits = self.model(**inputs).logits.float()
        if logits.shape[-1] == 1:
            return logits[:, 0].sigmoid()
        return logits.softmax(-1)[:, self.index]


def _classifier(
    folder: Path, dtype: Any, device: Any, config: Mapping[str, Any], label: str | int | None
) -> _Classifier:
    from transformers import AutoModelForSequenceClassification

    _refuse_other_modules(folder)
    names = label_names(config)
    if names:
        entailment_index(names, label)  # before weights are loaded for nothing
    options = {"num_labels": len(names)} if names else {}
    model = load_model(AutoModelForSequenceClassification, folder, dtype, device, **options)
    names = names or [f"LABEL_{i}" for i in range(model.config.num_labels)]
    index = entailment_index(names, label)
    tokenizer = load_tokenizer(folder, model)
    return _Classifier(model, tokenizer, _pad(tokenizer, model), index)


def label_names(config: Mapping[str, Any]) -> list[str]:
    """Labels in the order of the logits, as a config.json has them; [] where it has none.

    Some configs say id2label, some label2id, some both; UsageError where they say it differently.
    """
    try:
        named = {int(i): str(name) for i, name in (config.get("id2label") or {}).items()}
        turned = {int(i): str(name) for name, i in (config.get("label2id") or {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise BackendError(f"the model's config has labels that cannot be read: {error}") from error
    choices = [found for found in (named, turned) if found and not _generic(found.values())]
    if len(choices) == 2 and choices[0] != choices[1]:
        raise UsageError(
            f"the model's config contradicts itself: id2label is {named}, label2id gives {turned}"
        )
    names = choices[0] if choices else named or turned
    if sorted(names) != list(range(len(names))):
        raise UsageError(f"the model's config does not number its labels from 0: {names}")
    return [names[i] for i in range(len(names))]


def entailment_index(names: Sequence[str], chosen: str | int | None = None) -> int:
    """Which of a model's labels is entailment: the chosen one, or the one of that name.

    UsageError where no label, or more than one, is named so. "not_entailment" is not.

    >>> entailment_index(["CONTRADICTION", "NEUTRAL", "ENTAILMENT"])
    2
    >>> entailment_index(["not_entailment", "entailment"])
    1
    >>> entailment_index(["LABEL_0", "LABEL_1"], chosen=1)
    1
    """
    shown = ", ".join(f"{i}: {name}" for i, name in enumerate(names))
    if isinstance(chosen, int):
        if not 0 <= chosen < len(names):
            raise UsageError(f"entailment_label={chosen} is none of the model's labels ({shown})")
        return chosen
    if chosen is not None:
        found = [i for i, name in enumerate(names) if name.casefold() == chosen.casefold()]
        what = f"entailment_label={chosen!r} is"
    else:
        found = [i for i, name in enumerate(names) if _says_entailment(name)]
        what = "the model's config does not say which label is entailment: it is"
    if len(found) != 1:
        raise UsageError(
            f"{what} {'more than one' if found else 'none'} of its labels ({shown}); name the "
            "index with entailment_label=…, and be sure that the model judges entailment"
        )
    return found[0]


def _says_entailment(name: str) -> bool:
    """entailment, ENTAIL, Entailed; not "not_entailment", "NonEntailment", "no entailment"."""
    return re.fullmatch(r"[\W\d_]*entail(s|ed|ing|ment|ments)?[\W\d_]*", name, re.I) is not None


def _generic(names: Iterable[str]) -> bool:
    return all(re.fullmatch(r"(?i)label_\d+", name) for name in names)


def _refuse_other_modules(folder: Path) -> None:
    """A CrossEncoder may have parts beside the classifier, which would not be loaded."""
    parts = sentence_modules(folder)
    other = [kind for kind, _ in parts if not kind.endswith(".Transformer")]
    if other:
        raise BackendError(f"{folder}: modules.json has parts beside a classifier: {other}")


# --- models that write their answer ------------------------------------------------------------


@dataclass(frozen=True)
class _Writer:
    """T5 on "premise: … hypothesis: …": yes against no, where its two answers first differ.

    Source: Honovich et al. 2022 (TRUE); the form of its released model, as ALCE asks it.
    """

    model: Any
    tokenizer: Any
    pad: int
    prefix: tuple[int, ...]  # what the decoder begins with
    yes: int
    no: int
    label: str

    def frames(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Frame | None]:
        if not pairs:
            return
        texts = [f"premise: {premise} hypothesis: {hypothesis}" for premise, hypothesis in pairs]
        found = self.tokenizer(texts, **_PLAIN)
        control = _control(self.tokenizer)
        for (premise, hypothesis), encoded in zip(pairs, found.encodings, strict=True):
            start = len("premise: ")
            behind = start + len(premise) + len(" hypothesis: ")
            first, second = (
                _span([a < to and b > of for a, b in encoded.offsets])
                for of, to in ((start, start + len(premise)), (behind, behind + len(hypothesis)))
            )
            yield _frame(list(encoded.ids), None, first, second, control)

    def probabilities(self, inputs: Mapping[str, Any]) -> Any:
        import torch

        n = len(inputs["input_ids"])
        prefix = torch.tensor([self.prefix] * n, device=self.model.device)
        logits = self.model(**inputs, decoder_input_ids=prefix, use_cache=False).logits
        return logits[:, -1, [self.yes, self.no]].float().softmax(-1)[:, 0]


def _writer(folder: Path, dtype: Any, device: Any, answers: tuple[str, str]) -> _Writer:
    from transformers import AutoModelForSeq2SeqLM

    model = load_model(AutoModelForSeq2SeqLM, folder, dtype, device)
    tokenizer = load_tokenizer(folder, model)
    start = model.config.decoder_start_token_id
    if start is None:
        raise BackendError(f"{folder}: config.json has no decoder_start_token_id")
    yes, no = (tokenizer.encode(answer, add_special_tokens=False) for answer in answers)
    shared = 0
    while shared < min(len(yes), len(no)) and yes[shared] == no[shared]:
        shared += 1
    if shared == min(len(yes), len(no)):
        raise UsageError(
            f"answers={answers!r} cannot be told apart: the tokenizer makes {yes} and {no} of them"
        )
    prefix = (start, *yes[:shared])
    label = f"answers={answers[0]}/{answers[1]}"
    return _Writer(model, tokenizer, _pad(tokenizer, model), prefix, yes[shared], no[shared], label)


def _writes_text(config: Mapping[str, Any]) -> bool:
    """By the architecture that the weights were saved from; BackendError for any other."""
    architecture = next(iter(config.get("architectures") or ()), "")
    if architecture.endswith("ForConditionalGeneration") and _is_t5(config):
        return True
    if architecture.endswith("ForSequenceClassification") or not architecture:
        return False
    raise BackendError(
        f"{architecture} judges no entailment: needed is a …ForSequenceClassification, or a T5 "
        "…ForConditionalGeneration that writes its answer"
    )


def _is_t5(config: Mapping[str, Any]) -> bool:
    return "t5" in str(config.get("model_type", ""))


# --- lengths -----------------------------------------------------------------------------------


def _length(reader: _Classifier | _Writer, asked: int | None) -> int:
    """Tokens that the model reads at once. UsageError for more than it has positions for."""
    table = _positions(reader.model)
    if asked is not None:
        if table is not None and asked > table:
            raise UsageError(f"max_length={asked} is more than the model reads: {table}")
        return asked
    said = reader.tokenizer.model_max_length
    lengths = [table, said if said < 1e9 else None]
    return min((n for n in lengths if n), default=512)


def _positions(model: Any) -> int | None:
    """Positions that a model has; RoBERTa keeps the first rows of its table for padding."""
    told = getattr(model.config, "max_position_embeddings", None)
    for name, module in model.named_modules():
        padding = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return int(module.num_embeddings) - int(padding) - 1
    return None if told is None else int(told)


def _pad(tokenizer: Any, model: Any) -> int:
    for found in (tokenizer.pad_token_id, model.config.pad_token_id):
        if found is not None:
            return int(found)
    return 0


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= 60 else flat[:57] + "...")
