"""Groups of sessions: the samples of one prompt, which run concurrently and are scored together.

Trainers start the samples of a prompt as tasks of one event loop and do not report their number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from rag_rewards.errors import GroupError

T = TypeVar("T")
R = TypeVar("R")


class SessionGroup(Generic[T, R]):
    """The sessions of one prompt. Either all of them get a result, or all of them an error.

    score  turns the outputs of the sessions, in the order in which they joined, into their results
    sizes  the valid numbers of sessions without ids; any number if it is empty

    Sessions with ids are complete if their ids are 0 to k − 1, for any k. verl lets a prompt have
    its own number of samples (`__rollout_n__`, which a session does not see), so two sessions can
    be a complete group although the configuration says four.
    """

    def __init__(
        self, score: Callable[[list[T]], Awaitable[Sequence[R | Exception]]], sizes: Sequence[int]
    ) -> None:
        self.score = score
        self.sizes = sizes
        self.sessions: list[int | None] = []
        self.failure: Exception | None = None
        self._is_closed = False
        self._finished = 0
        self._outputs: dict[int, T] = {}
        self._results: Sequence[R | Exception] = ()
        self._ended = asyncio.Event()
        self._scoring: asyncio.Task[None] | None = None

    @property
    def is_finished(self) -> bool:
        """Whether all sessions have finished and no further one can join."""
        return self._is_closed and self._finished == len(self.sessions)

    def join(self, session: int | None) -> int:
        """Return the place of a session. If the group is closed, all its sessions fail."""
        if self._is_closed:
            late = GroupError(
                f"the group is incomplete: session {session} started after the others"
            )
            self._fail(late)
            raise late
        self.sessions.append(session)
        return len(self.sessions) - 1

    def close(self) -> None:
        """Mark the group as complete: no further session may join."""
        self._is_closed = True
        if error := self._size_error():
            self._fail(error)
        self._score_if_complete()

    async def run(self, place: int, work: Callable[[], Awaitable[T]]) -> R:
        """Do the work of the session at this place, wait for the others, and return its result."""
        try:
            self._outputs[place] = await work()
            self._score_if_complete()
            await self._ended.wait()
        except BaseException as error:
            cause = f"{type(error).__name__}: {error}".removesuffix(": ")
            self._fail(GroupError(f"another session of the prompt failed: {cause}"))
            raise
        finally:
            self._finished += 1
        if self.failure is not None:
            raise self.failure
        result = self._results[place]
        if isinstance(result, Exception):
            raise result
        return result

    def _size_error(self) -> GroupError | None:
        """Return why these sessions are not a complete group, or None."""
        count = len(self.sessions)
        ids = sorted(session for session in self.sessions if session is not None)
        if ids == list(range(count)) or (not ids and count in (self.sizes or (count,))):
            return None
        if ids:
            return GroupError(
                f"the group is incomplete: the prompt has the sessions {self.sessions}"
            )
        return GroupError(
            f"the group is incomplete: the prompt has {count} sessions, but rollout.n and "
            f"rollout.val_kwargs.n are {' and '.join(map(str, self.sizes))}: choose batch sizes "
            "and a number of agent workers that do not divide a group"
        )

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        if self._scoring is not None:
            self._scoring.cancel()
        self._ended.set()

    def _score_if_complete(self) -> None:
        is_complete = self._is_closed and len(self._outputs) == len(self.sessions)
        if is_complete and self.failure is None and self._scoring is None:
            self._scoring = asyncio.ensure_future(self._score())

    async def _score(self) -> None:
        try:
            self._results = await self.score([self._outputs[i] for i in range(len(self._outputs))])
            if (results := len(self._results)) != (count := len(self.sessions)):
                raise GroupError(f"scoring returned {results} results for {count} sessions")
        except Exception as error:
            self.failure = self.failure or error
        except BaseException as error:  # cancelled: waiting sessions must not wait forever
            self.failure = self.failure or GroupError(f"scoring ended with {type(error).__name__}")
            raise
        finally:
            self._ended.set()


class SessionGroups(Generic[T, R]):
    """The active groups of one event loop, by prompt.

    The sessions of a prompt are tasks that one loop starts, and each of them reaches `run` without
    suspending. The first one therefore opens the group and closes it with `call_soon`, which runs
    after all others have joined.
    """

    def __init__(self) -> None:
        self.active: dict[str, SessionGroup[T, R]] = {}

    async def run(
        self,
        prompt: str,
        session: int | None,
        work: Callable[[], Awaitable[T]],
        new_group: Callable[[], SessionGroup[T, R]],
    ) -> R:
        """Run a session in the group of its prompt. A group is removed after its last session."""
        group = self.active.get(prompt)
        if group is None:
            group = self.active[prompt] = new_group()
            asyncio.get_running_loop().call_soon(self._close, prompt, group)
        try:
            return await group.run(group.join(session), work)
        finally:
            self._remove_if_finished(prompt, group)

    def _close(self, prompt: str, group: SessionGroup[T, R]) -> None:
        group.close()
        self._remove_if_finished(prompt, group)

    def _remove_if_finished(self, prompt: str, group: SessionGroup[T, R]) -> None:
        if group.is_finished:
            self.active.pop(prompt, None)
