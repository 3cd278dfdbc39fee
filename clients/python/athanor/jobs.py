"""Compile jobs as plain values: their progress, and the results of their search."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from athanor.checks import UINT64, checked_int
from athanor.errors import Error, InvalidArgument, from_number
from athanor.given import Buckets, bucket_messages, budget_text, rule_names
from athanor.protos import compile_pb2, search_pb2


@dataclasses.dataclass(frozen=True)
class SearchTask:
    """A kernel of the best plan that a search has found so far.

    Attributes
    ----------
    about : str
        What it computes: ``"Mul over Contract"``.
    calls : int
        How often one run of the plan calls it.
    schedule : str
        The fastest found; empty until one was measured.
    measured, failed : int
        Number of its schedules that were measured, and of those that failed.
    seconds, first_seconds, roofline_seconds : tuple of float
        Time of one call at each of `SearchProgress.sizes`: with `schedule`, with the schedule it
        started with, and the least that the machine's limits allow. Empty while not known.
    """

    about: str
    calls: int
    schedule: str
    measured: int
    failed: int
    seconds: tuple[float, ...]
    first_seconds: tuple[float, ...]
    roofline_seconds: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class SearchFailure:
    """A candidate that was rejected: the kernel or plan, and its error."""

    kernel: str  # hash of its source; empty for a plan
    about: str
    error: Error
    plan_id: str = ""  # empty for a kernel
    from_cache: bool = False  # it failed in an earlier search, and was not tried again


@dataclasses.dataclass(frozen=True)
class SearchRule:
    """Results of one rule in the e-graph of a region.

    Attributes
    ----------
    rule, family, rule_class : str
        ``"contracts_share_operand"``, ``"algebra"``, and ``"exact"``, ``"reassociating"`` or
        ``"approximate"``.
    matches, fired : int
        Matches within its budget, and how often it made two e-classes equal.
    refused, errors : int
        Equalities refused because of facts about the values; matches to which it could not be
        applied, with the latest error in `last_error`.
    last_error : str
        Empty if there was none.
    bans, banned_iterations : int
        Times it exceeded its budget and was paused, and for how many iterations.
    milliseconds : float
        Time to find and apply its matches.
    """

    rule: str
    family: str
    rule_class: str
    matches: int
    fired: int
    refused: int
    errors: int
    last_error: str
    bans: int
    banned_iterations: int
    milliseconds: float


@dataclasses.dataclass(frozen=True)
class SearchRegion:
    """Results of the rules in one distinct region of the graph.

    Attributes
    ----------
    instances, nodes : int
        Number of places in the graph with this region, and of graph nodes in one of them.
    e_nodes, e_classes, iterations, peak_bytes : int
        Figures of its e-graph.
    milliseconds : float
        Time for which it was grown.
    stop : str
        Why growing ended: ``"saturated"``, or the limit reached.
    rules : tuple of SearchRule
        Rules that matched, most often fired first.
    """

    instances: int
    nodes: int
    e_nodes: int
    e_classes: int
    iterations: int
    milliseconds: float
    peak_bytes: int
    stop: str
    rules: tuple[SearchRule, ...]


@dataclasses.dataclass(frozen=True)
class SearchOptions:
    """Options of a compile job's search.

    Attributes
    ----------
    budget : str
        In the form that `Client.upload` takes.
    seed : int
        Seed of the search's random choices.
    disabled_rules : tuple of str
        Rules or families that it must not use.
    approximate : bool
        Whether it may use rules that change results beyond rounding.
    use : {"SERVE", "KEEP", "COMPARE"}
        What happens to a faster plan: it is swapped in; kept, to be pinned; or compared with the
        serving plan and dropped.
    """

    budget: str
    seed: int
    disabled_rules: tuple[str, ...]
    approximate: bool
    use: str


@dataclasses.dataclass(frozen=True)
class PlanComparison:
    """Two plans timed whole, alternating; a geometric mean over the search's sizes.

    Attributes
    ----------
    plan_id, against : str
        The search's result, and the plan that served.
    ratio, low, high : float
        Time of the first divided by that of the second, and its 95 % interval.
    """

    plan_id: str
    against: str
    ratio: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class SearchProgress:
    """Progress and results of the search for a faster plan.

    Attributes
    ----------
    candidates, candidates_failed : int
        Kernels tried, including failed ones and those from the cache; kernels that failed to lower,
        compile, pass the check or run.
    genomes_tried, genomes_taken : int
        Changes of fusion that were tried, and that were better than the one before.
    plans_measured, plans_taken : int
        Whole plans measured, and plans that were faster and serve, have served or are kept.
    best : float
        Time of the best plan, measured whole, as a share of the baseline's.
    predicted : float
        The same for the best genome, as the sum of its kernels.
    roofline : float
        The least share that the machine's limits allow.
    seconds : float
        Seconds of the budget used.
    sizes : tuple of str
        Sizes that everything is measured at: ``("b=1 s=64", "b=8 s=64")``.
    tasks : tuple of SearchTask
        Kernels of the best genome, longest first.
    failures : tuple of SearchFailure
        The last few, newest first.
    regions : tuple of SearchRegion
        Distinct regions of the graph, as the rules saturated them.
    forms_tried, forms_taken : int
        Graphs made by the rules that were compared by their kernels, and that were better.
    rules : tuple of str
        Rules that lead from the baseline's graph to that of the best genome.
    mode : str
        ``"SEARCH_FAST"``, ``"SEARCH_BUDGET"`` or ``"SEARCH_EXHAUST"``.
    forms_error : str
        Error that kept the rules from making other graphs.
    plans_failed : int
        Whole plans that did not run, gave other values, or cannot serve.
    times : dict of str to float
        Seconds spent on each kind of work: ``"search"``, ``"compile"``, ``"measure"`` and
        ``"check"`` of kernels, ``"plans"``, ``"verify"``, ``"limits"``.
    candidates_from_cache : int
        Candidates not measured again, because an earlier search measured them or they failed in it.
    failures_from_cache : int
        Kernels and whole plans that were not tried because they had failed before.
    recipes_tried : int
        Recipes that earlier searches, here or on another machine, left for equal regions, and that
        became candidates.
    limited_by : str
        What kept the search from more, once it has ended: the machine, the budget, the space of
        schedules and forms, or whole plans that do not hold what their kernels promise. Empty if
        that is not known.
    """

    candidates: int
    candidates_failed: int
    genomes_tried: int
    genomes_taken: int
    plans_measured: int
    plans_taken: int
    best: float
    predicted: float
    roofline: float
    seconds: float
    sizes: tuple[str, ...]
    tasks: tuple[SearchTask, ...]
    failures: tuple[SearchFailure, ...]
    regions: tuple[SearchRegion, ...] = ()
    forms_tried: int = 0
    forms_taken: int = 0
    rules: tuple[str, ...] = ()
    mode: str = "SEARCH_BUDGET"
    forms_error: str = ""
    plans_failed: int = 0
    times: dict[str, float] = dataclasses.field(default_factory=dict)
    candidates_from_cache: int = 0
    failures_from_cache: int = 0
    recipes_tried: int = 0
    limited_by: str = ""

    def __str__(self) -> str:
        known = f", {self.candidates_from_cache} from the cache" * (self.candidates_from_cache > 0)
        known += f", {self.recipes_tried} recipes tried" * (self.recipes_tried > 0)
        return (f"{self.seconds:.1f} s, {self.candidates} candidates ({self.candidates_failed} "
                f"failed{known}), {self.plans_taken} of {self.plans_measured} plans taken, "
                f"{100 * self.best:.1f} % of the baseline's time")


def search_progress(m: search_pb2.SearchProgress) -> SearchProgress:
    """The message as a plain value."""
    tasks = tuple(
        SearchTask(about=t.about, calls=t.calls, schedule=t.schedule, measured=t.measured,
                   failed=t.failed, seconds=tuple(t.seconds),
                   first_seconds=tuple(t.first_seconds),
                   roofline_seconds=tuple(t.roofline_seconds))
        for t in m.tasks)
    failures = tuple(SearchFailure(f.kernel, f.about, from_number(f.code, f.message),
                                   f.plan_id, f.from_cache)
                     for f in m.failures)
    return SearchProgress(
        candidates=m.candidates, candidates_failed=m.candidates_failed,
        genomes_tried=m.genomes_tried, genomes_taken=m.genomes_taken,
        plans_measured=m.plans_measured, plans_taken=m.plans_taken, best=m.best,
        predicted=m.predicted, roofline=m.roofline, seconds=m.seconds, sizes=tuple(m.sizes),
        tasks=tasks, failures=failures,
        regions=tuple(_region(r) for r in m.regions), forms_tried=m.forms_tried,
        forms_taken=m.forms_taken, rules=tuple(m.rules), mode=search_pb2.SearchMode.Name(m.mode),
        forms_error=m.forms_error, plans_failed=m.plans_failed,
        times={t.on: t.seconds for t in m.times},
        candidates_from_cache=m.candidates_from_cache, failures_from_cache=m.failures_from_cache,
        recipes_tried=m.recipes_tried, limited_by=m.limited_by)


def _region(m: search_pb2.SearchRegion) -> SearchRegion:
    return SearchRegion(
        instances=m.instances, nodes=m.nodes, e_nodes=m.e_nodes, e_classes=m.e_classes,
        iterations=m.iterations, milliseconds=m.milliseconds, peak_bytes=m.peak_bytes, stop=m.stop,
        rules=tuple(_rule(r) for r in m.rules))


def _rule(m: search_pb2.SearchRule) -> SearchRule:
    return SearchRule(
        rule=m.rule, family=m.family, rule_class=m.rule_class, matches=m.matches, fired=m.fired,
        refused=m.refused, errors=m.errors, last_error=m.last_error, bans=m.bans,
        banned_iterations=m.banned_iterations, milliseconds=m.milliseconds)


def _search_options(m: search_pb2.SearchOptions) -> SearchOptions:
    return SearchOptions(budget=m.budget, seed=m.seed, disabled_rules=tuple(m.disabled_rules),
                         approximate=m.approximate, use=search_pb2.SearchOptions.Use.Name(m.use))


@dataclasses.dataclass(frozen=True)
class CompileJob:
    """Progress of a compile job; as text, one line.

    `stop_reason` says why it ended: for a search one of ``"STOP_ROOFLINE"`` (near what the machine
    allows), ``"STOP_STAGNATION"`` (nothing left promises a gain), ``"STOP_EXHAUSTED"`` (everything
    was measured), ``"STOP_BUDGET"`` and ``"STOP_SEARCH_FAILED"``; ``"STOP_RESTORED"`` means that
    the plan was stored by an earlier search, as after a restart. After each of them the job is DONE
    and the best plan serves.
    """

    id: str
    model: str
    version: str
    phase: str  # "QUEUED", ..., "SEARCHING", and at last "DONE", "FAILED" or "CANCELLED"
    kernels_total: int
    kernels_done: int
    kernels_from_cache: int
    percent: float
    message: str
    stop_reason: str
    error: Error | None
    taps: tuple[str, ...] = ()  # inner values that its plan returns too; empty: the usual plan
    search: SearchProgress | None = None  # None before SEARCHING, and without a search
    search_options: SearchOptions | None = None  # None for plans with taps
    comparison: PlanComparison | None = None  # at the end of a search with KEEP or COMPARE
    waits_for: str = ""  # another process on this cache with the same work
    buckets_total: int = 0  # buckets besides the full range
    buckets_done: int = 0  # buckets with a plan of their own, or a reason why not
    buckets_searched: int = 0  # buckets with a finished search
    search_bucket: str = ""  # bucket of `search`: "b=1..8"; empty: the full range

    @property
    def finished(self) -> bool:
        """Reports whether it has stopped: done, failed or cancelled."""
        return self.phase in ("DONE", "FAILED", "CANCELLED")

    def __str__(self) -> str:
        text = f"job {self.id} {self.model}/{self.version}: {self.phase}, {self.percent:.0f} %"
        if self.search is not None:
            bucket = f"bucket {self.search_bucket}: " if self.search_bucket else ""
            end = f", {self.stop_reason}" if self.finished else ""
            return f"{text}, {bucket}{self.search}{end}"
        return f"{text}, {self.error or self.message}"


def compile_job(m: compile_pb2.CompileJob) -> CompileJob:
    """The message as a plain value."""
    kind = compile_pb2.CompileJob
    return CompileJob(
        id=m.id, model=m.model, version=m.version, phase=kind.Phase.Name(m.phase),
        kernels_total=m.kernels_total, kernels_done=m.kernels_done,
        kernels_from_cache=m.kernels_from_cache, percent=m.percent, message=m.message,
        stop_reason=kind.StopReason.Name(m.stop_reason),
        error=from_number(m.error_code, m.error) if m.phase == kind.FAILED else None,
        taps=tuple(m.taps),
        search=search_progress(m.search) if m.HasField("search") else None,
        search_options=_search_options(m.search_options) if m.HasField("search_options") else None,
        comparison=PlanComparison(m.comparison.plan_id, m.comparison.against, m.comparison.ratio,
                                  m.comparison.low, m.comparison.high)
        if m.HasField("comparison") else None,
        waits_for=m.waits_for, buckets_total=m.buckets_total, buckets_done=m.buckets_done,
        buckets_searched=m.buckets_searched, search_bucket=m.search_bucket)


def start_compile(name: str, version: str, buckets: Buckets | None, budget: str | None,
                  disable_rules: Sequence[str] | None, approximate: bool, seed: int,
                  use: str | None) -> compile_pb2.StartCompileRequest:
    """Makes the request.

    Raises
    ------
    InvalidArgument
        If the request cannot hold `use`, `budget`, `seed` or `disable_rules`.
    """
    uses = {None: 0, "serve": 1, "keep": 2, "compare": 3}
    if use not in uses:
        raise InvalidArgument(f'use={use!r}: it must be "serve", "keep" or "compare"')
    return compile_pb2.StartCompileRequest(
        model=name, version=version, search_budget=budget_text(budget),
        buckets=bucket_messages(buckets), disable_rules=rule_names(disable_rules),
        approximate=approximate, search_seed=checked_int("seed", seed, UINT64), use=uses[use])
