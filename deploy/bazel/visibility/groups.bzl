"""Turns the table of layers.bzl into package groups."""

load(":layers.bzl", "LAYERS", "TEST_EXTRA")

def group_name(layer):
    """`compiler/ir` is `ir`, `server/tuner` is `tuner`, `.../clang*` is `clang`."""
    return layer.split("/")[-1].replace("*", "")

def layer_groups():
    """One package group per layer: the packages that may depend on it."""
    for layer in LAYERS:
        packages = [] if layer.endswith("*") else ["//%s/..." % layer]
        for user, allowed in LAYERS.items():
            if layer not in allowed:
                continue
            if user.endswith("*"):
                # A file prefix lives in the package of its folder.
                packages.append("//" + user.rpartition("/")[0] + "/...")
            else:
                packages.append("//%s/..." % user)
        if layer in TEST_EXTRA:
            packages.append("//compiler/...")
        native.package_group(
            name = "to_" + group_name(layer),
            packages = packages,
        )
