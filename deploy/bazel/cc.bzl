"""cc_library, cc_binary and cc_test: Bazel's own, compiled with precompiled headers.

A target says which one of //deploy/bazel/precompiled it starts with: `precompiled = "common"`
(the default), "rpc" where it uses gRPC, or None. Tests read "testing", and are compiled without
optimisation: they only call what they test. Libraries for tests are optimised, because benchmarks
link them: of an inline function's copies the linker takes the first, whatever it was compiled with.
A source still includes what it uses; `--define=precompiled=no` builds without, and shows what is
missing.
"""

load("//deploy/bazel/precompiled:precompiled.bzl", "TEST_COPTS")

_FOLDER = "deploy/bazel/precompiled"

def _compiled(rule, name, precompiled, copts, deps, **kwargs):
    if precompiled:
        copts = copts + select({
            "//%s:off" % _FOLDER: [],
            "//conditions:default": ["-include-pch", "$(BINDIR)/%s/%s.pch" % (_FOLDER, precompiled)],
        })
        deps = deps + ["//%s:%s" % (_FOLDER, precompiled)]
    rule(name = name, copts = copts, deps = deps, **kwargs)

def cc_library(name, precompiled = "common", copts = [], deps = [], **kwargs):
    """native.cc_library; `precompiled` as above."""
    if not kwargs.get("srcs"):
        precompiled = None
    _compiled(native.cc_library, name, precompiled, copts, deps, **kwargs)

def cc_binary(name, precompiled = "common", copts = [], deps = [], **kwargs):
    """native.cc_binary; `precompiled` as above."""
    _compiled(native.cc_binary, name, precompiled, copts, deps, **kwargs)

def cc_test(name, precompiled = "testing", copts = [], deps = [], **kwargs):
    """native.cc_test; `precompiled` as above."""
    _compiled(native.cc_test, name, precompiled, copts + TEST_COPTS, deps, **kwargs)
