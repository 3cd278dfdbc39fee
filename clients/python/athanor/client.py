"""The blocking client."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from athanor import cache, calls, uploads
from athanor.blocking import BlockingClient, BlockingModel
from athanor.cache import (
    CacheExplanation,
    CacheExport,
    CacheGarbage,
    CacheImport,
    CacheStat,
    CacheVerification,
)
from athanor.given import Buckets, Dims, Given, Values
from athanor.jobs import CompileJob
from athanor.wire import Device, ModelInfo


class Client(BlockingClient):
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


class Model(BlockingModel[Client]):
    """A model on the server: one version, or whichever serves. Safe to share between threads.

    Attributes
    ----------
    name, version : str
        `version` is empty if the model stands for the version that serves.
    """

    def rollback(self) -> Model:
        """Makes this version serve requests that name none; without a version, the previous one."""
        return self.client.rollback(self.name, self.version)

    def delete(self) -> list[str]:
        """Deletes this version, or all versions if the model names none."""
        return self.client.delete(self.name, self.version)
