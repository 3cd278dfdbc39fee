"""Warm restarts: process start to all models ready; what served before serves, nothing is made.

Digits, an encoder and a recommender serve plans; each start must serve plans of the same ids, with
no kernel compiled and no candidate measured.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable

import athanor
import dlrm
import encoder
import mlp
import numpy as np
from harness import Run, metrics


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, one request for it and the right answer."""

    name: str
    graph: athanor.Graph
    inputs: dict[str, np.ndarray]
    want: np.ndarray
    output: str

    def check(self, model: athanor.Model) -> athanor.InferResult:
        reply = model.infer(self.inputs, timeout=120)
        np.testing.assert_allclose(reply[self.output], self.want, rtol=2e-3, atol=2e-3,
                                   err_msg=self.name)
        return reply


def _cases(long: bool) -> list[Case]:
    texts = encoder.DEFAULT if long else encoder.Config(
        layers=1, width=48, heads=4, hidden=64, vocabulary=100, positions=32)
    clicks = dlrm.DEFAULT if long else dlrm.MINI
    random = np.random.default_rng(5)
    image = random.integers(0, 17, (4, 64)).astype(np.float32)
    ids = random.integers(0, texts.vocabulary, (1, 16))
    feed = dlrm.dlrm_inputs(7, clicks)
    return [
        Case("digits", mlp.mlp_graph(config=mlp.DIGITS), {"image": image},
             mlp.mlp_numpy(image, mlp.DIGITS), "logits"),
        Case("encoder", encoder.encoder_graph(config=texts), {"ids": ids},
             encoder.encoder_numpy(ids, texts), "hidden"),
        Case("dlrm", dlrm.dlrm_graph(config=clicks), feed, dlrm.dlrm_numpy(feed, clicks), "click"),
    ]


def _milliseconds(body: Callable[[], object]) -> float:
    begin = time.perf_counter()
    body()
    return 1000 * (time.perf_counter() - begin)


def scenario(run: Run) -> None:
    cases = _cases(run.long)
    server = run.server("state", f"--search_budget={'20s' if run.long else '6c'}").start()
    plans = {}
    with server.client() as client:
        models = [client.upload(case.graph, name=case.name) for case in cases]
        for case, model in zip(cases, models, strict=True):
            model.wait("optimised", timeout=300)
            plans[case.name] = case.check(model).plan_id
    assert server.stop() == 0
    seconds, first, hundredth, same = [], [], [], 0
    for _ in range(run.count(3, 20)):
        begin = time.perf_counter()
        server.start()
        with server.client() as client:
            models = [client.model(case.name) for case in cases]
            while not all(model.info().state == "READY" for model in models):
                time.sleep(0.002)
            seconds.append(time.perf_counter() - begin)
            for case, model in zip(cases, models, strict=True):
                reply = case.check(model)
                assert reply.plan_id == plans[case.name], (case.name, reply.plan_id, plans)
                same += 1
            samples = metrics(server)
            for name in ('athanor_kernels_compiled_total{device="cpu"}',
                         "athanor_search_candidates_total"):
                assert samples[name] == 0, (name, samples[name])
            digits, image = models[0], cases[0].inputs
            first.append(_milliseconds(lambda m=digits, i=image: m.infer(i)))
            for _ in range(98):
                digits.infer(image)
            hundredth.append(_milliseconds(lambda m=digits, i=image: m.infer(i)))
        assert server.stop() == 0
    run.figure("restarts, nothing compiled or measured", len(seconds))
    run.figure("right answers by the plans of before", same)
    run.figure("process start to all ready, median", statistics.median(seconds), "s",
               at_most=0.5, timed=True)
    run.figure("the slowest", max(seconds), "s")
    run.figure("digits: second call", statistics.median(first), "ms")
    run.figure("digits: hundredth call", statistics.median(hundredth), "ms")
