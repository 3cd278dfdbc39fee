"""The arrows of the design: which layer may include which.

One table, read twice: Bazel turns it into the package groups of this folder (who
may depend on a layer), and //tests/layering checks every #include line against
it. A row is `layer: layers it may include`; a layer may always include itself
and //deploy/bazel/libs. A name that ends in `*` is a prefix of file names, any
other name is a folder; a file belongs to the longest name that fits.
"""

LAYERS = {
    "proto": [],
    "compiler/ir": [],
    "compiler/frontend": ["proto", "compiler/ir"],
    "compiler/egraph": [],
    "compiler/rules": ["compiler/ir", "compiler/egraph"],
    "compiler/search": [
        "proto",
        "compiler/ir",
        "compiler/egraph",
        "compiler/rules",
    ],
    "compiler/codegen": ["proto", "compiler/ir", "compiler/search"],
    # The one part that links Clang: the tuner child process, tools and tests.
    "compiler/codegen/cpu/clang*": ["proto", "compiler/ir", "compiler/codegen"],
    "compiler/plan": [
        "proto",
        "compiler/frontend",
        "compiler/ir",
        "compiler/search",
        "compiler/codegen",
    ],
    "compiler/cache": ["proto", "compiler/ir"],
    "compiler/pipeline": [
        "proto",
        "compiler/frontend",
        "compiler/ir",
        "compiler/egraph",
        "compiler/rules",
        "compiler/search",
        "compiler/codegen",
        "compiler/plan",
    ],
    "runtime": ["proto"],
    # Graphs are lowered by the tuner child process: no pipeline here.
    "server": [
        "proto",
        "compiler/frontend",
        "compiler/ir",
        "compiler/cache",
        "runtime",
    ],
    "server/tuner": [
        "proto",
        "compiler/frontend",
        "compiler/ir",
        "compiler/rules",
        "compiler/search",
        "compiler/codegen",
        "compiler/codegen/cpu/clang*",
        "compiler/plan",
        "compiler/pipeline",
        "compiler/cache",
        "runtime",
        "server",
    ],
    "clients/cpp": ["proto"],
    # Checks a state directory where there is no server to ask, with the code that reads it there.
    "clients/cpp/command_fsck*": ["proto", "clients/cpp", "server"],
    "clients/bench": ["proto", "clients/cpp"],
    # What crosses folders may include all of them.
    "tests": [
        "proto",
        "compiler/frontend",
        "compiler/ir",
        "compiler/egraph",
        "compiler/rules",
        "compiler/search",
        "compiler/codegen",
        "compiler/codegen/cpu/clang*",
        "compiler/plan",
        "compiler/cache",
        "compiler/pipeline",
        "runtime",
        "server",
        "server/tuner",
        "clients/cpp",
        "clients/bench",
    ],
}

# What a *_test.cc or *_benchmark.cc may include beyond its layer's row.
TEST_EXTRA = ["compiler/codegen/cpu/clang*"]

# Headers from outside that only some layers may include; any other is open to
# all. The tests layer may include every one.
EXTERNAL = {
    "clang/": ["compiler/codegen/cpu/clang*"],
    "llvm/": ["compiler/codegen/cpu/clang*"],
    "lld/": ["compiler/codegen/cpu/clang*"],
    "grpcpp/": ["proto", "server", "server/tuner", "clients/cpp", "clients/bench"],
    "httplib.h": ["server"],
    "sqlite3.h": ["compiler/cache", "server", "clients/bench"],
    "CLI/": ["server", "server/tuner", "clients/cpp", "clients/bench"],
}
