"""Convolutions, pools and other windows; Resize and sampling."""

from __future__ import annotations

import math

import numpy as np
from draw import Draw, Elem, Unfit


def _spread(kernel: list[int], dilations: list[int]) -> list[int]:
    return [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]


def _window(d: Draw, rank: int, dilated: bool = True, ceil: bool = False, pad_less: bool = False
            ) -> tuple[list[int], list[int]]:
    """Attributes of a window and image sizes into which it fits; kernel and image."""
    kernel = [d.whole(1, 4 if rank < 3 else 2) for _ in range(rank)]
    dilations = [d.whole(1, 3) if dilated and d.coin(0.4) else 1 for _ in range(rank)]
    strides = [d.whole(1, 3) for _ in range(rank)]
    spread = _spread(kernel, dilations)
    auto = str(d.choose(["NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    pads = [0] * (2 * rank)
    if auto == "NOTSET" and d.coin(0.7):
        pads = [d.whole(0, max(0, (kernel[i % rank] if pad_less else spread[i % rank]) - 1))
                for i in range(2 * rank)]
        d.attribute("pads", pads)
    image = [max(1, s - pads[i] - pads[i + rank]) + d.whole(0, 6 if rank < 3 else 2)
             for i, s in enumerate(spread)]
    d.attribute("auto_pad", auto, 1 if auto != "NOTSET" else 0.3)
    if any(x != 1 for x in dilations):
        d.attribute("dilations", dilations)
    d.attribute("strides", strides, 0.8)
    if ceil and d.opset >= 10:
        d.attribute("ceil_mode", d.whole(0, 1), 0.6)
    return kernel, image


def conv(d: Draw) -> None:
    """Groups, depthwise, one to three axes."""
    rank = d.whole(1, 3)
    kernel, image = _window(d, rank)
    group = int(d.choose([1, 1, 2, 3]))
    inner = 1 if d.coin(0.3) else d.whole(1, 3)
    channels, maps = group * inner, group * d.whole(1, 3)
    elem = d.elem("X")
    d.operand(d.array(elem, [d.whole(1, 2), channels, *image]), elem, known=0)
    d.operand(d.array(elem, [maps, inner, *kernel]), elem, known=0.7)
    if d.coin():
        d.operand(d.array(elem, [maps]), elem, known=0.7)
    d.attribute("group", group, 1 if group > 1 else 0.3)
    d.attribute("kernel_shape", kernel, 0.6)


def conv_transpose(d: Draw) -> None:
    """Padding of the output, or its shape."""
    rank = d.whole(1, 2)
    group = int(d.choose([1, 1, 2]))
    kernel = [d.whole(1, 4) for _ in range(rank)]
    strides = [d.whole(1, 3) for _ in range(rank)]
    dilations = [d.whole(1, 2) if d.coin(0.3) else 1 for _ in range(rank)]
    image = [d.whole(2, 5) for _ in range(rank)]
    elem = d.elem("X")
    inner, maps = d.whole(1, 3), d.whole(1, 3)
    d.operand(d.array(elem, [d.whole(1, 2), group * inner, *image]), elem, known=0)
    d.operand(d.array(elem, [group * inner, maps, *kernel]), elem, known=0.7)
    if d.coin():
        d.operand(d.array(elem, [group * maps]), elem)
    d.attribute("strides", strides)
    d.attribute("dilations", dilations, 1 if max(dilations) > 1 else 0.3)
    d.attribute("group", group, 1 if group > 1 else 0.3)
    d.attribute("kernel_shape", kernel, 0.6)
    spread = _spread(kernel, dilations)
    extra = [d.whole(0, s - 1) if d.coin(0.4) else 0 for s in strides]
    full = [s * (n - 1) + k + e
            for s, n, k, e in zip(strides, image, spread, extra, strict=True)]
    way = d.choose(["pads", "auto", "shape", "none"])
    if any(extra):
        d.attribute("output_padding", extra)
    if way == "pads":
        pads = [d.whole(0, max(0, (full[i % rank] - 1) // 3)) for i in range(2 * rank)]
        d.attribute("pads", pads)
    elif way == "auto":
        d.attribute("auto_pad", d.choose(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    elif way == "shape":
        d.attribute("output_shape", [max(1, f - d.whole(0, 2)) for f in full])
        d.attribute("auto_pad", d.choose(["SAME_UPPER", "SAME_LOWER"]), 0.5)


def pool(d: Draw) -> None:
    """Average, Max (with positions), Lp."""
    rank = d.whole(1, 3)
    dilated = {"MaxPool": d.opset >= 10, "AveragePool": d.opset >= 19,
               "LpPool": d.opset >= 18}[d.op]
    ceil = d.op != "LpPool" or d.opset >= 18
    kernel, image = _window(d, rank, dilated, ceil, pad_less=True)
    elem = d.elem("X")
    shape = [d.whole(1, 2), d.whole(1, 3), *image]
    d.operand(d.array(elem, shape), elem, known=0)
    d.attribute("kernel_shape", kernel)
    if d.op == "AveragePool":
        d.attribute("count_include_pad", d.whole(0, 1), 0.6)
    if d.op == "LpPool":
        d.attribute("p", d.whole(1, 3), 0.7)
    if d.op == "MaxPool" and d.opset >= 8:
        d.results = d.whole(1, 2)
        d.attribute("storage_order", d.whole(0, 1), 0.3)


def global_pool(d: Draw) -> None:
    """Over all spatial axes."""
    elem = d.elem("X")
    d.operand(d.array(elem, d.shape(3, 5, empty=False)), elem)
    if d.op == "GlobalLpPool":
        d.attribute("p", d.whole(1, 3), 0.7)


def max_unpool(d: Draw) -> None:
    """Positions as MaxPool gives them."""
    kernel, stride = [2, 2], [2, 2]
    n, c, h, w = d.whole(1, 2), d.whole(1, 2), d.whole(1, 3), d.whole(1, 3)
    elem = d.elem("X")
    d.operand(d.array(elem, [n, c, h, w]), elem)
    places = np.zeros([n, c, h, w], np.int64)
    for i in np.ndindex(n, c, h, w):
        row, column = 2 * i[2] + d.whole(0, 1), 2 * i[3] + d.whole(0, 1)
        places[i] = ((i[0] * c + i[1]) * 2 * h + row) * 2 * w + column
    d.operand(places, Elem.INT64)
    d.attribute("kernel_shape", kernel)
    d.attribute("strides", stride)


def roi_align(d: Draw) -> None:
    """Both modes, both coordinates."""
    elem = d.elem("T1")
    h, w = d.whole(3, 8), d.whole(3, 8)
    count, batch = d.whole(1, 3), d.whole(1, 2)
    d.operand(d.array(elem, [batch, d.whole(1, 2), h, w]), elem)
    begin = d.random.uniform(0, 3, (count, 2))
    rois = np.concatenate([begin, begin + d.random.uniform(0.5, 5, (count, 2))], 1)
    d.operand(rois.astype(d.array(elem, [0]).dtype))  # how many samples there are follows from it
    d.operand(d.random.integers(0, batch, count))
    d.attribute("output_height", d.whole(1, 3), 0.8)
    d.attribute("output_width", d.whole(1, 3), 0.8)
    d.attribute("sampling_ratio", d.whole(0, 3), 0.8)
    d.attribute("spatial_scale", d.real(0.3, 1.2), 0.8)
    d.attribute("mode", d.choose(["avg", "max"]), 0.7)
    if d.opset >= 16:
        d.attribute("coordinate_transformation_mode", d.choose(["half_pixel", "output_half_pixel"]),
                    0.7)


def max_roi_pool(d: Draw) -> None:
    """Cells of whole pixels."""
    elem = d.elem("X")
    batch, h, w = d.whole(1, 2), d.whole(3, 8), d.whole(3, 8)
    d.operand(d.array(elem, [batch, d.whole(1, 2), h, w]), elem)
    rois = [[d.whole(0, batch - 1), x := d.whole(0, w - 1), y := d.whole(0, h - 1),
             d.whole(x, w - 1), d.whole(y, h - 1)] for _ in range(d.whole(1, 3))]
    d.operand(np.asarray(rois).astype(d.array(elem, [0]).dtype), elem)
    d.attribute("pooled_shape", [d.whole(1, 3), d.whole(1, 3)])
    d.attribute("spatial_scale", 1.0, 0.5)


def grid_sample(d: Draw) -> None:
    """All modes and paddings."""
    three = d.opset >= 20 and d.coin(0.3)
    space = [d.whole(2, 5) for _ in range(3 if three else 2)]
    out = [d.whole(1, 4) for _ in space]
    elem, grid = d.elem("T1"), d.elem("T2")
    n = d.whole(1, 2)
    d.operand(d.array(elem, [n, d.whole(1, 2), *space]), elem)
    d.operand(d.array(grid, [n, *out, len(space)], -1.3, 1.3), grid)
    modes = (["linear", "nearest", *([] if three else ["cubic"])] if d.opset >= 20
             else ["bilinear", "nearest", "bicubic"])
    d.attribute("mode", d.choose(modes), 0.9)
    d.attribute("padding_mode", d.choose(["zeros", "border", "reflection"]), 0.8)
    d.attribute("align_corners", d.whole(0, 1), 0.7)


def affine_grid(d: Draw) -> None:
    """Draws an AffineGrid over two or three axes."""
    elem = d.elem("T1")
    n, rank = d.whole(1, 2), d.whole(2, 3)
    d.operand(d.array(elem, [n, rank, rank + 1]), elem)
    d.operand([n, d.whole(1, 3), *(d.whole(2, 4) for _ in range(rank))], known=0.9)
    d.attribute("align_corners", d.whole(0, 1), 0.7)


def deform_conv(d: Draw) -> None:
    """Offsets, a mask, groups of both kinds."""
    elem = d.elem("X")
    kernel, image = _window_of_two(d)
    group, offset_group = d.whole(1, 2), d.whole(1, 2)
    channels, maps = 2, 2
    out = d.attributes.pop("out")
    n = d.whole(1, 2)
    taps = offset_group * math.prod(kernel)
    d.operand(d.array(elem, [n, channels, *image]), elem)
    d.operand(d.array(elem, [maps, channels // group, *kernel]), elem)
    d.operand(d.array(elem, [n, 2 * taps, *out], -2, 2), elem)
    bias, mask = d.coin(), d.coin()
    if bias:
        d.operand(d.array(elem, [maps]), elem)
    elif mask:
        d.omit()
    if mask:
        d.operand(d.array(elem, [n, taps, *out], 0, 1), elem)
    d.attribute("group", group)
    d.attribute("offset_group", offset_group)
    d.attribute("kernel_shape", kernel, 0.6)


def _window_of_two(d: Draw) -> tuple[list[int], list[int]]:
    kernel = [d.whole(1, 3), d.whole(1, 3)]
    strides, dilations = [d.whole(1, 2), d.whole(1, 2)], [d.whole(1, 2), d.whole(1, 2)]
    pads = [d.whole(0, 1) for _ in range(4)]
    image = [k * e + d.whole(0, 2) for k, e in zip(kernel, dilations, strict=True)]
    spread = _spread(kernel, dilations)
    d.attributes |= {"strides": strides, "dilations": dilations, "pads": pads}
    d.attributes["out"] = [(image[i] + pads[i] + pads[i + 2] - spread[i]) // strides[i] + 1
                           for i in range(2)]
    return kernel, image


def resize(d: Draw) -> None:
    """Modes, coordinates, roundings; scales or sizes; some axes only since 18."""
    elem = d.elem("X")
    modes = ["nearest", "linear", *(["cubic"] if d.opset >= 11 else [])]
    mode = str(d.choose(modes))
    space = 2 if mode == "cubic" else d.whole(1, 3 if mode == "nearest" else 2)
    if mode == "cubic":
        shape = [1, d.whole(1, 2), d.whole(2, 7), d.whole(2, 7)]
    else:
        shape = [d.whole(1, 2), d.whole(1, 2), *(d.whole(1, 6) for _ in range(space))]
    d.attribute("mode", mode)
    d.operand(d.array(elem, shape), elem, known=0.1)
    sizes = [max(1, int(d.choose([n, 2 * n, d.whole(1, 9)]))) for n in shape[2:]]
    if d.opset < 11:
        scales = [1.0, 1.0, *(d.choose([1.0, 2.0, 0.5, 1.5]) for _ in range(space))]
        if any(math.floor(n * s) < 1 for n, s in zip(shape, scales, strict=True)):
            raise Unfit
        d.operand(np.asarray(scales, np.float32), known=0.9)
        return
    coordinates = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric",
                   *(["half_pixel_symmetric"] if d.opset >= 19 else [])]
    roi = d.coin(0.15) and d.opset >= 11
    coordinate = "tf_crop_and_resize" if roi else str(d.choose(coordinates))
    d.attribute("coordinate_transformation_mode", coordinate, 1 if roi else 0.8)
    if mode == "nearest":
        d.attribute("nearest_mode", d.choose(["round_prefer_floor", "round_prefer_ceil", "floor",
                                              "ceil"]), 0.8)
    if mode == "cubic":
        d.attribute("cubic_coeff_a", d.real(-0.9, -0.4), 0.5)
        d.attribute("exclude_outside", d.whole(0, 1), 0.5)
    if roi:
        d.attribute("extrapolation_value", d.real(-2, 2), 0.5)
    if d.opset >= 18 and mode != "nearest" and not roi:
        d.attribute("antialias", d.whole(0, 1), 0.4)
    axes = list(range(2, len(shape))) if d.opset >= 18 and d.coin(0.4) else None
    if axes:
        d.attribute("axes", axes)
    full = sizes if axes else [*shape[:2], *sizes]
    rank = len(full)
    nothing = np.zeros(0, np.float32)
    if roi:
        begin = [0.0] * (rank - space) + [d.real(-0.1, 0.4) for _ in range(space)]
        end = [1.0] * (rank - space) + [d.real(0.6, 1.2) for _ in range(space)]
        d.operand(np.asarray(begin + end, np.float32), known=1)
    elif d.opset < 13:
        d.operand(nothing, known=1)
    else:
        d.omit()
    if d.coin():
        scales = [1.0] * (rank - space) + [d.choose([1.0, 2.0, 0.5, 1.5, 0.7, 2.6])
                                           for _ in range(space)]
        if any(math.floor(n * s) < 1 for n, s in
               zip(shape[-space:], scales[-space:], strict=True)):
            raise Unfit
        d.operand(np.asarray(scales, np.float32), known=0.9)
    else:
        if d.opset < 13:
            d.operand(nothing, known=1)
        else:
            d.omit()
        d.operand(full, known=0.8)
        if d.opset >= 18 and axes:
            d.attribute("keep_aspect_ratio_policy",
                        d.choose(["stretch", "not_larger", "not_smaller"]), 0.5)


def upsample(d: Draw) -> None:
    """Scales as an attribute until 9."""
    elem = d.elem("X") if d.opset >= 9 else d.elem("X")
    shape = [d.whole(1, 2), d.whole(1, 2), d.whole(1, 5), d.whole(1, 5)]
    d.operand(d.array(elem, shape), elem, known=0.1)
    d.attribute("mode", d.choose(["nearest", "linear"]), 0.8)
    scales = [1.0, 1.0, d.choose([1.0, 2.0, 3.0, 1.5]), d.choose([1.0, 2.0, 1.5])]
    if d.opset < 9:
        d.attribute("scales", scales)
    else:
        d.operand(np.asarray(scales, np.float32), known=0.9)


FAMILY = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), global_pool),
    "AffineGrid": affine_grid, "Conv": conv, "ConvTranspose": conv_transpose,
    "DeformConv": deform_conv, "GridSample": grid_sample, "MaxRoiPool": max_roi_pool,
    "MaxUnpool": max_unpool, "Resize": resize, "RoiAlign": roi_align, "Upsample": upsample,
}
