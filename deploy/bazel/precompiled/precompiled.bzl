"""precompiled_headers: headers of Debian's libraries, parsed once for all C++ targets."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

# Flags of tests.
TEST_COPTS = ["-O0"]

# Without time stamps, and read from standard input in the root folder: the file depends neither
# on when nor on where it was made, so that the object cache serves every checkout.
_COMMAND = """
out=$PWD/$1 includes=$2
shift 2
cd / && exec "$@" -c - -o "$out" <<<"$includes"
"""

def _precompiled_headers_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

    # Clang refuses a file made with other flags than those of the compilation that reads it.
    flags = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            use_pic = True,
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts +
                                 ctx.attr.copts,
        ),
    )
    compiler = cc_common.get_tool_for_action(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
    )
    includes = "\n".join(["#include <%s>" % header for header in ctx.attr.headers])
    out = ctx.actions.declare_file(ctx.label.name + ".pch")
    ctx.actions.run_shell(
        outputs = [out],
        inputs = depset(ctx.files.inputs, transitive = [toolchain.all_files]),
        command = _COMMAND,
        arguments = [out.path, includes, compiler] + flags + [
            "-xc++-header",
            "-fpch-instantiate-templates",
            "-Xclang",
            "-fno-pch-timestamp",
        ],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling headers: %s" % ctx.label.name,
    )
    return [
        DefaultInfo(files = depset([out])),
        CcInfo(compilation_context = cc_common.create_compilation_context(
            headers = depset([out]),
        )),
    ]

precompiled_headers = rule(
    implementation = _precompiled_headers_impl,
    doc = """Makes <name>.pch. A target that depends on it may be compiled with -include-pch.""",
    attrs = {
        "headers": attr.string_list(doc = "as in #include <...>; only those of Debian's packages"),
        "copts": attr.string_list(doc = "those of the targets that read it"),
        "inputs": attr.label_list(
            allow_files = True,
            doc = "the headers and the compiler: when a package changes, all is compiled again",
        ),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
