"""What /docs and /openapi.json say of the routes: schemas from the types, and examples."""

from __future__ import annotations

from typing import Any

import msgspec

from rag_rewards.rollout import Rollout

_SCHEMA = "#/components/schemas/{name}"
_ROW = {
    "question": "Which river runs through Paris?",
    "documents": [{"id": 1, "text": "Paris lies on the Seine."}],
    "supporting": [1],
    "answers": ["Seine", "the Seine"],
    "response": "<relevance>[1]</relevance><analysis>[1] says so.</analysis><answer>Seine</answer>",
}
_SCORED = {
    "reward": 13.0,
    "components": {"format": 1.0, "accuracy": 1.0, "relevance": 1.0, "bonus": 10.0},
    "correct": 1.0,
    "details": {"answer": "Seine"},
    "error": None,
}
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
    shown = {} if example is None else {"example": example}
    return {"application/json": {"schema": schema, **shown}}


def _refusals(**said: str) -> dict[str, Any]:
    return {
        code.lstrip("_"): {"description": text, "content": _json(_ERROR)}
        for code, text in said.items()
    }


_COMMON = _refusals(
    _400="not JSON",
    _401="no token, or a wrong one",
    _413="a body or a number of rows beyond the limit",
    _422="a row that does not decode, with the field's path",
    _503="a model is loading, or a backend is down",
    _504="no score within the deadline",
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
                    "recipe": {"type": "string", "description": "must be the one that is served"},
                },
            },
            {"rollouts": [_ROW]},
        ),
    },
    "responses": {
        "200": {
            "description": "A score, or an error, for each rollout in its place.",
            "content": _json(
                {
                    "type": "object",
                    "properties": {
                        "scores": {"type": "array", "items": {"type": "object"}},
                        "signature": {"type": "string"},
                    },
                },
                {"scores": [_SCORED], "signature": "rag-rewards 0.2.0 arena bonus.value=5"},
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
            {
                "query": ["Which river runs through Paris? <answer>Seine</answer></s>"],
                "prompts": ["Which river runs through Paris? "],
                "labels": ['{"answers": ["Seine"], "supporting": []}'],
            },
        ),
    },
    "responses": {
        "200": {
            "description": "Numbers for one query, lists for several.",
            "content": _json(
                {
                    "type": "object",
                    "properties": {
                        "rewards": _NUMBER,
                        "scores": _NUMBER,
                        "extra_logs": {"type": "object"},
                    },
                },
                {"rewards": 1.0, "scores": 1.0, "extra_logs": {"accuracy": 1.0, "acc": 1.0}},
            ),
        },
        **_COMMON,
        **_refusals(_409="a recipe that compares the rollouts of a group"),
    },
}
HEALTH: dict[str, Any] = {
    "responses": {
        "200": {"description": "ready", "content": _json({"type": "object"}, {"ready": True})},
        "503": {
            "description": "not ready, with the reason",
            "content": _json({"type": "object"}, {"ready": False, "reason": "loading"}),
        },
    }
}


def described(schema: dict[str, Any]) -> None:
    """Add the schemas of a row, made from its type."""
    _, components = msgspec.json.schema_components([Rollout], ref_template=_SCHEMA)
    schema.setdefault("components", {}).setdefault("schemas", {}).update(components)
