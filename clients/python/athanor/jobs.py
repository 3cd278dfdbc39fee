"""Compile jobs as plain values: how far one is, and what its search did."""

from __future__ import annotations

import dataclasses

from athanor.errors import Error, from_number
from athanor.protos import compile_pb2, search_pb2


@dataclasses.dataclass(frozen=True)
class SearchTask:
    """One kernel of the best plan that a search knows of.

    Attributes
    ----------
    about : str
        What it computes: ``"Mul over Contract"``.
    calls : int
        How often one run of the plan calls it.
    schedule : str
        The fastest found; empty until one was measured.
    measured, failed : int
        Schedules of it that were measured, and how many of them were put aside.
    seconds, first_seconds, roofline_seconds : tuple of float
        Of one call at each of `SearchProgress.sizes`: with `schedule`, with the schedule it started
        with, and the least that the machine's limits allow. Empty while not known.
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
    """A candidate that was put aside: which kernel or plan, and the error it met."""

    kernel: str  # hash of its source; empty of a plan
    about: str
    error: Error
    plan_id: str = ""  # empty of a kernel
    from_cache: bool = False  # it failed in an earlier search, and was not tried again


@dataclasses.dataclass(frozen=True)
class SearchRule:
    """What one rule did to the e-graph of a region.

    Attributes
    ----------
    rule, family, rule_class : str
        ``"contracts_share_operand"``, ``"algebra"``, and ``"exact"``, ``"reassociating"`` or
        ``"approximate"``.
    matches, fired : int
        Matches found and within its budget; e-classes that it found equal by them.
    refused, errors : int
        Equalities that the facts about the values did not allow; matches that it could not be
        applied to, whose last error is `last_error`.
    last_error : str
        Empty where there was none.
    bans, banned_iterations : int
        Times it found more than its budget and sat out for a while, and for how many iterations.
    milliseconds : float
        To find and to apply its matches.
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
    """What the rules made of one distinct region of the graph.

    Attributes
    ----------
    instances, nodes : int
        Places of the graph that it stands for, and nodes of the graph in one of them.
    e_nodes, e_classes, iterations, peak_bytes : int
        Of its e-graph.
    milliseconds : float
        How long it was grown.
    stop : str
        Why that ended: ``"saturated"``, or the limit met.
    rules : tuple of SearchRule
        Those that found anything, most often fired first.
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
    """What a compile job searches with.

    Attributes
    ----------
    budget : str
        As `Client.upload` takes it.
    seed : int
        Of the search's random choices.
    disabled_rules : tuple of str
        Rules or families that are not used.
    approximate : bool
        Whether rules may be used that change results beyond rounding.
    use : {"SERVE", "KEEP", "COMPARE"}
        What becomes of a faster plan: swapped in; kept, to be pinned; timed beside what serves and
        dropped.
    """

    budget: str
    seed: int
    disabled_rules: tuple[str, ...]
    approximate: bool
    use: str


@dataclasses.dataclass(frozen=True)
class PlanComparison:
    """Two plans timed whole and in turn, as a geometric mean over the search's sizes.

    Attributes
    ----------
    plan_id, against : str
        What the search came to, and what served.
    ratio, low, high : float
        Time of the first by that of the second, and the same by where both medians lie with 95 %.
    """

    plan_id: str
    against: str
    ratio: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class SearchProgress:
    """How far the search for a faster plan has come, and what it found.

    Attributes
    ----------
    candidates, candidates_failed : int
        Kernels tried, failed ones and those from the cache included; those that did not lower,
        compile, check or run.
    genomes_tried, genomes_taken : int
        Changes of what is fused: looked at, and better than the one before.
    plans_measured, plans_taken : int
        Whole plans measured, and those that were faster and came to serve or are kept.
    best : float
        Of the best plan, measured whole: its time as a share of the baseline's.
    predicted : float
        The same of the best genome, as the sum of its kernels.
    roofline : float
        The least share that the machine's limits allow.
    seconds : float
        Used of the search's budget.
    sizes : tuple of str
        What everything is measured at: ``("b=1 s=64", "b=8 s=64")``.
    tasks : tuple of SearchTask
        Kernels of the best genome, longest first.
    failures : tuple of SearchFailure
        The last few, newest first.
    regions : tuple of SearchRegion
        Distinct regions of the graph, as the rules saturated them.
    forms_tried, forms_taken : int
        Graphs that the rules made: compared by their kernels, and better.
    rules : tuple of str
        That led from the baseline's graph to that of the best genome.
    mode : str
        ``"SEARCH_FAST"``, ``"SEARCH_BUDGET"`` or ``"SEARCH_EXHAUST"``.
    forms_error : str
        Why the rules made no other graphs, where that is an error.
    plans_failed : int
        Whole plans that did not run, gave other values, or cannot serve.
    times : dict of str to float
        Seconds that each kind of its work took: ``"search"``, ``"compile"``, ``"measure"`` and
        ``"check"`` of kernels, ``"plans"``, ``"verify"``, ``"limits"``.
    candidates_from_cache : int
        Of the candidates: not measured, since an earlier search had, or they had failed in it.
    failures_from_cache : int
        Kernels and whole plans that were not tried, since they had failed before.
    recipes_tried : int
        What earlier searches, here or on another machine, left for equal parts of a graph: those
        that candidates were made of.
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
        recipes_tried=m.recipes_tried)


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
    """How far a compile job is; as text, one line.

    `stop_reason` says why it ended: of a search one of ``"STOP_ROOFLINE"`` (near what the machine
    allows), ``"STOP_STAGNATION"`` (nothing left promises a gain), ``"STOP_EXHAUSTED"`` (everything
    was measured), ``"STOP_BUDGET"`` and ``"STOP_SEARCH_FAILED"``; ``"STOP_RESTORED"`` where the
    plan was kept from an earlier search, as after a restart. After each of them the job is DONE and
    the best plan serves.
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
    taps: tuple[str, ...] = ()  # inner values that its plan returns too; none: the plan that serves
    search: SearchProgress | None = None  # None before SEARCHING, and where nothing is searched
    search_options: SearchOptions | None = None  # None of plans with taps
    comparison: PlanComparison | None = None  # at the end, where a search's plan does not serve
    waits_for: str = ""  # who makes or searches for the same plan, of all that share the cache
    buckets_total: int = 0  # boxes beside the full range
    buckets_done: int = 0  # that have a plan of their own, or a reason why not
    buckets_searched: int = 0  # whose search has ended
    search_bucket: str = ""  # that `search` is of: "b=1..8"; empty: the full range

    @property
    def finished(self) -> bool:
        """Whether it has stopped, in whatever way."""
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
