"""Models uploaded, asked and deleted, and uploads that fail, again and again: memory stays."""

from __future__ import annotations

import statistics

import athanor
import grpc
import uploads
from harness import Run, check, eventually, metrics, numbered, resident, upload
from server_process import Server

WARM = 50  # rounds of the long form until memory is looked at


def _round(client: athanor.Client, number: int) -> None:
    model = upload(client, numbered(number))
    check(model, numbered(number))
    model.delete()


def _held(server: Server) -> dict[str, float]:
    """Returns the bytes that the ledger still counts, by the metric's name."""
    return {name: value for name, value in metrics(server).items()
            if name.startswith("athanor_memory_bytes") and value}


def scenario(run: Run) -> None:
    rounds, failed = run.count(60, 1000), run.count(12, 200)
    server = run.server("state").start()
    kinds = list(uploads.FAILURES)
    after: list[int] = []  # bytes held after each round
    with server.client() as client, grpc.insecure_channel(server.address) as channel:
        for number in range(rounds):
            _round(client, number)
            # Failed ones in equal distances.
            if (number + 1) * failed // rounds > number * failed // rounds:
                uploads.fail(channel, kinds[number * failed // rounds % len(kinds)],
                             rounds + number)
            after.append(resident(server.pid))
        assert client.models() == []
        # A call is over, and a model gone with its job, a moment after the answer.
        eventually(lambda: metrics(server)["athanor_calls"] == 0, "calls end")
        eventually(lambda: not _held(server), "memory is given back")
    tensors = [path for path in (server.state / "tensors").rglob("*") if path.is_file()]
    assert not tensors and not list((server.state / "tmp").iterdir()), tensors
    run.figure("rounds", rounds)
    run.figure("failed uploads", failed)
    run.figure("resident in the end", after[-1] / 2**20, "MiB")
    if run.long:
        warm = statistics.median(after[WARM - 5:WARM + 5])
        run.figure("growth since the first 50 rounds",
                   100 * (statistics.median(after[-10:]) / warm - 1), "%", at_most=2)
    else:
        third = rounds // 3
        grown = statistics.median(after[-third:]) / statistics.median(after[third:2 * third])
        run.figure("growth from the second third to the last", 100 * (grown - 1), "%", at_most=5)
    assert server.stop() == 0
