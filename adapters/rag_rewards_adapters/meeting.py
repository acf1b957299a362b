"""Sessions of one prompt that meet: they are scored together, and none of them without the others.

Trainers start the samples of a prompt as tasks of one loop, without saying how many there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from rag_rewards.errors import GroupError

T = TypeVar("T")
R = TypeVar("R")


class Group(Generic[T, R]):
    """The sessions of one prompt: all of them get a result, or all of them an error.

    `settle` turns what they brought, in the order in which they joined, into their results;
    `sizes` are the numbers of sessions that may stand together where these have no ids (any, where
    none is given). Where they have ids, 0 to k − 1 are whole for every k: verl lets a prompt have a
    number of its own (`__rollout_n__`, which never reaches a session), so that two sessions where
    the configuration says four may be all there are.
    """

    def __init__(
        self, settle: Callable[[list[T]], Awaitable[Sequence[R | Exception]]], sizes: Sequence[int]
    ) -> None:
        self.settle = settle
        self.sizes = sizes
        self.sessions: list[int | None] = []
        self.failure: Exception | None = None
        self._closed = False
        self._left = 0
        self._brought: dict[int, T] = {}
        self._results: Sequence[R | Exception] = ()
        self._ended = asyncio.Event()
        self._settling: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """Nobody is in it any more, and nobody can come."""
        return self._closed and self._left == len(self.sessions)

    def join(self, session: int | None) -> int:
        """A place in the group. GroupError, for all, when its membership is closed already."""
        if self._closed:
            late = GroupError(f"session {session} came after its group was closed: it is torn")
            self._fail(late)
            raise late
        self.sessions.append(session)
        return len(self.sessions) - 1

    def close(self) -> None:
        """All that belong together are here."""
        self._closed = True
        if fault := self._fault():
            self._fail(fault)
        self._proceed()

    async def meet(self, place: int, work: Callable[[], Awaitable[T]]) -> R:
        """The result of the session at this place, when all have done their work."""
        try:
            self._brought[place] = await work()
            self._proceed()
            await self._ended.wait()
        except BaseException as error:
            what = f"{type(error).__name__}: {error}".removesuffix(": ")
            self._fail(GroupError(f"another session of its prompt failed: {what}"))
            raise
        finally:
            self._left += 1
        if self.failure is not None:
            raise self.failure
        result = self._results[place]
        if isinstance(result, Exception):
            raise result
        return result

    def _fault(self) -> GroupError | None:
        """Why these sessions are not a whole group."""
        count = len(self.sessions)
        named = sorted(session for session in self.sessions if session is not None)
        if named == list(range(count)) or (not named and count in (self.sizes or (count,))):
            return None
        if named:
            return GroupError(f"sessions {self.sessions} of a prompt came together: it is torn")
        return GroupError(
            f"{count} sessions of a prompt came together, not rollout.n or rollout.val_kwargs.n "
            f"({' or '.join(map(str, self.sizes))}): the batch was divided within a group; choose "
            "sizes of batches and numbers of agent workers that divide evenly"
        )

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        if self._settling is not None:
            self._settling.cancel()
        self._ended.set()

    def _proceed(self) -> None:
        """Settle, when all have brought what they have to."""
        whole = self._closed and len(self._brought) == len(self.sessions)
        if whole and self.failure is None and self._settling is None:
            self._settling = asyncio.ensure_future(self._settle())

    async def _settle(self) -> None:
        try:
            self._results = await self.settle([self._brought[i] for i in range(len(self._brought))])
            if (found := len(self._results)) != (count := len(self.sessions)):
                raise GroupError(f"settling gave {found} results for {count} sessions")
        except Exception as error:
            self.failure = self.failure or error
        except BaseException as error:  # cancelled: whoever waits must not wait for ever
            self.failure = self.failure or GroupError(f"settling ended by {type(error).__name__}")
            raise
        finally:
            self._ended.set()


class Groups(Generic[T, R]):
    """Groups at work in one event loop, by prompt.

    Siblings are tasks of one for-loop: each reaches `meet` without suspending. So the first to
    arrive opens the group and closes it by `call_soon`, which runs when all others have joined.
    """

    def __init__(self) -> None:
        self.at_work: dict[str, Group[T, R]] = {}

    async def meet(
        self,
        key: str,
        session: int | None,
        work: Callable[[], Awaitable[T]],
        make: Callable[[], Group[T, R]],
    ) -> R:
        """The result of a session among its siblings. Nothing stays behind when all have left."""
        group = self.at_work.get(key)
        if group is None:
            group = self.at_work[key] = make()
            asyncio.get_running_loop().call_soon(self._close, key, group)
        try:
            return await group.meet(group.join(session), work)
        finally:
            self._forget(key, group)

    def _close(self, key: str, group: Group[T, R]) -> None:
        group.close()
        self._forget(key, group)

    def _forget(self, key: str, group: Group[T, R]) -> None:
        if group.over:
            self.at_work.pop(key, None)
