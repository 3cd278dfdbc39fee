#!/bin/sh
# Runs a program whose threads pause after they wake others (late_wakes.c).
#
#   bazel test --run_under="//tests/steady:late_wakes --cpus=0" --runs_per_test=20 //server/rpc/...
#   bazel-bin/tests/steady/late_wakes --in=athanord .venv/bin/python -m pytest tests/e2e
#
# --cpus=LIST       use these CPUs; with one, the woken thread may run first
# --in=PROGRAM,...  only these programs are late, by the ends of their paths
# ATHANOR_LATE_WAKES is the seed; the number of Bazel's run is added to it.
cpus=
while :; do
  case "$1" in
    --cpus=*) cpus="taskset -c ${1#--cpus=}" ;;
    --in=*) export ATHANOR_LATE_WAKES_IN="${1#--in=}" ;;
    *) break ;;
  esac
  shift
done
export ATHANOR_LATE_WAKES=$((${ATHANOR_LATE_WAKES:-0} + ${TEST_RUN_NUMBER:-0}))
export LD_PRELOAD="$(cd "$(dirname "$0")" && pwd)/late_wakes.so"
echo "late wakes: seed $ATHANOR_LATE_WAKES" >&2
exec $cpus "$@"
