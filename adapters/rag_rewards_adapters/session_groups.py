"""Groups of sessions: the samples of one prompt, which run concurrently and are scored together.

verl and OpenRLHF start the samples of a prompt as tasks of one event loop and do not report their
number. A server of NeMo Gym knows their number, and gets them as requests at any time.
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

    score     turns the outputs of the sessions, in the order of joining, into their results
    sizes     the valid numbers of sessions without ids; any number if it is empty
    deadline  seconds for which the group waits for `sizes[0]` sessions; None if all of them join in
              one step of the event loop

    Sessions with ids are complete if their ids are 0 to k − 1, for any k. verl lets a prompt have
    its own number of samples (`__rollout_n__`, which a session does not see), so two sessions can
    be a complete group although the configuration says four.
    """

    def __init__(
        self,
        score: Callable[[list[T]], Awaitable[Sequence[R | Exception]]],
        sizes: Sequence[int],
        deadline: float | None = None,
    ) -> None:
        self.score = score
        self.sizes = sizes
        self.deadline = deadline
        self.timer: asyncio.Handle | None = None
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

    @property
    def is_full(self) -> bool:
        """Whether all sessions of a group with a deadline have joined."""
        return self.deadline is not None and len(self.sessions) == self.sizes[0]

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

    def close(self, error: GroupError | None = None) -> None:
        """Mark the group as complete: no further session may join. With an error, it fails."""
        self._is_closed = True
        if self.timer is not None:
            self.timer.cancel()
        if error := error or self._size_error():
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
        if self.deadline is not None:
            return None if self.is_full else self._late_error()
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

    def _late_error(self) -> GroupError:
        return GroupError(
            f"the group is incomplete: {len(self.sessions)} of {self.sizes[0]} rollouts of the "
            f"prompt arrived within {self.deadline:g} seconds: generate {self.sizes[0]} rollouts "
            "for each prompt, or change the group size or the deadline"
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

    A group with a deadline closes when it is full or late, and a further session of the prompt then
    opens another group. So does a session whose id the group already has, because a trainer can
    have the same prompt twice.

    limit  the number of sessions that may wait in open groups. If there are more, a group of the
           prompt that waits longest fails
    """

    def __init__(self, limit: int | None = None) -> None:
        self.active: dict[str, list[SessionGroup[T, R]]] = {}
        self.limit = limit
        self.waiting = 0

    async def run(
        self,
        prompt: str,
        session: int | None,
        work: Callable[[], Awaitable[T]],
        new_group: Callable[[], SessionGroup[T, R]],
    ) -> R:
        """Run a session in the group of its prompt. A group is removed after its last session."""
        group = self._group_of(prompt, session, new_group)
        try:
            place = group.join(session)
            self.waiting += 1
            if group.is_full:
                self._close(prompt, group)
            elif self.limit is not None and self.waiting > self.limit:
                self._fail_oldest()
            return await group.run(place, work)
        finally:
            self._remove_if_finished(prompt, group)

    def _group_of(
        self, prompt: str, session: int | None, new_group: Callable[[], SessionGroup[T, R]]
    ) -> SessionGroup[T, R]:
        """Return the first open group that a session can join, or a new one."""
        for group in self.active.get(prompt, ()):
            if group.deadline is None or session is None or session not in group.sessions:
                return group
        group = new_group()
        self.active.setdefault(prompt, []).append(group)
        loop = asyncio.get_running_loop()
        if group.deadline is None:
            group.timer = loop.call_soon(self._close, prompt, group)
        else:
            group.timer = loop.call_later(group.deadline, self._close, prompt, group)
        return group

    def _close(
        self, prompt: str, group: SessionGroup[T, R], error: GroupError | None = None
    ) -> None:
        group.close(error)
        self.waiting -= len(group.sessions)
        if group.deadline is not None:
            self._remove(prompt, group)
        self._remove_if_finished(prompt, group)

    def _fail_oldest(self) -> None:
        prompt, groups = next(iter(self.active.items()))
        error = f"more than {self.limit} rollouts wait for the others of their prompts"
        self._close(prompt, groups[0], GroupError(f"{error}: generate fewer prompts at a time"))

    def _remove_if_finished(self, prompt: str, group: SessionGroup[T, R]) -> None:
        if group.is_finished:
            self._remove(prompt, group)

    def _remove(self, prompt: str, group: SessionGroup[T, R]) -> None:
        groups = self.active.get(prompt, [])
        if group in groups:
            groups.remove(group)
        if not groups:
            self.active.pop(prompt, None)
