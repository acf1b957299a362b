"""Servers with the APIs of text-embeddings-inference and of vLLM, around a model of transformers.

Requests are decoded strictly: a field that the real server does not know is an error. The contracts
are those of text-embeddings-inference 1.9.3 (router/src/http/types.rs and server.rs, Info in
router/src/lib.rs, the lengths in core/src/tokenization.rs) and of vLLM 0.32
(vllm/entrypoints/pooling/{base,classify,scoring,embed}/protocol.py and serving.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from engine_servers import EngineServer, Refusal

# --- text-embeddings-inference -------------------------------------------------------------------


class PredictRequest(msgspec.Struct, forbid_unknown_fields=True):
    inputs: list[list[str]]
    truncate: bool | None = None
    truncation_direction: str = "right"
    raw_scores: bool = False


class EmbedRequest(msgspec.Struct, forbid_unknown_fields=True):
    inputs: list[str]
    truncate: bool | None = None
    truncation_direction: str = "right"
    prompt_name: str | None = None
    normalize: bool = True
    dimensions: int | None = None


class TextServer(EngineServer):
    """A server of one model of transformers in a folder: a classifier or a sentence encoder."""

    max_length = 40

    def __init__(self, folder: Path) -> None:
        import transformers

        self.folder = folder
        self.is_encoder = (folder / "modules.json").is_file()
        if self.is_encoder:
            from sentence_transformers import SentenceTransformer

            self.encoder = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
            self.max_length = int(self.encoder.max_seq_length or 0)
            self.tokenizer = self.encoder.tokenizer
        else:
            kind = transformers.AutoModelForSequenceClassification
            self.classifier = kind.from_pretrained(folder).eval()
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            self.labels = dict(self.classifier.config.id2label)
        super().__init__()

    def logits(self, **inputs: Any) -> list[float]:
        import torch

        with torch.no_grad():
            return self.classifier(**inputs).logits[0].tolist()

    def embeddings(self, texts: list[str]) -> list[list[float]]:
        return [self.encoder.encode(text, normalize_embeddings=True).tolist() for text in texts]

    def length(self, *texts: str) -> int:
        return len(self.tokenizer(*texts, truncation=False, verbose=False)["input_ids"])


class TeiDouble(TextServer):
    """text-embeddings-inference 1.9.3."""

    max_client_batch_size = 32
    status_of_long = 422
    """Status for texts with too many tokens. A proxy refuses large bodies with 413."""
    names: dict[int, str] | None = None
    """Labels in /info and in predictions, in place of those of the model."""

    def get(self, path: str) -> Any:
        if path != "/info":
            raise Refusal(404, "Not Found")
        labels = {str(i): name for i, name in self.shown_labels().items()}
        config = {"id2label": labels, "label2id": {name: int(i) for i, name in labels.items()}}
        kind = {"embedding": {"pooling": "mean"}} if self.is_encoder else {"classifier": config}
        return {
            "model_id": "tiny/nli",
            "model_sha": "fca14538aa9956a46526bd1d0d11d69e19b5a101",
            "model_dtype": "float32",
            "served_model_name": "tiny/nli",
            "model_type": kind,
            "max_concurrent_requests": 512,
            "max_input_length": self.max_length,
            "max_batch_tokens": 16384,
            "max_batch_requests": None,
            "max_client_batch_size": self.max_client_batch_size,
            "auto_truncate": True,
            "tokenization_workers": 4,
            "version": "1.9.3",
            "sha": None,
            "docker_label": None,
        }

    def shown_labels(self) -> dict[int, str]:
        return {} if self.is_encoder else self.names or self.labels

    def error(self, refusal: Refusal) -> Any:
        kinds = {413: "Validation", 422: "Validation", 424: "Backend", 429: "Overloaded"}
        return {"error": str(refusal), "error_type": kinds.get(refusal.status, "Empty")}

    def post(self, path: str, body: Any) -> Any:
        if path == "/predict":
            return self.predict(msgspec.convert(body, PredictRequest))
        if path == "/embed":
            return self.embed(msgspec.convert(body, EmbedRequest))
        raise Refusal(404, "Not Found")

    def check(self, inputs: list[Any]) -> None:
        size = len(inputs)
        if not size:
            raise Refusal(400, "Batch is empty")
        if size > self.max_client_batch_size:
            most = self.max_client_batch_size
            raise Refusal(422, f"batch size {size} > maximum allowed batch size {most}")

    def refuse_long(self, *texts: str) -> None:
        length = self.length(*texts)
        if length > self.max_length:
            message = f"`inputs` must have less than {self.max_length} tokens. Given: {length}"
            raise Refusal(self.status_of_long, message)

    def predict(self, request: PredictRequest) -> Any:
        if self.is_encoder:
            raise Refusal(424, "Model is not a classifier")
        self.check(request.inputs)
        results = []
        for texts in request.inputs:
            self.refuse_long(*texts)
            scores = self.logits(**self.tokenizer(*texts, return_tensors="pt"))
            assert request.raw_scores, "softmax of the server is not part of this double"
            labels = self.shown_labels()
            found = [{"score": score, "label": labels[i]} for i, score in enumerate(scores)]
            results.append(sorted(found, key=lambda one: -one["score"]))
        return results

    def embed(self, request: EmbedRequest) -> Any:
        if not self.is_encoder:
            raise Refusal(424, "Model is not an embedding model")
        self.check(request.inputs)
        for text in request.inputs:
            self.refuse_long(text)
        return self.embeddings(request.inputs)


# --- vLLM ----------------------------------------------------------------------------------------


class ClassifyRequest(msgspec.Struct, forbid_unknown_fields=True):
    input: list[list[int]]
    model: str | None = None
    use_activation: bool | None = None


class ScoreRequest(msgspec.Struct, forbid_unknown_fields=True):
    text_1: list[str]
    text_2: list[str]
    model: str | None = None


class EmbeddingRequest(msgspec.Struct, forbid_unknown_fields=True):
    input: list[str]
    model: str | None = None
    encoding_format: str = "float"


class VllmTextDouble(TextServer):
    """The pooling APIs of vLLM 0.32. /score exists for models with one output only."""

    model = "tiny-nli"
    shown_root: str | None = None
    turned_labels = False

    def get(self, path: str) -> Any:
        if path != "/v1/models":
            raise Refusal(404, "Not Found")
        card = {
            "id": self.model,
            "object": "model",
            "created": 1795261043,
            "owned_by": "vllm",
            "root": self.shown_root,
            "parent": None,
            "max_model_len": self.max_length,
            "permission": [],
        }
        return {"object": "list", "data": [card]}

    def error(self, refusal: Refusal) -> Any:
        fault = {"message": str(refusal), "type": "BadRequestError", "code": refusal.status}
        return {"error": {**fault, "param": None}}

    def post(self, path: str, body: Any) -> Any:
        if body.get("model") not in (None, self.model):
            raise Refusal(404, f"The model `{body['model']}` does not exist.")
        if path == "/classify" and not self.is_encoder:
            return self.answer(self.classify(msgspec.convert(body, ClassifyRequest)))
        if path == "/score" and not self.is_encoder and len(self.labels) == 1:
            return self.answer(self.score(msgspec.convert(body, ScoreRequest)))
        if path == "/v1/embeddings" and self.is_encoder:
            return self.answer(self.embed(msgspec.convert(body, EmbeddingRequest)))
        raise Refusal(404, "Not Found")

    def answer(self, rows: list[Any]) -> Any:
        usage = {"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": 0}
        data = [{"index": i, **row} for i, row in enumerate(rows)]
        head = {"id": "classify-1", "object": "list", "created": 1795261280, "model": self.model}
        return {**head, "data": data, "usage": usage}

    def refuse_long(self, length: int) -> None:
        if length > self.max_length:
            raise Refusal(400, f"This model's maximum context length is {self.max_length} tokens.")

    def classify(self, request: ClassifyRequest) -> list[Any]:
        import torch

        rows = []
        for ids in request.input:
            self.refuse_long(len(ids))
            shares = torch.tensor(self.logits(input_ids=torch.tensor([ids]))).softmax(-1).tolist()
            best = shares.index(max(shares))
            label = self.labels[len(shares) - 1 - best if self.turned_labels else best]
            rows.append({"label": label, "probs": shares, "num_classes": len(shares)})
        return rows

    def score(self, request: ScoreRequest) -> list[Any]:
        import torch

        rows = []
        for texts in zip(request.text_1, request.text_2, strict=True):
            self.refuse_long(self.length(*texts))
            logit = self.logits(**self.tokenizer(*texts, return_tensors="pt"))
            rows.append({"object": "score", "score": torch.tensor(logit).sigmoid().item()})
        return rows

    def embed(self, request: EmbeddingRequest) -> list[Any]:
        for text in request.input:
            self.refuse_long(self.length(text))
        vectors = self.embeddings(request.input)
        return [{"object": "embedding", "embedding": vector} for vector in vectors]
