"""Compile jobs as plain values."""

from __future__ import annotations

import dataclasses

import athanor
import grpc
from athanor import jobs
from athanor.protos import compile_pb2, search_pb2


def test_failed_job_carries_its_error() -> None:
    message = compile_pb2.CompileJob(id="j", phase=compile_pb2.CompileJob.FAILED, error="node x",
                                     error_code=grpc.StatusCode.UNIMPLEMENTED.value[0])
    job = jobs.compile_job(message)
    assert job.finished and isinstance(job.error, athanor.Unimplemented)
    assert not jobs.compile_job(compile_pb2.CompileJob()).finished


def searching() -> compile_pb2.CompileJob:
    """A job whose search has a different value in every field."""
    message = compile_pb2.CompileJob(id="j", model="m", version="2", percent=97.5,
                                     phase=compile_pb2.CompileJob.SEARCHING)
    search = message.search
    for value, field in enumerate(search_pb2.SearchProgress.DESCRIPTOR.fields, start=1):
        if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_DOUBLE):
            setattr(search, field.name, value)
    search.best = 0.875
    search.sizes.extend(["b=1", "b=8"])
    search.tasks.add(about="Mul over Contract", calls=3, schedule="contract mr=12", measured=9,
                     failed=1, seconds=[1, 2], first_seconds=[3, 4], roofline_seconds=[5, 6])
    search.tasks.add(about="Max", calls=1)
    search.failures.add(kernel="ab", about="Max", message="too slow",
                        code=grpc.StatusCode.DEADLINE_EXCEEDED.value[0])
    search.rules.append("double_not")
    search.times.add(on="compile", seconds=1.5, calls=3)
    search.mode = search_pb2.SEARCH_EXHAUST
    region = search.regions.add(instances=24, nodes=18, stop="saturated")
    region.rules.add(rule="double_not", family="algebra", rule_class="exact", matches=5, fired=3,
                     refused=1, errors=2, last_error="no", bans=4, banned_iterations=6,
                     milliseconds=0.5)
    message.search_options.CopyFrom(search_pb2.SearchOptions(
        budget="exhaust:5m", seed=7, disabled_rules=["algebra"], approximate=True,
        use=search_pb2.SearchOptions.KEEP))
    message.comparison.CopyFrom(search_pb2.PlanComparison(plan_id="p-1", against="p-2", ratio=0.5,
                                                          low=0.25, high=0.75))
    return message


def test_search_progress_mirrors_the_message() -> None:
    message = searching()
    search = jobs.compile_job(message).search
    for value, name in ((search, "SearchProgress"), (search.tasks[0], "SearchTask"),
                        (search.regions[0], "SearchRegion"),
                        (search.regions[0].rules[0], "SearchRule"),
                        (jobs.compile_job(message).search_options, "SearchOptions"),
                        (jobs.compile_job(message).comparison, "PlanComparison")):
        fields = {field.name for field in dataclasses.fields(value)}
        assert fields == set(search_pb2.DESCRIPTOR.message_types_by_name[name].fields_by_name)
    for field in dataclasses.fields(search):
        if field.name not in ("tasks", "failures", "sizes", "regions", "rules", "mode",
                              "times"):
            assert getattr(search, field.name) == getattr(message.search, field.name), field.name
    assert search.sizes == ("b=1", "b=8")
    assert search.times == {"compile": 1.5}
    assert search.rules == ("double_not",) and search.mode == "SEARCH_EXHAUST"
    assert search.regions[0].stop == "saturated"
    assert search.regions[0].rules == (athanor.SearchRule(
        "double_not", "algebra", "exact", 5, 3, 1, 2, "no", 4, 6, 0.5),)
    assert jobs.compile_job(message).search_options == athanor.SearchOptions(
        "exhaust:5m", 7, ("algebra",), True, "KEEP")
    assert jobs.compile_job(message).comparison == athanor.PlanComparison("p-1", "p-2", 0.5, 0.25,
                                                                          0.75)
    assert search.tasks[0] == athanor.SearchTask("Mul over Contract", 3, "contract mr=12", 9, 1,
                                                 (1, 2), (3, 4), (5, 6))
    assert search.tasks[1].schedule == "" and search.tasks[1].seconds == ()
    failure = search.failures[0]
    assert (failure.kernel, failure.about) == ("ab", "Max")
    assert isinstance(failure.error, athanor.DeadlineExceeded) and str(failure.error) == "too slow"
    assert jobs.compile_job(compile_pb2.CompileJob()).search is None


def test_a_job_as_a_line() -> None:
    message = searching()
    line = str(jobs.compile_job(message))
    assert line == ("job j m/2: SEARCHING, 98 %, 10.0 s, 1 candidates (2 failed, 22 "
                    "from the cache, 23 recipes tried), "
                    "6 of 5 plans taken, 87.5 % of the baseline's time")
    message.phase = compile_pb2.CompileJob.DONE
    message.stop_reason = compile_pb2.CompileJob.STOP_ROOFLINE
    assert str(jobs.compile_job(message)) == line.replace("SEARCHING", "DONE") + ", STOP_ROOFLINE"
    message = compile_pb2.CompileJob(id="j", model="m", version="1", message="waits",
                                     phase=compile_pb2.CompileJob.QUEUED)
    assert str(jobs.compile_job(message)) == "job j m/1: QUEUED, 0 %, waits"
    message = compile_pb2.CompileJob(id="j", model="m", version="1", error="node x", error_code=12,
                                     phase=compile_pb2.CompileJob.FAILED)
    assert str(jobs.compile_job(message)).endswith("FAILED, 0 %, node x")
