"""How near two texts are in meaning: the cosine of their sentence embeddings.

Any model of sentence-transformers in a folder, with its own pooling. A text that is longer than
the model reads is embedded in pieces, so that its end counts as well: an answer is not a refusal
because it begins like one.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rag_rewards.backends.local_models import (
    explained,
    free_memory,
    identity,
    is_out_of_memory,
    model_files,
    model_folder,
    needs_extra,
    require_complete,
    sentence_modules,
    torch_device,
    torch_dtype,
)
from rag_rewards.errors import BackendError, UsageError


class SentenceSimilarity:
    """Cosine similarity, −1 to 1, of (text, reference) pairs, by a sentence-transformers model.

    model       a folder, or a name on the Hugging Face hub (of a `revision`)
    device      "cpu", "cuda", "cuda:1", …; None takes a GPU where there is one
    dtype       "float32", "bfloat16", "float16", or "auto": as saved
    batch_size  texts embedded at once; halved when memory runs out

    Each distinct text is embedded once per call. A text longer than the model reads is cut at
    white space, and its embedding is the mean of its pieces', weighted by their tokens. An empty
    text or reference is like nothing: 0.0, without asking.

    Raises MissingExtraError without the package, UsageError for arguments that cannot be used
    (among them a folder that is not there), BackendError for a folder that lacks something.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str | None = None,
        dtype: str = "float32",
        revision: str | None = None,
        batch_size: int = 64,
    ) -> None:
        with needs_extra("semantic"):
            from sentence_transformers import SentenceTransformer
        if batch_size < 1:
            raise UsageError("batch_size is 1 or more")
        where, precision = torch_device(device), torch_dtype(dtype)
        folder = model_folder(model, revision)
        if not sentence_modules(folder):
            # sentence-transformers would make one up: a mean of whatever the model gives.
            raise BackendError(
                f"{folder} has no modules.json: it is no sentence-transformers model"
            )
        require_complete(_main_part(folder))
        with explained(folder):
            self._model: Any = SentenceTransformer(
                str(folder),
                device=str(where),
                local_files_only=True,
                model_kwargs={"dtype": precision},
            ).eval()
        self.batch_size = batch_size
        self._lock = threading.Lock()
        kept = str(self._model.dtype).removeprefix("torch.")
        self._fingerprint = f"similarity {identity(folder, _files(folder))} {kept}"

    @property
    def fingerprint(self) -> str:
        """Which weights, in which precision."""
        return self._fingerprint

    async def similarity(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Similarities of (text, reference) pairs, in their order. In a thread, one call at a
        time.

        Raises BackendError: an embedding that is not a number, memory that does not suffice for
        a single text.
        """
        return await asyncio.to_thread(self.similarity_sync, pairs)

    def similarity_sync(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The same for callers without an event loop."""
        with self._lock:
            if self._model is None:
                raise BackendError("the similarity model is closed")
            asked = [pair for pair in pairs if _is_asked(pair)]
            texts = list(dict.fromkeys(text for pair in asked for text in pair))
            of = dict(zip(texts, self._embeddings(texts), strict=True))
        return [
            min(max(float(of[text] @ of[reference]), -1.0), 1.0)
            if _is_asked((text, reference))
            else 0.0
            for text, reference in pairs
        ]

    async def close(self) -> None:
        """Let go of the model. Asking again is an error."""
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        with self._lock:
            self._model = None
            free_memory()

    def _embeddings(self, texts: Sequence[str]) -> list[Any]:
        """One vector of length 1 for each text."""
        import numpy

        if not texts:
            return []
        pieces = self._pieces(texts)
        flat = [piece for cut in pieces for piece, _ in cut]
        vectors = iter(self._encode(flat))
        found = []
        for cut in pieces:
            mean = sum(next(vectors) * weight for _, weight in cut)
            norm = numpy.linalg.norm(mean)
            if not numpy.isfinite(norm) or norm == 0:
                raise BackendError(
                    f"the similarity model gives no direction for {cut[0][0][:60]!r} "
                    f"({self._fingerprint}); try dtype='bfloat16' or 'float32'"
                )
            found.append(mean / norm)
        return found

    def _encode(self, texts: Sequence[str]) -> Any:
        """Embeddings in float32, as many at a time as memory allows."""
        while True:
            try:
                return (
                    self._model.encode(
                        list(texts),
                        batch_size=self.batch_size,
                        show_progress_bar=False,
                        normalize_embeddings=True,
                        convert_to_tensor=True,
                    )
                    .float()
                    .cpu()
                    .numpy()
                )
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise BackendError(f"the similarity model failed: {error}") from error
                if self.batch_size == 1:
                    raise BackendError("out of memory with one text") from error
            self.batch_size //= 2
            free_memory()
            warnings.warn(
                f"out of memory: going on with batch_size={self.batch_size}", stacklevel=2
            )

    def _pieces(self, texts: Sequence[str]) -> list[list[tuple[str, int]]]:
        """Every text as pieces that the model reads whole, with their numbers of tokens."""
        room = self._room()
        if room is None:
            return [[(text, 1)] for text in texts]
        found = self._model.tokenizer(
            list(texts),
            add_special_tokens=False,
            return_offsets_mapping=True,
            truncation=False,
            verbose=False,
        )
        return [
            cut_text(text, offsets, room)
            for text, offsets in zip(texts, found["offset_mapping"], strict=True)
        ]

    def _room(self) -> int | None:
        """Tokens of a text that the model reads; None where it reads all, or does not say."""
        limit, tokenizer = self._model.max_seq_length, self._model.tokenizer
        if not limit or limit > 1e9 or not getattr(tokenizer, "is_fast", False):
            return None
        prompt = self._model.prompts.get(self._model.default_prompt_name or "", "")
        before = len(tokenizer.encode(prompt, add_special_tokens=False)) if prompt else 0
        return max(int(limit) - int(tokenizer.num_special_tokens_to_add()) - before, 1)


def cut_text(text: str, offsets: Sequence[tuple[int, int]], room: int) -> list[tuple[str, int]]:
    """A text as pieces of at most `room` tokens, with the number of tokens of each.

    `offsets` is where each token stands. Cut is before white space where there is any in the
    piece, else between tokens. Nothing but white space is lost.

    >>> cut_text("one two three", [(0, 3), (4, 7), (8, 11), (11, 13)], 3)
    [('one two', 2), ('three', 2)]
    """
    pieces, start = [], 0
    while len(offsets) - start > room:
        end = start + room
        while end > start + 1 and offsets[end][0] == offsets[end - 1][1]:
            end -= 1  # inside a word
        if end == start + 1:
            end = start + room
        pieces.append((text[offsets[start][0] : offsets[end][0]].strip(), end - start))
        start = end
    rest = text[offsets[start][0] :].strip() if offsets else text
    return [*pieces, (rest, max(len(offsets) - start, 1))]


def _is_asked(pair: tuple[str, str]) -> bool:
    return bool(pair[0].strip() and pair[1].strip())


def _main_part(folder: Path) -> Path:
    """Where the transformer is: at the top, or in a folder of its own."""
    for kind, path in sentence_modules(folder):
        if kind.endswith(".Transformer"):
            return path
    raise BackendError(f"{folder}: modules.json has no Transformer")


def _files(folder: Path) -> list[Path]:
    """What the model's values depend on, in all of its parts."""
    parts = {folder, *(path for _, path in sentence_modules(folder))}
    files = {file for part in parts for file in model_files(part)}
    return [folder / "modules.json", *files]
