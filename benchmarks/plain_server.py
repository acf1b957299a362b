"""A simple reward server as the baseline: FastAPI, pydantic, and one call per request.

It uses the rewards of this package, so that only the servers differ.

    RECIPE=arena [NLI=folder] uvicorn plain_server:app --port 8001
"""

import os

from fastapi import FastAPI
from pydantic import BaseModel

from rag_rewards import decode_row
from rag_rewards.scorer import Scorer


class Document(BaseModel):
    text: str
    id: int | str | None = None
    title: str | None = None


class Row(BaseModel):
    response: str
    id: str | None = None
    group: str | None = None
    question: str | None = None
    documents: list[Document] = []
    answers: list[str] = []
    supporting: list[int] = []
    answerable: bool | None = None


class Body(BaseModel):
    rollouts: list[Row]


app = FastAPI()
options = {"recipe": os.environ["RECIPE"], "nli": os.environ.get("NLI")}
scorer = Scorer.load({name: value for name, value in options.items() if value})


@app.post("/score")
def score(body: Body) -> dict[str, list[dict[str, object]]]:
    rollouts = [decode_row(row.model_dump(exclude_none=True)) for row in body.rollouts]
    scores = scorer.score_each(rollouts)
    return {"scores": [{"reward": s.value, "components": dict(s.components)} for s in scores]}


@app.get("/health")
def health() -> dict[str, bool]:
    return {"ready": True}
