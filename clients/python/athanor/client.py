"""The blocking client."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from athanor import cache, calls, uploads
from athanor.base import ClientBase, ModelBase
from athanor.cache import (
    CacheExplanation,
    CacheExport,
    CacheGarbage,
    CacheImport,
    CacheStat,
    CacheVerification,
)
from athanor.errors import Error, InvalidArgument
from athanor.generation import (
    EngineStatus,
    GenerateOptions,
    Messages,
    RenderedChat,
    Tokenized,
)
from athanor.given import Buckets, Dims, Given, Values
from athanor.jobs import CompileJob
from athanor.notebook import table
from athanor.streams import Generation
from athanor.wire import Device, InferResult, Inputs, ModelInfo


class Client(ClientBase):
    """A connection to a server; safe to share between threads.

    It can be pickled, as can its models, to be used in another process: what it connects with is,
    but for secrets. A process that is forked cannot use it (`FailedPrecondition`): start processes
    with ``multiprocessing.get_context("spawn")``.

    Parameters
    ----------
    address : str, optional
        ``"host:port"``, by default that of ATHANOR_ADDRESS, else ``"127.0.0.1:50051"``; the port is
        50051 if absent.
    root_certificates : bytes, optional
        PEM root certificates to trust: connects with TLS. ``b""`` takes the system's.
    client_certificate, client_key : bytes, optional
        PEM certificate chain and private key of this client, for servers that ask for them. A
        client with a key cannot be pickled.
    token : str, optional
        Says who calls: sent with every call as ``authorization: Bearer``, by default that of
        ATHANOR_TOKEN. A pickle does not hold it: where it is loaded, ATHANOR_TOKEN must.
    insecure : bool
        Whether a token may travel without TLS to another machine.

    Raises
    ------
    InvalidArgument
        If the address or the token is none, or a token would travel in plain text.

    Examples
    --------
    >>> with athanor.Client() as client:
    ...     model = client.upload(graph, name="linear")
    ...     y = model.infer({"x": x})["y"]
    """

    def __enter__(self) -> Client:
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

    def ready(self, timeout: float | None = None) -> bool:
        """Reports whether the server takes requests."""
        return self._run(calls.ready(), timeout)

    def upload(self, source: object, name: str, format: str | None = None,
               buckets: Buckets | None = None, budget: str | None = None,
               timeout: float | None = None, *, deterministic: bool = False,
               disable_rules: Sequence[str] | None = None, approximate: bool = False,
               batch_dim: str | None = None, dims: Dims | None = None,
               values: Values | None = None, random_seed: int | None = None,
               device: str | None = None, ignore_keys: Sequence[str] | None = None,
               decoder: Mapping[str, int] | None = None) -> Model:
        """Stores a model and starts compiling it; returns when it is stored.

        Parameters
        ----------
        source : Graph, path, bytes or onnx.ModelProto
            A path ends in ``.athanor`` (`Graph.save`) or ``.onnx``, with its files of external data
            beside it; bytes need `format`. Of a language model it is a ``.gguf`` file, or a folder
            with ``config.json``, ``.safetensors`` files and the tokenizer's.
        name : str
            Name of the model; an existing name gets a new version.
        buckets : mapping, optional
            Ranges that cut the bounds of dims, as in ``{"b": [(1, 1), (2, 64)]}``, each size in
            one of them. Each box that they make together gets a plan of its own, as far as memory
            allows (`ModelInfo.buckets`). For ONNX without `buckets` the server chooses some; ``{}``
            means only the full range.
        budget : str, optional
            How far to search for a faster plan: a time (``"30s"``), a number of measured candidates
            (``"200c"``), ``"fast"`` (the cost model chooses) or ``"exhaust"`` (everything is
            measured), alone or within a limit (``"exhaust:5m"``); ``"0"`` for no search; else the
            server's default.
        deterministic : bool
            The same plan serves until another is pinned, so that equal requests get equal bits.
            Searches run only in jobs started by `compile`, and their plans are kept.
        disable_rules : sequence of str, optional
            Rules, or families of rules, that its searches must not use.
        approximate : bool
            Whether its searches may use rules that change results beyond rounding.
        batch_dim : str, optional
            The dim along which the server may batch requests. It does so if it can prove that rows
            along it are independent; else `ModelInfo.batching` says why not.
        dims : mapping, optional
            For an ONNX model, by the names in its file: bounds, both included, as in
            ``{"batch": (1, 64)}`` (``(None, 64)``: from 1), a number, or an expression over other
            dims, as in ``{"total": "past + seq"}``. A dim without bounds is asked for by name.
        values : mapping of str to array, optional
            For an ONNX model: contents of inputs on which its structure depends, such as axes. The
            inputs stay; a request that carries other contents is refused.
        random_seed : int, optional
            For an ONNX model's random ops without a seed of their own.
        device : str, optional
            Device that executes it, one of the server's (`devices`): ``"cpu"``, ``"cuda:0"``; else
            the first of the server's `--device`.
        ignore_keys : sequence of str, optional
            For a language model: keys of its config that the server does not know, and that shall
            be taken for without effect.
        decoder : mapping of str to int, optional
            For a language model: the most ``"tokens"`` of a step (else 512), ``"sequences"`` of a
            step (else 64), and positions of a sequence (``"context"``; else the checkpoint's).

        Raises
        ------
        Unimplemented, InvalidArgument
            If the model cannot be served or is wrong: `refusals` has every node and reason.

        Returns
        -------
        Model
            This version of the model. Its first `infer` waits for the baseline plan.
        """
        read = uploads.read_source(source, format)
        given = Given(dims, values, random_seed, ignore_keys, decoder)
        sent = calls.send_model(read, lambda division: calls.upload(
            read, name, division, buckets, budget, deterministic, disable_rules, approximate,
            batch_dim, given, device))
        return Model(self, *self._run_all(sent, timeout))

    def check(self, source: object, format: str | None = None,
              buckets: Buckets | None = None, timeout: float | None = None, *,
              batch_dim: str | None = None, dims: Dims | None = None,
              values: Values | None = None, random_seed: int | None = None,
              ignore_keys: Sequence[str] | None = None,
              decoder: Mapping[str, int] | None = None) -> ModelInfo:
        """Checks whether the server would accept a model, as `upload` does, but keeps nothing.

        Parameters
        ----------
        source, format, buckets, batch_dim, dims, values, random_seed, ignore_keys, decoder
            As in `upload`.

        Returns
        -------
        ModelInfo
            The model's inputs, outputs, dims and notes; without a version.

        Raises
        ------
        Unimplemented, InvalidArgument
            In the cases in which `upload` does.
        """
        read = uploads.read_source(source, format)
        given = Given(dims, values, random_seed, ignore_keys, decoder)
        sent = calls.send_model(read, lambda division: calls.check(
            read, division, buckets, batch_dim, given))
        return self._run_all(sent, timeout)

    def model(self, name: str, version: str = "") -> Model:
        """Returns a stored model; without `version`, each call goes to the version that serves
        then.

        Raises
        ------
        NotFound
            If there is none.
        """
        model = Model(self, name, version)
        model.info()
        return model

    def models(self, name: str = "") -> list[ModelInfo]:
        """Lists all versions of all models, or of one, newest first."""
        return self._run(calls.list_models(name))

    def devices(self) -> list[Device]:
        """Lists the devices that execute models, as they are now."""
        return self._run(calls.list_devices())

    def delete(self, name: str, version: str = "") -> list[str]:
        """Deletes a model, or one version; returns the deleted versions. Running calls finish."""
        return self._run(calls.delete_model(name, version))

    def rollback(self, name: str, version: str = "") -> Model:
        """Makes an earlier version serve; without `version`, the previous one."""
        return Model(self, *self._run(calls.rollback(name, version)))

    def compile(self, name: str, version: str = "", buckets: Buckets | None = None,
                budget: str | None = None, *, disable_rules: Sequence[str] | None = None,
                approximate: bool = False, seed: int = 0, use: str | None = None) -> CompileJob:
        """Starts compiling a stored version again.

        A version has one job at a time: another waits until it has ended.

        Parameters
        ----------
        buckets : mapping, optional
            As in `upload`; they replace the version's buckets. A single range over all sizes, as in
            ``{"b": [(1, 64)]}``, removes them.
        budget, disable_rules, approximate
            As in `upload`; without `budget` the version's own. Rules that the version or the server
            disables stay so.
        seed : int
            Seed of the search's random choices; 0: the server's.
        use : {"serve", "keep", "compare"}, optional
            What happens to a faster plan: it is swapped in (the default); kept, to be pinned (the
            default for deterministic versions, which refuse "serve"); or, after a search from the
            baseline, compared with the serving plan (`CompileJob.comparison`) and dropped.
        """
        return self._run(calls.start_compile(name, version, buckets, budget, disable_rules,
                                             approximate, seed, use))

    def jobs(self, name: str = "", only_unfinished: bool = False) -> list[CompileJob]:
        """Lists compile jobs, newest first."""
        return self._run(calls.list_jobs(name, only_unfinished))

    def job(self, job_id: str) -> CompileJob:
        """Returns one compile job."""
        return self._run(calls.get_job(job_id))

    def cancel(self, job_id: str) -> CompileJob:
        """Stops a compile job; plans that already serve stay."""
        return self._run(calls.cancel_job(job_id))

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

    def cache_stat(self, timeout: float | None = None) -> CacheStat:
        """Returns what the cache holds, and what the server compiled and measured since it
        started."""
        return self._run(calls.cache_stat(), timeout)

    def cache_explain(self, name: str, version: str = "",
                      bucket: cache.Ranges | None = None) -> list[CacheExplanation]:
        """Explains why the plans of a version were found in the cache or not.

        Parameters
        ----------
        bucket : mapping of str to (int, int), optional
            Only this bucket, by dim: ``{"b": (1, 64)}``; by default all of the version's.
        """
        return self._run(calls.cache_explain(name, version, bucket))

    def cache_verify(self, *, quarantine: bool = False,
                     timeout: float | None = None) -> CacheVerification:
        """Checks every row of the cache.

        Parameters
        ----------
        quarantine : bool
            Quarantine damaged rows; otherwise only report them.
        """
        return self._run(calls.cache_verify(quarantine), timeout)

    def cache_collect_garbage(self, limit_bytes: int = 0, *, failures: bool = False,
                              quarantine: bool = False, dry_run: bool = False,
                              timeout: float | None = None) -> CacheGarbage:
        """Removes the least useful rows from the cache.

        Parameters
        ----------
        limit_bytes : int
            Size to shrink the cache to; 0: the server's limit.
        failures, quarantine : bool
            Also remove all remembered failures, not only expired ones; also remove quarantined
            rows.
        dry_run : bool
            Remove nothing; only report what would be removed.
        """
        return self._run(calls.cache_collect_garbage(limit_bytes, failures, quarantine, dry_run),
                         timeout)

    def cache_export(self, path: str | os.PathLike[str], name: str = "", version: str = "", *,
                     binaries: bool = False, timeout: float | None = None) -> CacheExport:
        """Writes the cache's recipes, plans or kernels into a bundle for other servers.

        Parameters
        ----------
        path : str or path
            The bundle's file; it appears when it is complete.
        name, version : str
            Export only the plans and kernels of this model or version, with which another server
            compiles nothing for it. Needs `binaries`.
        binaries : bool
            Also export plans and compiled kernels, signed by the server.

        Raises
        ------
        FailedPrecondition
            If binaries are asked for and the server has no signing key.
        InvalidArgument
            If a model is named without `binaries`.
        """
        call = calls.cache_export(name, version, binaries)
        with cache.BundleFile(path) as file, self._translated(timeout):
            for chunk in self._stubs.send(call, timeout):
                file.add(chunk)
        return file.written

    def cache_import(self, path: str | os.PathLike[str],
                     timeout: float | None = None) -> CacheImport:
        """Imports the recipes, and signed plans and kernels, of a bundle: all or none of them.

        Raises
        ------
        InvalidArgument
            Naming the record of the bundle that is wrong.
        PermissionDenied
            If it holds binaries and is not signed with a key that the server trusts.
        """
        return self._run(calls.cache_import(list(cache.read_bundle(path))), timeout)


class Model(ModelBase[Client]):
    """A model on the server: one version, or whichever serves. Safe to share between threads.

    Attributes
    ----------
    name, version : str
        `version` is empty if the model stands for the version that serves.
    """

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
        known = self.info().inputs if self._inputs is None else self._inputs
        options = (inputs, outputs, wait, taps, priority)
        try:
            call = calls.infer(self.name, self.version, known, *options)
        except InvalidArgument:
            # Another version may serve than when the types were read.
            if self.version:
                raise
            call = calls.infer(self.name, self.version, self.info().inputs, *options)
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
        call = calls.generate(self.name, self.version, prompt, add_special, options)
        return Generation(call, self.client._stubs.send(call, timeout),
                          partial(self.client._translated, timeout))

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
        call = calls.chat(self.name, self.version, messages, variables, continue_last, options)
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
        job_id = self.info().compile_job_id
        return self.client.watch(job_id, timeout) if job_id else iter(())

    def wait(self, until: str = "baseline", timeout: float | None = None) -> Model:
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
        calls.check_until(until)
        end = None if timeout is None else time.monotonic() + timeout
        info = self.info(timeout)
        if until == "baseline" and info.state == "READY":
            return self
        last = None
        if info.compile_job_id:
            left = None if end is None else max(end - time.monotonic(), 0)
            for job in self.client.watch(info.compile_job_id, left):
                changed, last = last is None or job.phase != last.phase, job
                if until == "baseline" and changed and self.info().state == "READY":
                    return self
        calls.check_finished(self.info(), last)
        return self

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

    def rollback(self) -> Model:
        """Makes this version serve requests that name none; without a version, the previous one."""
        return self.client.rollback(self.name, self.version)

    def delete(self) -> list[str]:
        """Deletes this version, or all versions if the model names none."""
        return self.client.delete(self.name, self.version)
