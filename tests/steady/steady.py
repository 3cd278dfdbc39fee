"""The long form of the steadiness suite: figures beside each reach, and a page.

    .venv/bin/python tests/steady/steady.py --long --report steady.html
    .venv/bin/python tests/steady/steady.py --long --only kill churn --share 0.1 --seed 7

Exit status: 0 all reaches met, 1 one missed, 2 wrong command line, 128 and the signal's number when
SIGHUP or SIGTERM ended it; its servers end with it, however it ends. Without --long the short form
is run, whose timed figures are not judged; pytest runs that too.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import signal
import sys
import tempfile

import report
from scenarios import SCENARIOS, play


def main() -> int:
    parser = argparse.ArgumentParser(prog="steady.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="as many rounds as the reaches say")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=SCENARIOS, default=SCENARIOS,
                        help=", ".join(SCENARIOS))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31),
                        help="of every random choice; printed")
    parser.add_argument("--share", type=float, default=1.0,
                        help="of the long form's rounds; the report says so")
    parser.add_argument("--report", type=pathlib.Path, help="an HTML file")
    parser.add_argument("--folder", type=pathlib.Path, help="keeps states and logs here")
    args = parser.parse_args()
    if not 0 < args.share <= 1:
        parser.error("--share: above 0 and at most 1")
    for ending in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    print(f"seed {args.seed}", flush=True)
    outcomes = []
    with tempfile.TemporaryDirectory() as own:
        folder = args.folder or pathlib.Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        for name in args.only:
            outcomes.append(play(name, folder, args.seed, args.long, args.share))
            print("\n".join(report.lines(outcomes[-1])), flush=True)
    if args.report:
        args.report.write_text(report.page(outcomes, report.conditions(args.seed, args.share)))
    return 0 if all(outcome.good for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
