"""Calls that wait for their replies: what `athanor.Client` and `athanor.Model` are made of.

Models name the class of their client, and clients make models: `client.py` has what joins the two.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar, Unpack

from athanor import calls
from athanor.base import ClientBase, ModelBase
from athanor.errors import DeadlineExceeded, Error, InvalidArgument
from athanor.generation import (
    EngineStatus,
    GenerateOptions,
    Messages,
    Received,
    RenderedChat,
    Tokenized,
)
from athanor.jobs import CompileJob
from athanor.notebook import table
from athanor.streams import Generation
from athanor.wire import InferResult, Inputs, ModelInfo


class BlockingClient(ClientBase):
    """Makes calls, and closes; safe to share between threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; calls that are running are cancelled."""
        self._stubs.closed = True
        self._channel.close()

    def _run(self, call: calls.Call[calls.Result], timeout: float | None = None) -> calls.Result:
        with self._translated(timeout):
            return call.read(self._stubs.send(call, timeout))

    def _run_all(self, sent: Generator[calls.Call[Any], Any, calls.Result],
                 timeout: float | None) -> calls.Result:
        """Makes each call that `sent` yields, until it returns."""
        try:
            call = next(sent)
            while True:
                try:
                    received = self._run(call, timeout)
                except Error as error:
                    call = sent.throw(error)
                else:
                    call = sent.send(received)
        except StopIteration as end:
            result: calls.Result = end.value
            return result

    def watch(self, job_id: str, timeout: float | None = None) -> Iterator[CompileJob]:
        """Yields a compile job as it is now, then again after each change, until it has
        finished."""
        call = calls.watch_job(job_id)
        stream = self._stubs.send(call, timeout)
        try:
            with self._translated(timeout):
                for message in stream:
                    yield call.read(message)
        finally:
            stream.cancel()


AnyBlocking = TypeVar("AnyBlocking", bound=BlockingClient)


class BlockingModel(ModelBase[AnyBlocking]):
    """Makes the calls of one model; safe to share between threads."""

    def _repr_html_(self) -> str:
        try:
            return self.info(timeout=2)._repr_html_()
        except Error as error:
            return table(repr(self), [(error.code, error)])

    def info(self, timeout: float | None = None) -> ModelInfo:
        """Returns everything the server knows about the model now."""
        info = self.client._run(calls.get_model(self.name, self.version), timeout)
        self._inputs = info.inputs
        return info

    @property
    def plan_id(self) -> str:
        """The plan that serves; empty before the baseline."""
        return self.info().plan_id

    def infer(self, inputs: Inputs, outputs: Sequence[str] | None = None,
              timeout: float | None = None, wait: str | None = None, *,
              taps: Sequence[str] | None = None, priority: int | None = None) -> InferResult:
        """Runs the model.

        Parameters
        ----------
        inputs : mapping of str to array, or array
            One per input, of exactly its dtype: numpy arrays or CPU tensors with DLPack. Of a model
            with one input the array alone will do.
        outputs : sequence of str, optional
            Which outputs to return; all if absent.
        timeout : float, optional
            Seconds until `DeadlineExceeded`.
        wait : {"baseline", "none"}, optional
            Before the first plan is ready: wait for it (the default), or raise
            `FailedPrecondition`.
        taps : sequence of str, optional
            Names of nodes (`Value.name`) whose values to return too, under these names. The first
            call with a set of taps waits until its plan is compiled; the plan that serves other
            calls stays as it is. Any node that an output needs, and any input, can be tapped.
        priority : int, optional
            1 is served first.

        Returns
        -------
        InferResult
            A dict of arrays that the caller owns, outputs before taps, with `plan_id`, `exec_us`
            and so on.

        Raises
        ------
        InvalidArgument
            Naming the input, output or tap that is wrong and what would be right.
        Unimplemented
            If a tap has a dtype that cannot travel (f8).
        ResourceExhausted
            If the server is compiling plans for as many other sets of taps as it keeps.
        """
        known = self.info(timeout).inputs if self._inputs is None else self._inputs
        options = (inputs, outputs, wait, taps, priority)
        try:
            call = calls.infer(self.name, self.version, known, *options)
        except InvalidArgument:
            # Another version may serve than when the types were read.
            if self.version:
                raise
            call = calls.infer(self.name, self.version, self.info(timeout).inputs, *options)
        return self.client._run(call, timeout)

    def generate(self, prompt: str | Sequence[int], *, add_special: bool = False,
                 timeout: float | None = None, **options: Unpack[GenerateOptions]) -> Generation:
        """Generates what follows a prompt; for language models (uploaded checkpoints).

        Parameters
        ----------
        prompt : str or sequence of int
            Text, before which the tokenizer puts its own beginning, or token ids, taken as they
            are.
        add_special : bool
            Special tokens written in the text are special, as in a template's text; by default they
            are text.
        timeout : float, optional
            Seconds until `DeadlineExceeded`.
        max_tokens : int
            Most tokens to generate, less where the model's context ends; by default 512.
        min_tokens : int
            No token that ends the answer is chosen before so many others were; by default 0.
        temperature : float
            0: the most likely token each time.
        top_k : int
            Choose among so many likeliest tokens; 0: among all.
        top_p : float
            Choose among the likeliest tokens that together have this probability, in (0, 1].
        min_p : float
            Leave out tokens with less than this share of the likeliest one's probability, in
            [0, 1].
        repetition_penalty : float
            Divides logits above 0 of tokens that came before, and multiplies those below; 1: none.
        presence_penalty, frequency_penalty : float
            Subtracted from the logit of a generated token, once or each time it came; in [-2, 2].
        seed : int
            Equal seeds give equal answers, whatever else the server does; by default a random one,
            which `Usage.seed` tells.
        stop : str or sequence of str
            Texts that end the answer and are not part of it; at most 16.
        stop_tokens : sequence of int
            Tokens that end the answer, beside the model's own.
        ignore_eos : bool
            Whether the model's own end tokens do not end the answer.
        logprobs : int
            Tell log probabilities: of the chosen token, and of so many likeliest ones, 0 to 20.
        bias : mapping of int to float
            By token: what is added to its logit, in [-100, 100].
        special_in_text : bool
            Whether special tokens are written as text.
        priority : int
            Order among requests that wait: lower ones go first; by default 100.
        cache_salt : str
            Computed beginnings of prompts are shared with requests of equal salt only.

        Returns
        -------
        Generation
            An iterator over the answer's pieces, whose call runs already; `Generation.result` reads
            all of it. It raises the server's errors.

        Raises
        ------
        InvalidArgument
            Naming the option that cannot be sent and what would be right.

        Examples
        --------
        >>> for piece in model.generate("Once upon a time", max_tokens=64, temperature=0):
        ...     print(piece.text, end="", flush=True)
        """
        return self._answer(
            calls.generate(self.name, self.version, prompt, add_special, options), timeout)

    def chat(self, messages: Messages, *, variables: Mapping[str, object] | None = None,
             continue_last: bool = False, timeout: float | None = None,
             **options: Unpack[GenerateOptions]) -> Generation:
        """Generates the answer to a chat, of which the model's chat template makes the prompt.

        Parameters
        ----------
        messages : sequence of dict, or str
            Each as ``{"role": "user", "content": "Hello"}``; a str is one message of the user.
        variables : mapping, optional
            Variables of the template besides messages, as in ``{"enable_thinking": False}``.
        continue_last : bool
            The last message is the beginning of the answer, with which the model goes on.
        timeout, options
            As in `generate`.
        """
        return self._answer(
            calls.chat(self.name, self.version, messages, variables, continue_last, options),
            timeout)

    def _answer(self, call: calls.Call[Received], timeout: float | None) -> Generation:
        return Generation(call, self.client._stubs.send(call, timeout),
                          partial(self.client._translated, timeout))

    def tokenize(self, text: str, *, add_begin: bool = False, add_special: bool = False,
                 timeout: float | None = None) -> Tokenized:
        """Returns the tokens of a text.

        Parameters
        ----------
        add_begin : bool
            With the tokens that the tokenizer puts around a prompt.
        add_special : bool
            Special tokens written in the text are special.
        """
        call = calls.tokenize(self.name, self.version, text, add_begin, add_special)
        return self.client._run(call, timeout)

    def detokenize(self, ids: Sequence[int], *, special_in_text: bool = False,
                   timeout: float | None = None) -> str:
        """Returns the text of tokens.

        Parameters
        ----------
        special_in_text : bool
            Special tokens are written as text; otherwise they are left out.
        """
        call = calls.detokenize(self.name, self.version, ids, special_in_text)
        return self.client._run(call, timeout)

    def render_chat(self, messages: Messages, *, variables: Mapping[str, object] | None = None,
                    continue_last: bool = False, timeout: float | None = None) -> RenderedChat:
        """Returns the prompt that the model's chat template makes of messages, as in `chat`."""
        call = calls.render_chat(self.name, self.version, messages, variables, continue_last)
        return self.client._run(call, timeout)

    def engine(self, timeout: float | None = None) -> EngineStatus:
        """Returns what a language model's engine does now, and the sampling it does unasked.

        Raises
        ------
        FailedPrecondition
            If it is no language model.
        """
        return self.client._run(calls.get_engine(self.name, self.version), timeout)

    def watch(self, timeout: float | None = None) -> Iterator[CompileJob]:
        """Yields the progress of its latest compile job, ending with the job's final phase.

        Examples
        --------
        >>> for job in model.watch():
        ...     print(job)  # while SEARCHING too: candidates, plans taken, share of the baseline
        """
        job_id = self.info(timeout).compile_job_id
        return self.client.watch(job_id, timeout) if job_id else iter(())

    def wait(self, until: str = "baseline", timeout: float | None = None) -> Self:
        """Returns when the baseline plan serves, or when the search has ended (``"optimised"``).

        The search has ended when its job is DONE, for any reason; the job's `search` tells whether
        it found a faster plan. Without a search it ends with the baseline.

        Raises
        ------
        DeadlineExceeded
            After `timeout` seconds.
        Error
            The error with which the compile job failed, by its status code.
        """
        calls.check_wait(until, timeout)
        end = None if timeout is None else time.monotonic() + timeout
        try:
            self._wait(until, end)
        except DeadlineExceeded:
            if end is None or time.monotonic() < end:  # the job's own error
                raise
            raise calls.not_ready(self.name, timeout) from None
        return self

    def _wait(self, until: str, end: float | None) -> None:
        def left() -> float | None:
            return None if end is None else max(end - time.monotonic(), 0)

        info = self.info(left())
        if until == "baseline" and info.state == "READY":
            return
        last = None
        if info.compile_job_id:
            for job in self.client.watch(info.compile_job_id, left()):
                changed, last = last is None or job.phase != last.phase, job
                if until == "baseline" and changed and self.info(left()).state == "READY":
                    return
        calls.check_finished(self.info(left()), last)

    def egraph(self, region: int = 0) -> str:
        """Returns the e-graph of a region of the graph, as the latest search of this version grew
        it.

        Parameters
        ----------
        region : int
            Index into the `regions` of that search.

        Returns
        -------
        str
            A drawing in Graphviz's DOT language (``dot -Tsvg``): a cluster for each e-class, an
            edge from an e-node to the e-class of each operand.

        Raises
        ------
        FailedPrecondition
            No search has used the rules since the server started, or the e-graph has more than 300
            e-nodes.
        NotFound
            There is no such region.
        """
        return self.client._run(calls.get_egraph(self.name, self.version, region))

    def pin_plan(self, plan_id: str = "") -> ModelInfo:
        """Makes this plan serve until it is unpinned, even if a faster one is found; ``""`` unpins.

        Parameters
        ----------
        plan_id : str
            One of `ModelInfo.plan_ids`: plans that served this version, or that a search kept. A
            bucket's plan serves that bucket alone.

        Raises
        ------
        NotFound
            Naming the plans there are.
        """
        return self.client._run(calls.pin_plan(self.name, self.version, plan_id))
