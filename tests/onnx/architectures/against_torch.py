"""Architectures of transformers, with random weights, through the server against torch.

    .venv/bin/python tests/onnx/architectures/against_torch.py                      # all, an hour
    .venv/bin/python tests/onnx/architectures/against_torch.py --only 'segformer-*'
    .venv/bin/python tests/onnx/architectures/against_torch.py --short              # writes short/

Makes an environment of its own from requirements.txt, exports each row of `models.py` by both
exporters (what torch cannot export is listed by name), uploads the files with bounds for their
dims, and calls each at up to three sizes. Of every file the outputs are right by torch, or, where
the file is not what torch ran, by ONNX Runtime (its line says which), or the upload is refused with
a node's or input's name: anything else fails. `--keep` holds the environment and the files, and
goes on where an earlier run ended.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import pathlib
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import short  # noqa: E402
import suite  # noqa: E402
from models import ROWS  # noqa: E402

EXPORTERS = ("traced", "exported")
EXPORT_S = 600
# Sources of a data set's expected results, preferred first. Tracing freezes what Python computed
# from the first set's sizes. ONNX Runtime is asked only if such a file differs from what torch ran,
# because its InstanceNormalization is off by a hundredth in places.
WANTED = ("torch", "ONNX Runtime")
# Tolerance of f32 through a few layers with values about 1.
RTOL, ATOL = 2e-3, 5e-4


def environment(folder: pathlib.Path) -> pathlib.Path:
    """The interpreter of an environment with torch and transformers in `folder`."""
    python = folder / "bin/python"
    done = folder / "installed"
    if not done.exists():
        venv.create(folder, with_pip=True, clear=True)
        # Without dependencies: torch from PyPI names those of its CUDA, which nothing here loads.
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-deps",
                        "-r", str(HERE / "requirements.txt")], check=True)
        done.touch()
    return python


def export(python: pathlib.Path, folder: pathlib.Path, only: str) -> None:
    """Files of all rows that match and are not there."""
    for row in ROWS:
        for exporter in EXPORTERS:
            name = f"{row.name}-{exporter}"
            notes = folder / f"{name}.json"
            if notes.exists() or not fnmatch.fnmatch(name, only):
                continue
            why = ""
            try:
                made = subprocess.run(
                    [str(python), str(HERE / "export.py"), str(folder), row.name, exporter],
                    capture_output=True, text=True, timeout=EXPORT_S, check=False)
                why = f"exit status {made.returncode}: {made.stderr[-200:]}"
            except subprocess.TimeoutExpired:
                why = f"not exported in {EXPORT_S} s"
            if not notes.exists():
                notes.write_text(json.dumps({"not_exported": why}))


def ort_made(model: onnx.ModelProto, given: list[np.ndarray]) -> list[np.ndarray] | None:
    """ONNX Runtime's results.

    None: it cannot run the file on this set, as where a size that tracing kept does not fit.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    names = [info.name for info in model.graph.input]
    try:
        return session.run(None, dict(zip(names, given, strict=True)))
    except Exception:  # its class depends on what goes wrong
        return None


def cases(folder: pathlib.Path, only: str) -> tuple[list[suite.Case], list[str]]:
    """Returns what was exported, and a line for each file that was not."""
    found, missing = [], []
    for notes in sorted(folder.glob("*.json")):
        if not fnmatch.fnmatch(notes.stem, only):
            continue
        said = json.loads(notes.read_text())
        if "not_exported" in said:
            missing.append(f"{notes.stem}: {said['not_exported']}")
            continue
        model = onnx.load(notes.with_suffix(".onnx"))
        arrays = np.load(notes.with_suffix(".npz"))
        inputs = [info.name for info in model.graph.input]
        outputs = [info.name for info in model.graph.output]
        sets = []
        for i in range(len({key.split("/")[0] for key in arrays})):
            given = [arrays[f"{i}/in/{name}"] for name in inputs]
            by_ort = ort_made(model, given)
            if by_ort is not None:
                sets.append((given, [arrays[f"{i}/out/{name}"] for name in outputs], by_ort))
        dims = {name: tuple(bounds) for name, bounds in said["dims"].items()
                if name in short.dims_of(model)}
        found.append(suite.Case(f"architectures/{notes.stem}", model, sets, RTOL, ATOL, dims))
    return found, missing


def run(chosen: list[suite.Case], workers: int) -> dict[str, suite.Outcome]:
    """Runs the cases on a server of its own and returns each one's outcome by name.

    Raises
    ------
    SystemExit
        The server ended other than by request.
    """
    outcomes: dict[str, suite.Outcome] = {}

    def one(case: suite.Case) -> None:
        name = case.name.partition("/")[2]
        outcomes[name] = outcome = suite.run(client, case)
        right = outcome.kind in ("right", "pinned")
        why = f"by {WANTED[outcome.wanted]}" if right else outcome.why[:160]
        print(f"{name:32} {outcome.kind:8} {why}", flush=True)

    with tempfile.TemporaryDirectory(prefix="athanor-architectures-") as folder:
        server = suite.Server(pathlib.Path(folder, "state"), "--compile_workers=2").start()
        try:
            with server.client() as client, ThreadPoolExecutor(workers) as pool:
                list(pool.map(one, chosen))
            status = server.stop()
        finally:
            server.kill()
    if status:
        raise SystemExit(f"the server ended with {status}")
    return outcomes


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="*", help="files whose ROW-EXPORTER matches this pattern")
    parser.add_argument("--keep", type=pathlib.Path, help="folder of the environment and the files")
    parser.add_argument("--python", type=pathlib.Path,
                        help="an interpreter that has torch and transformers already")
    parser.add_argument("--workers", type=int, default=2, help="files at once")
    parser.add_argument("--no_export", action="store_true", help="only files that are there")
    parser.add_argument("--short", action="store_true", help="writes the short list instead")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="athanor-architectures-") as temporary:
        folder = args.keep or pathlib.Path(temporary)
        files = folder / "files"
        files.mkdir(parents=True, exist_ok=True)
        if not args.no_export:
            export(args.python or environment(folder / "environment"), files, args.only)
        chosen, missing = cases(files, args.only)
        if args.short:
            short.write(files)
            return 0
        outcomes = run(chosen, args.workers)
    print("\nnot exported by torch:")
    print("\n".join(f"  {line}" for line in missing) or "  none")
    counts = Counter(outcome.kind for outcome in outcomes.values())
    rows = {name.rpartition("-")[0] for name, o in outcomes.items()
            if o.kind in ("right", "pinned")}
    print(f"{len(outcomes)} files: "
          + ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
          + f"; {len(rows)} architectures right by at least one exporter")
    return 1 if not outcomes or counts["wrong"] or counts["error"] else 0


if __name__ == "__main__":
    sys.exit(main())
