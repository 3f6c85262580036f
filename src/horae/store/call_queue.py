"""The queue before a store's thread: calls that wait at the same time share one commit.

To sync the disk takes far longer than to write, and no longer for many writes than for one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from horae.core.actor import current_actor
from horae.store.codec import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from horae.store.book import Batch, Book, NodeJoin

T = TypeVar("T")

MOST: Final = 256  # calls in one commit: the first is not to wait for an endless line


@dataclass(slots=True, eq=False)
class QueuedCall(Generic[T]):
    """What is to be read, or written in a term, and what came of it.

    Without *keep* it only tries. One that is *alone* takes long, and delays no answer but
    its own. A *worker* writes of its own runs, whatever the term.
    """

    work: Callable[[Book], T]
    term: int = 0
    keep: bool = True
    is_alone: bool = False
    worker: NodeJoin | None = None
    result: T | None = None
    error: BaseException | None = None
    # Not in the thread that writes: its context is another.
    actor: str = field(default_factory=lambda: plain(current_actor()))
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    future: asyncio.Future[T] = field(init=False)

    def __post_init__(self) -> None:
        self.future = self.loop.create_future()

    def do(self, book: Book) -> None:
        book.actor, book.worker = self.actor, self.worker
        self.result = self.work(book)

    def answer(self) -> None:
        """Let whoever waits know what came of it; one who gave up is not told."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]


class CallQueue:
    """Calls that wait for one thread, in their order; without a name each is done at once."""

    def __init__(self, name: str = "") -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name) if name else None
        self._waiting: deque[QueuedCall[Any]] = deque()
        self._lock = Lock()
        self._is_served = False

    async def do(self, work: Callable[[], T]) -> T:
        """Do something else in that thread, after all that waits now."""
        if self._pool is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def join(
        self, call: QueuedCall[T], serve: Callable[[Sequence[QueuedCall[Any]]], None]
    ) -> T:
        """Wait in line; *serve* does several calls and says of each what came of it."""
        if self._pool is None:
            serve([call])
            call.answer()
            return await call.future
        with self._lock:
            self._waiting.append(call)
            is_first, self._is_served = not self._is_served, True
        if is_first:
            self._pool.submit(self._serve_all, serve)
        return await call.future

    def rest(self) -> None:
        """End the thread when its work is done."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _serve_all(self, serve: Callable[[Sequence[QueuedCall[Any]]], None]) -> None:
        while calls := self._take():
            try:
                serve(calls)
            except BaseException as error:  # a bug, of which whoever waits must hear
                for call in calls:
                    call.error = call.error or error
            for loop in {call.loop for call in calls}:
                # At once, so that those who go on to write stand in line together again.
                some = [call for call in calls if call.loop is loop]
                with suppress(RuntimeError):  # nobody waits in a loop that is closed
                    loop.call_soon_threadsafe(_answer, some)

    def _take(self) -> list[QueuedCall[Any]]:
        """Return the next calls that can be kept together."""
        with self._lock:
            calls: list[QueuedCall[Any]] = []
            while self._waiting and len(calls) < MOST:
                if calls and (calls[0].is_alone or self._waiting[0].is_alone):
                    break
                calls.append(self._waiting.popleft())
            self._is_served = bool(calls)
            return calls


def _answer(calls: Sequence[QueuedCall[Any]]) -> None:
    for call in calls:
        call.answer()


def do_all(calls: Sequence[QueuedCall[Any]], book: Book) -> None:
    """Do what several calls ask for, those at once that stand together and want the same."""
    # What does a call together with others of its kind, if anything does, and for whom.
    kinds = groupby(
        calls, key=lambda call: (getattr(call.work, "all", None), call.actor, call.worker)
    )
    for (many, actor, worker), some in kinds:
        same = [*some]
        book.actor, book.worker = actor, worker
        if many is None:
            found = [call.work(book) for call in same]
        else:
            found = many(book, [cast("Batch[Any]", call.work).given for call in same])
        for call, result in zip(same, found, strict=True):
            call.result = result
