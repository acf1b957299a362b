"""Semantic similarity of two texts: the cosine of their sentence embeddings.

Any sentence-transformers model in a folder can be used, with its own pooling. A text that is longer
than the maximum length of the model is embedded in pieces, so that its end counts as well:
otherwise an answer that begins like a refusal would be one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rag_rewards.errors import BackendError, UsageError, needs_extra
from rag_rewards.models.local_models import (
    LocalModel,
    explained,
    identity,
    model_files,
    model_folder,
    require_complete,
    sentence_modules,
    torch_device,
    torch_dtype,
)


class SentenceSimilarity(LocalModel):
    """Cosine similarity, −1 to 1, of (text, reference) pairs, by a sentence-transformers model.

    model       a folder, or the name of a model on the Hugging Face hub
    device      "cpu", "cuda", "cuda:1", …; default: a GPU if there is one
    dtype       "float32", "bfloat16", "float16", or "auto" for the saved precision
    revision    revision of a model from the hub
    batch_size  number of texts to embed at once; halved when memory is exhausted

    Each distinct text is embedded once per call. A text longer than the maximum length of the
    model is divided at white space. Its embedding is the mean of the embeddings of its pieces,
    weighted by their numbers of tokens. An empty text or reference has the similarity 0.0, without
    a run of the model.

    Raises MissingExtraError if the package is not installed, and UsageError for invalid arguments,
    such as a folder that does not exist or is incomplete.
    """

    kind = "similarity"

    def __init__(
        self,
        model: str | Path,
        *,
        device: str | None = None,
        dtype: str = "float32",
        revision: str | None = None,
        batch_size: int = 64,
    ) -> None:
        with needs_extra("semantic", "sentence-transformers"):
            from sentence_transformers import SentenceTransformer
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, found {batch_size}")
        torch_dev, precision = torch_device(device), torch_dtype(dtype)
        folder = model_folder(model, revision)
        if not sentence_modules(folder):
            # sentence-transformers would use a default pooling that the model was not trained for.
            raise UsageError(
                f"{folder} has no modules.json: it is not a sentence-transformers model"
            )
        require_complete(_main_part(folder))
        with explained(folder):
            encoder: Any = SentenceTransformer(
                str(folder),
                device=str(torch_dev),
                local_files_only=True,
                model_kwargs={"dtype": precision},
            ).eval()
        self.batch_size = batch_size
        loaded = str(encoder.dtype).removeprefix("torch.")
        super().__init__(encoder, f"similarity {identity(folder, _files(folder))} {loaded}")

    async def similarity(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return the similarities of (text, reference) pairs, in order.

        The model runs in a thread; simultaneous calls run one after the other. Raises BackendError
        for an embedding that is not finite, and if the memory is not sufficient for a single text.
        """
        return await asyncio.to_thread(self.similarity_sync, pairs)

    def similarity_sync(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return the same as `similarity`, without an event loop."""
        with self._in_use():
            complete = [pair for pair in pairs if _is_complete(pair)]
            texts = list(dict.fromkeys(text for pair in complete for text in pair))
            embeddings = dict(zip(texts, self._embeddings(texts), strict=True))
        return [
            min(max(float(embeddings[text] @ embeddings[reference]), -1.0), 1.0)
            if _is_complete((text, reference))
            else 0.0
            for text, reference in pairs
        ]

    def _embeddings(self, texts: Sequence[str]) -> list[Any]:
        """Return one vector of length 1 for each text."""
        import numpy

        if not texts:
            return []
        pieces = self._pieces(texts)
        flat = [piece for parts in pieces for piece, _ in parts]
        vectors = iter(self._encode(flat))
        embeddings = []
        for parts in pieces:
            mean = sum(next(vectors) * weight for _, weight in parts)
            norm = numpy.linalg.norm(mean)
            if not numpy.isfinite(norm) or norm == 0:
                raise BackendError(
                    f"the similarity model computes no embedding for {parts[0][0][:60]!r} "
                    f"({self._fingerprint}); try dtype='bfloat16' or 'float32'"
                )
            embeddings.append(mean / norm)
        return embeddings

    def _encode(self, texts: Sequence[str]) -> Any:
        """Return embeddings in float32. The batch size is halved when memory is exhausted."""
        while True:
            vectors = self._run_within_memory(
                lambda: (
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
                ),
                "one text" if self.batch_size == 1 else None,
            )
            if vectors is not None:
                return vectors
            self.batch_size //= 2
            self._continue_with(f"batch_size={self.batch_size}")

    def _pieces(self, texts: Sequence[str]) -> list[list[tuple[str, int]]]:
        """Return each text as pieces that fit into the model, with their numbers of tokens."""
        room = self._room()
        if room is None:
            return [[(text, 1)] for text in texts]
        encoding = self._model.tokenizer(
            list(texts),
            add_special_tokens=False,
            return_offsets_mapping=True,
            truncation=False,
            verbose=False,
        )
        return [
            cut_text(text, offsets, room)
            for text, offsets in zip(texts, encoding["offset_mapping"], strict=True)
        ]

    def _room(self) -> int | None:
        """Return the maximum number of tokens of a text, None if unlimited or unknown."""
        limit, tokenizer = self._model.max_seq_length, self._model.tokenizer
        if not limit or limit > 1e9 or not getattr(tokenizer, "is_fast", False):
            return None
        prompt = self._model.prompts.get(self._model.default_prompt_name or "", "")
        before = len(tokenizer.encode(prompt, add_special_tokens=False)) if prompt else 0
        return max(int(limit) - int(tokenizer.num_special_tokens_to_add()) - before, 1)


def cut_text(text: str, offsets: Sequence[tuple[int, int]], room: int) -> list[tuple[str, int]]:
    """Return a text as pieces of at most `room` tokens, with the number of tokens of each.

    `offsets` are the positions of each token in the text. A piece ends at white space if it
    contains any, otherwise between two tokens. Only white space is lost.

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


def _is_complete(pair: tuple[str, str]) -> bool:
    return bool(pair[0].strip() and pair[1].strip())


def _main_part(folder: Path) -> Path:
    """Return the folder of the transformer, which can be a subfolder."""
    for kind, path in sentence_modules(folder):
        if kind.endswith(".Transformer"):
            return path
    raise UsageError(f"{folder}: modules.json has no Transformer")


def _files(folder: Path) -> list[Path]:
    """Return the files that affect the values of the model, in all of its modules."""
    parts = {folder, *(path for _, path in sentence_modules(folder))}
    files = {file for part in parts for file in model_files(part)}
    return [folder / "modules.json", *files]
