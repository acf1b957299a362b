"""Rollouts of a policy in the tiny search world.

All rollouts of a batch advance by one token at a time. The token of a rollout is sampled from the
policy, or written by the environment, so that no rollout needs padding and the model computes each
position once.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tiny_search.episode import MAX_TURNS, Document, Episode, document_fields

from rag_rewards.models.transformers.forward import cache_argument
from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_row
from rag_rewards.tiny_world.model import END, PAD

MARKER = "?"
QUERY, END_OF_QUERY = "<search>", "</search>"
RESULTS, END_OF_RESULTS = "<information>", "</information>"
THINK, END_OF_THINK = "<think>", "</think>"
ANSWER, END_OF_ANSWER = "<answer>", "</answer>"
TURN_TOKENS = 10
"""Tokens of a turn at most. The longest turn of a good policy has 8: a thought and an answer."""


def prompt_of(episode: Episode) -> str:
    """Return the words that precede a rollout."""
    return f"{MARKER} {episode.person}"


def block_of(documents: Sequence[Document]) -> str:
    """Return the words with which the environment replies to a search."""
    facts = "".join(f"{person} {value} . " for person, value in documents)
    return f"{RESULTS} {facts}{END_OF_RESULTS}"


@dataclass
class Trajectory:
    """One rollout as tokens and as turns.

    words     words of the policy and of the environment, after the prompt
    own       whether a word is the policy's
    logprobs  log-probabilities of the policy's own words, in nats; 0 for the environment's
    turns     the field `turns` of a row
    ending    `stop`, `length` or `max_turns`; None while the rollout continues
    """

    episode: Episode
    rng: random.Random
    words: list[str] = field(default_factory=list)
    own: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    ending: str | None = None
    _start: int = 0
    _forced: deque[str] = field(default_factory=deque)

    @property
    def is_waiting(self) -> bool:
        """Whether the next word is the environment's."""
        return bool(self._forced)

    def advance(self, word: str, logprob: float) -> str:
        """Append the environment's next word, or else this word of the policy; return it."""
        if self.ending:
            return PAD
        if self._forced:
            word = self._forced.popleft()
            self._append(word, own=False)
            if not self._forced:
                self._start = len(self.words)
            return word
        self._append(word, own=True, logprob=logprob)
        if word == END_OF_QUERY:
            self._search()
        elif word == END:
            self._finish("stop")
        elif len(self.words) - self._start == TURN_TOKENS:
            self._finish("length")
        return word

    def _append(self, word: str, *, own: bool, logprob: float = 0.0) -> None:
        self.words.append(word)
        self.own.append(own)
        self.logprobs.append(logprob)

    def _search(self) -> None:
        if len(self.turns) + 1 == MAX_TURNS:
            self._finish("max_turns")
            return
        turn = self.words[self._start : -1]
        documents = None
        if QUERY in turn:
            query = " ".join(turn[turn.index(QUERY) + 1 :])
            documents = self.episode.retrieve(query, self.rng)
        block = block_of(documents or ())
        self._close(documents, block)
        self._forced.extend(block.split())

    def _finish(self, ending: str) -> None:
        self._close(None)
        self.ending = ending

    def _close(self, documents: list[Document] | None, block: str | None = None) -> None:
        own = [word for word in self.words[self._start :] if word != END]
        results = None if documents is None else [document_fields(each) for each in documents]
        span = [self._start, len(self.words)]
        turn = {"text": " ".join(own), "results": results, "observation": block}
        self.turns.append({**turn, "token_span": span})

    def row(self) -> dict[str, Any]:
        """Return the rollout as a row."""
        return {**self.episode.row(), "turns": self.turns, "finish_reason": self.ending}

    def rollout(self) -> Rollout:
        """Return the rollout as the rewards read it."""
        return decode_row(self.row())


def trajectories(
    model: Any,
    tokenizer: Any,
    episodes: Sequence[Episode],
    *,
    temperature: float = 1.0,
    seed: int | str = 0,
) -> list[Trajectory]:
    """Return one rollout of the policy for each episode. Equal seeds give equal rollouts."""
    import torch
    from transformers import DynamicCache

    running = [Trajectory(each, random.Random(f"{seed} {i}")) for i, each in enumerate(episodes)]
    generator = torch.Generator().manual_seed(random.Random(str(seed)).getrandbits(62))
    ids = tokenizer([prompt_of(each) for each in episodes], return_tensors="pt")["input_ids"]
    words, vocabulary = words_of(tokenizer), tokenizer.get_vocab()
    was_training, cache = model.training, DynamicCache(config=model.config)
    arguments = {"use_cache": True, cache_argument(model): cache}
    model.eval()
    with torch.no_grad():
        while any(each.ending is None for each in running):
            output = model(input_ids=ids, **arguments)
            logits = torch.log_softmax(output.logits[:, -1].float() / temperature, -1)
            sampled = torch.multinomial(logits.exp(), 1, generator=generator)
            logprobs = logits.gather(1, sampled)[:, 0].tolist()
            next_words = [
                each.advance(words[i], logprob)
                for each, i, logprob in zip(running, sampled[:, 0].tolist(), logprobs, strict=True)
            ]
            ids = torch.tensor([[vocabulary[word]] for word in next_words])
    model.train(was_training)
    return running


def words_of(tokenizer: Any) -> Mapping[int, str]:
    """Return the word of each token id."""
    return {i: word for word, i in tokenizer.get_vocab().items()}
