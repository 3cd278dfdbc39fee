"""The arrows of the design: which layer may include which.

One table, read twice: Bazel turns it into the package groups of this folder (who
may depend on a layer), and //tests/layering checks every #include line against
it. A row is `layer: layers it may include`; a layer may always include itself
and //deploy/bazel/libs. A name that ends in `*` is a prefix of file names, any
other name is a folder; a file belongs to the longest name that fits. A large
layer is parted into rooms, whose rows are ROOMS.
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
    # Checks a state directory without a server, with the server's own code for reading it.
    "clients/cpp/command_fsck*": ["proto", "clients/cpp", "server"],
    "clients/bench": ["proto", "clients/cpp"],
    # Tests that cross folders may include all of them.
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

# The rooms of the layers that have them: which other rooms of its layer a folder may include. A row
# is a folder, without those inside it; from below. Bazel lets all rooms of a layer see each other,
# as tests may include any of them; //tests/layering checks the rest.
ROOMS = {
    "server/net": [],
    "server/base": ["server/net"],
    # Tokenizers and chat templates.
    "server/text/jinja": [],
    "server/text": ["server/base", "server/text/jinja"],
    "server/memory": [],
    "server/metrics": [],
    "server/storage": [
        "server/base",
        "server/metrics",
    ],
    "server/plans": [
        "server/base",
        "server/storage",
    ],
    "server/batch": [
        "server/memory",
        "server/plans",
    ],
    # Sequences of tokens: blocks, steps, sampling. A version of a language model has an engine.
    "server/generate": [
        "server/base",
        "server/memory",
        "server/metrics",
        "server/plans",
        "server/text",
    ],
    "server/models": [
        "server/base",
        "server/batch",
        "server/generate",
        "server/memory",
        "server/metrics",
        "server/plans",
        "server/storage",
        "server/text",
    ],
    "server/child": ["server/base"],
    "server/search": [
        "server/base",
        "server/child",
        "server/memory",
        "server/plans",
    ],
    "server/keeper": [
        "server/base",
        "server/child",
        "server/models",
        "server/plans",
    ],
    "server/jobs": [
        "server/base",
        "server/keeper",
        "server/metrics",
        "server/models",
        "server/plans",
        "server/search",
    ],
    "server/restore": [
        "server/base",
        "server/jobs",
        "server/keeper",
        "server/models",
        "server/plans",
    ],
    "server/core": [
        "server/base",
        "server/batch",
        "server/generate",
        "server/jobs",
        "server/keeper",
        "server/memory",
        "server/metrics",
        "server/models",
        "server/net",
        "server/restore",
        "server/storage",
    ],
    "server/http": [
        "server/base",
        "server/core",
        "server/generate",
        "server/memory",
        "server/metrics",
        "server/net",
    ],
    "server/rpc": [
        "server/base",
        "server/core",
        "server/memory",
    ],
    "server/rpc/cache": [
        "server/base",
        "server/core",
        "server/plans",
        "server/rpc",
    ],
    "server/rpc/compile": [
        "server/base",
        "server/core",
        "server/models",
        "server/rpc",
    ],
    "server/rpc/generate": [
        "server/base",
        "server/core",
        "server/generate",
        "server/models",
        "server/rpc",
        "server/rpc/inference",
        "server/text",
    ],
    "server/rpc/inference": [
        "server/base",
        "server/core",
        "server/plans",
        "server/rpc",
    ],
    "server/rpc/models": [
        "server/base",
        "server/core",
        "server/models",
        "server/plans",
        "server/rpc",
        "server/search",
    ],
    "server": [
        "server/base",
        "server/core",
        "server/http",
        "server/net",
        "server/rpc",
        "server/rpc/cache",
        "server/rpc/compile",
        "server/rpc/generate",
        "server/rpc/inference",
        "server/rpc/models",
        "server/search",
        "server/storage",
    ],
    "server/testing": [
        "server",
        "server/base",
        "server/core",
        "server/keeper",
        "server/models",
        "server/plans",
    ],
    "compiler/frontend": [],
    "compiler/frontend/checkpoint": ["compiler/frontend"],
    "compiler/frontend/onnx/model": ["compiler/frontend"],
    "compiler/frontend/onnx/build": ["compiler/frontend/onnx/model"],
    "compiler/frontend/onnx/fold": [],
    "compiler/frontend/onnx/ops": [
        "compiler/frontend",
        "compiler/frontend/onnx/build",
        "compiler/frontend/onnx/model",
    ],
    "compiler/frontend/onnx/known": [
        "compiler/frontend/onnx/model",
        "compiler/frontend/onnx/ops",
    ],
    "compiler/frontend/onnx/schema": [
        "compiler/frontend",
        "compiler/frontend/onnx/model",
    ],
    "compiler/frontend/onnx/importer": [
        "compiler/frontend",
        "compiler/frontend/onnx/build",
        "compiler/frontend/onnx/fold",
        "compiler/frontend/onnx/known",
        "compiler/frontend/onnx/model",
        "compiler/frontend/onnx/ops",
        "compiler/frontend/onnx/schema",
    ],
    "compiler/frontend/onnx/ops/math": [
        "compiler/frontend/onnx/build",
        "compiler/frontend/onnx/ops",
    ],
    "compiler/frontend/onnx/ops/movement": [
        "compiler/frontend/onnx/build",
        "compiler/frontend/onnx/ops",
    ],
    "compiler/frontend/onnx/ops/networks": [
        "compiler/frontend/onnx/build",
        "compiler/frontend/onnx/ops",
        "compiler/frontend/onnx/ops/math",
    ],
    "compiler/frontend/onnx/testing": [
        "compiler/frontend/onnx/importer",
        "compiler/frontend/onnx/model",
    ],
    "compiler/cache": ["compiler/cache/sqlite"],
    "compiler/cache/sqlite": [],
    "compiler/ir/expr": [],
    "compiler/ir/value": [],
    "compiler/ir/graph": [
        "compiler/ir/expr",
        "compiler/ir/value",
    ],
    "compiler/ir/ops": [
        "compiler/ir/expr",
        "compiler/ir/graph",
        "compiler/ir/value",
    ],
    "compiler/ir/rows": [
        "compiler/ir/graph",
        "compiler/ir/value",
    ],
    "compiler/ir/sample": [
        "compiler/ir/expr",
        "compiler/ir/graph",
        "compiler/ir/ops",
        "compiler/ir/value",
    ],
    "compiler/search/kernels": [],
    "compiler/search/regions": ["compiler/search/kernels"],
    "compiler/search/search": [
        "compiler/search/kernels",
        "compiler/search/regions",
    ],
    "server/tuner/sandbox": [],
    "server/tuner/run": ["server/tuner/sandbox"],
    "server/tuner/check": ["server/tuner/run"],
    "server/tuner/measure": [
        "server/tuner/run",
        "server/tuner/sandbox",
    ],
    "server/tuner/worker": [
        "server/tuner/check",
        "server/tuner/measure",
        "server/tuner/run",
        "server/tuner/sandbox",
    ],
    "server/tuner": [
        "server/tuner/check",
        "server/tuner/measure",
        "server/tuner/run",
        "server/tuner/sandbox",
        "server/tuner/worker",
    ],
    "compiler/egraph/graph": [],
    "compiler/egraph/match": ["compiler/egraph/graph"],
    "compiler/egraph": [
        "compiler/egraph/graph",
        "compiler/egraph/match",
    ],
    "compiler/egraph/extract": ["compiler/egraph/graph"],
    "compiler/rules/decompose": [],
    "compiler/rules/terms": ["compiler/rules/decompose"],
    "compiler/rules/families": [
        "compiler/rules/decompose",
        "compiler/rules/terms",
    ],
    "compiler/rules": [
        "compiler/rules/families",
        "compiler/rules/terms",
    ],
}

# Headers that a *_test.cc or *_benchmark.cc may include beyond its layer's row.
TEST_EXTRA = ["compiler/codegen/cpu/clang*"]

# Headers from outside that only some layers may include; any other is open to
# all. The tests layer may include every one.
EXTERNAL = {
    "clang/": ["compiler/codegen/cpu/clang*"],
    "llvm/": ["compiler/codegen/cpu/clang*"],
    "lld/": ["compiler/codegen/cpu/clang*"],
    "grpcpp/": ["proto", "server", "server/tuner", "clients/cpp", "clients/bench"],
    "httplib.h": ["server", "clients/bench"],
    "sqlite3.h": ["compiler/cache", "server", "clients/bench"],
    "CLI/": ["server", "server/tuner", "clients/cpp", "clients/bench"],
}
