"""Short functions for the tags of Search-R1."""

from __future__ import annotations

THOUGHT = "<think>I look.</think>"


def search(query: str) -> str:
    return f"<search>{query}</search>"


def information(text: str) -> str:
    return f"<information>{text}</information>"


def answer(text: str) -> str:
    return f"<answer>{text}</answer>"


PARIS = {"title": "France", "text": "Paris is the capital of France."}
