"""The OpenAPI documentation of the routes: schemas, and examples that this version computes."""

from __future__ import annotations

from typing import Any

import msgspec

from rag_rewards import __version__
from rag_rewards.loading import load_recipe
from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_row
from rag_rewards.scorer import Scorer
from rag_rewards.server import openrlhf
from rag_rewards.server.app import score_data

_SCHEMA = "#/components/schemas/{name}"
_ROW = {
    "question": "Which river runs through Paris?",
    "documents": [{"id": 1, "text": "Paris lies on the Seine."}],
    "supporting": [1],
    "answers": ["Seine", "the Seine"],
    "response": "<relevance>[1]</relevance><analysis>[1] says so.</analysis><answer>Seine</answer>",
}
_PROMPT = "Which river runs through Paris? "
_SAMPLES = openrlhf.SampleRequest(
    query=[f"{_PROMPT}{_ROW['response']}</s>"],
    prompts=[_PROMPT],
    labels=['{"answers": ["Seine"], "supporting": [1], "documents": ["Paris lies on the Seine."]}'],
)
_RECIPE = load_recipe("arena")


def _scored_rows() -> dict[str, Any]:
    """Return the response to the example of POST /score, as this version computes it."""
    rollout = decode_row(_ROW)
    (score,) = Scorer(_RECIPE).score_each([rollout])
    return {"scores": [score_data(rollout, score)], "signature": _RECIPE.signature}


def _scored_samples() -> dict[str, Any]:
    """Return the response to the example of POST /openrlhf, as this version computes it."""
    rollouts = openrlhf.rollouts_of(_SAMPLES)
    results = Scorer(_RECIPE).score_each(rollouts)
    response = openrlhf.response_of(results, _RECIPE.component_names, None)
    return msgspec.structs.asdict(response)


_NUMBER = {"oneOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("type", "message", "path")},
        }
    },
}


def _json(schema: dict[str, Any], example: Any = None) -> dict[str, Any]:
    extra = {} if example is None else {"example": example}
    return {"application/json": {"schema": schema, **extra}}


def _errors(**descriptions: str) -> dict[str, Any]:
    return {
        code.lstrip("_"): {"description": text, "content": _json(_ERROR)}
        for code, text in descriptions.items()
    }


_COMMON = _errors(
    _400="The body is not JSON.",
    _401="The token is missing or wrong.",
    _413="The body or the number of rows exceeds the limit.",
    _422="A row is invalid; `path` is the field.",
    _503="A model is loading, or a backend does not respond.",
    _504="The scores were not available within the deadline.",
)
SCORE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": _json(
            {
                "type": "object",
                "required": ["rollouts"],
                "properties": {
                    "rollouts": {
                        "type": "array",
                        "items": {"$ref": _SCHEMA.format(name="Rollout")},
                    },
                    "recipe": {"type": "string", "description": "The name of the served recipe."},
                },
            },
            {"rollouts": [_ROW]},
        ),
    },
    "responses": {
        "200": {
            "description": "A score or an error for each rollout, in the order of the request.",
            "content": _json(
                {
                    "type": "object",
                    "properties": {
                        "scores": {"type": "array", "items": {"type": "object"}},
                        "signature": {"type": "string"},
                    },
                },
                _scored_rows(),
            ),
        },
        **_COMMON,
    },
}
OPENRLHF: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": _json(
            {
                "type": "object",
                "required": ["query", "prompts", "labels"],
                "properties": {
                    name: {"type": "array", "items": {"type": "string"}}
                    for name in ("query", "prompts", "labels")
                },
            },
            msgspec.structs.asdict(_SAMPLES),
        ),
    },
    "responses": {
        "200": {
            "description": "Numbers for one query, lists for several queries.",
            "content": _json(
                {
                    "type": "object",
                    "properties": {
                        "rewards": _NUMBER,
                        "scores": _NUMBER,
                        "extra_logs": {"type": "object"},
                    },
                },
                _scored_samples(),
            ),
        },
        **_COMMON,
        **_errors(_409="The recipe compares the rollouts of a group."),
    },
}
_PAIRS = {
    "type": "array",
    "items": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
}
_NUMBERS = {"type": "array", "items": {"type": "number"}}
_OF_MODELS = _errors(_404="The server has no such model.", _424="The model returned no result.")
ENTAILMENT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": _json(
            {
                "type": "object",
                "required": ["pairs"],
                "properties": {"pairs": _PAIRS, "contradiction": {"type": "boolean"}},
            },
            {"pairs": [["Paris lies on the Seine.", "Paris has a river."]]},
        ),
    },
    "responses": {
        "200": {
            "description": "A probability for each pair of a premise and a hypothesis, in order.",
            "content": _json(
                {
                    "type": "object",
                    "properties": {"entailment": _NUMBERS, "contradiction": _NUMBERS},
                },
                {"entailment": [0.97]},
            ),
        },
        **_COMMON,
        **_OF_MODELS,
    },
}
SIMILARITY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": _json(
            {"type": "object", "required": ["pairs"], "properties": {"pairs": _PAIRS}},
            {"pairs": [["I cannot tell.", "I do not know."]]},
        ),
    },
    "responses": {
        "200": {
            "description": "A similarity for each pair of a text and a reference, in order.",
            "content": _json(
                {"type": "object", "properties": {"similarity": _NUMBERS}}, {"similarity": [0.81]}
            ),
        },
        **_COMMON,
        **_OF_MODELS,
    },
}
MODELS: dict[str, Any] = {
    "responses": {
        "200": {
            "description": "The fingerprint of each model, null for a model that is not loaded.",
            "content": _json(
                {"type": "object"},
                {
                    "rag_rewards": __version__,
                    "entailment": {"fingerprint": "nli deberta-v2 3c1f… float32 label=0 …"},
                    "similarity": None,
                },
            ),
        },
        **_errors(_401="The token is missing or wrong.", _503="A model is loading."),
    }
}
HEALTH: dict[str, Any] = {
    "responses": {
        "200": {
            "description": "The server can score.",
            "content": _json({"type": "object"}, {"ready": True}),
        },
        "503": {
            "description": "The server cannot score; `reason` says why.",
            "content": _json({"type": "object"}, {"ready": False, "reason": "loading"}),
        },
    }
}


def add_row_schemas(schema: dict[str, Any]) -> None:
    """Add the schemas of a row, which are generated from its type."""
    _, components = msgspec.json.schema_components([Rollout], ref_template=_SCHEMA)
    schema.setdefault("components", {}).setdefault("schemas", {}).update(components)
