"""Answers of models that come piece by piece: `Generation`, and the same for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import grpc

from athanor.calls import Call
from athanor.errors import Cancelled, Internal
from athanor.generation import GenerateResult, GenerateTimes, Piece, Received, Usage


class _Answer:
    """What has come of an answer so far."""

    def __init__(self, call: Call[Received], stream: Any,
                 translated: Callable[[], AbstractContextManager[None]]) -> None:
        self._translated = translated
        self._stream = stream
        self._call = call
        self._pieces: list[Piece] = []
        self._closed = False
        self.finish: str | None = None
        self.usage: Usage | None = None
        self.times: GenerateTimes | None = None

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Ends the call: the server generates no more, and the iteration ends. Does nothing after
        the answer's end."""
        if self.finish is None and not self._closed:
            self._closed = True
            self._stream.cancel()

    def _take(self, message: Any) -> Piece | None:
        """Returns the message's piece; None if it has none, as the last one may."""
        got = self._call.read(message)
        if got.end is not None:
            self.finish, self.usage, self.times = got.end
        if not got.piece.text and not got.piece.tokens:
            return None
        self._pieces.append(got.piece)
        return got.piece

    def _check_ended(self) -> None:
        if self.finish is None and not self._closed:
            raise Internal("the server ended the answer without a reason (no `finish`)")

    def _whole(self) -> GenerateResult:
        if self.finish is None or self.usage is None or self.times is None:
            raise Cancelled("the answer was closed before its end")
        return GenerateResult(
            "".join(piece.text for piece in self._pieces),
            tuple(token for piece in self._pieces for token in piece.tokens),
            tuple(one for piece in self._pieces for one in piece.logprobs),
            self.finish, self.usage, self.times)


class Generation(_Answer):
    """An answer of a model, from `Model.generate` or `Model.chat`; iterate over its pieces.

    The call begins when this is made and ends when the answer does, with `close`, or when nothing
    holds this any more: leaving a loop is enough only if no variable does, so keep one in a `with`
    block. Read without long pauses: the server ends the answer of a client that does not. One
    thread reads; another may call `close`.

    Attributes
    ----------
    finish : {"stop", "length"} or None
        Why it ended; None until then, as are the others.
    usage : Usage or None
        Counts of tokens, the seed, version and plan.
    times : GenerateTimes or None
        Microseconds until the first token and the last.

    Raises
    ------
    InvalidArgument
        From the iteration and `result`, as all of these: a prompt or option is wrong; it is named.
    FailedPrecondition
        If the model is no language model, or has no tokenizer or chat template and needs one.
    ResourceExhausted
        If too many wait, or if this client did not read.
    DeadlineExceeded
        After `timeout` seconds. Pieces that came stay valid.

    Examples
    --------
    >>> for piece in model.generate("Once upon a time", max_tokens=64):
    ...     print(piece.text, end="", flush=True)
    >>> model.chat("What is a furnace?", temperature=0).result().text
    """

    def __iter__(self) -> Generation:
        return self

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> Piece:
        try:
            with self._translated():
                for message in self._stream if not self._closed else ():
                    piece = self._take(message)
                    if piece is not None:
                        return piece
        except Cancelled:
            if not self._closed:
                raise
        self._check_ended()
        raise StopIteration

    def result(self) -> GenerateResult:
        """Reads to the end and returns the whole answer, pieces that were read before included.

        Raises
        ------
        Cancelled
            If it was closed before its end.
        """
        for _ in self:
            pass
        return self._whole()


class AsyncGeneration(_Answer):
    """An answer of a model, from `AsyncModel.generate` or `AsyncModel.chat`; see `Generation`.

    Examples
    --------
    >>> async for piece in model.generate("Once upon a time", max_tokens=64):
    ...     print(piece.text, end="", flush=True)
    >>> (await model.chat("What is a furnace?", temperature=0).result()).text
    """

    def __aiter__(self) -> AsyncGeneration:
        return self

    async def __aenter__(self) -> AsyncGeneration:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def __anext__(self) -> Piece:
        try:
            while not self._closed:
                with self._translated():
                    message = await self._stream.read()
                if message is grpc.aio.EOF:
                    break
                piece = self._take(message)
                if piece is not None:
                    return piece
        except asyncio.CancelledError:
            # gRPC raises it for a call that `close` cancelled, as well as for a cancelled task.
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise
        self._check_ended()
        raise StopAsyncIteration

    async def result(self) -> GenerateResult:
        """Reads to the end and returns the whole answer; see `Generation.result`."""
        async for _ in self:
            pass
        return self._whole()
