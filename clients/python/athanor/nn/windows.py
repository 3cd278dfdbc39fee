"""Layers that slide over spatial axes or change their sizes: convolutions, pools, resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from athanor import reductions
from athanor.arithmetic import add
from athanor.core import fail
from athanor.errors import InvalidArgument
from athanor.expr import Expr, exact_div
from athanor.movement import permute, reshape
from athanor.nn.module import Module, uniform
from athanor.resize import interpolate
from athanor.value import Value
from athanor.windows import average_pool, conv, conv_transpose, max_pool

Sizes = int | Sequence[int]


def _per_axis(value: Sizes, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def _padding(name: str, padding: Sizes | str, kernel: Sequence[int], stride: Sizes,
             dilation: Sizes) -> list[tuple[int, int]]:
    """Returns the zeros before and behind each spatial axis."""
    if padding == "same":
        if any(step != 1 for step in _per_axis(stride, len(kernel))):
            raise InvalidArgument(f'{name}: padding="same" needs stride=1, not {stride!r}')
        # Of an odd number of zeros the greater part comes behind.
        reach = [step * (size - 1) for step, size in zip(_per_axis(dilation, len(kernel)), kernel,
                                                         strict=True)]
        return [(r // 2, r - r // 2) for r in reach]
    if isinstance(padding, str):
        if padding != "valid":
            raise InvalidArgument(f'{name}: padding={padding!r} must be sizes, "same" or "valid"')
        padding = 0
    return [(size, size) for size in _per_axis(padding, len(kernel))]


class _Convolution(Module):
    """Base of convolutions: weights, and a bias that is added per channel."""

    def __init__(self, in_channels: int, out_channels: int, kernel: tuple[int, ...], groups: int,
                 bias: bool, *, transposed: bool) -> None:
        name = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise InvalidArgument(f"{name}: groups={groups} must divide {in_channels} and "
                                  f"{out_channels} channels")
        self.groups = groups
        whole, part = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        fan_in = part // groups * math.prod(kernel)
        self.weight = uniform([whole, part // groups, *kernel], fan_in)
        self.bias = uniform([out_channels], fan_in) if bias else None

    def _biased(self, x: Value) -> Value:
        if self.bias is None:
            return x
        bias = self.bias.of(x)
        return add(x, reshape(bias, [bias._shape[0], *[Expr(1)] * (x.ndim - 2)]))


class Conv(_Convolution):
    """A convolution with a bias, as torch.nn.Conv1d, 2d and 3d, which have names here too.

    Parameters
    ----------
    in_channels, out_channels : int
        ``weight`` is ``[out_channels, in_channels // groups, *kernel_size]``.
    kernel_size : int or sequence of int
        An int is for 1, 2 or 3 spatial axes, as the name says; of `Conv` for 2. A sequence has one
        for each: ``Conv(4, 8, (3,))`` is a Conv1d of 3.
    stride, dilation : int or sequence of int
        Steps of the window, and steps between its elements.
    padding : int, sequence of int, "same" or "valid"
        Zeros on both sides of each spatial axis; ``"same"``, for a stride of 1, keeps its size;
        ``"valid"`` is 0.
    groups : int
        Groups of channels, each convolved on its own.
    bias : bool
        Whether there is one.
    """

    _rank = 2

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
                 padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1,
                 bias: bool = True) -> None:
        kernel = _per_axis(kernel_size, self._rank)
        self.stride, self.dilation = stride, dilation
        self.padding = _padding(type(self).__name__, padding, kernel, stride, dilation)
        super().__init__(in_channels, out_channels, kernel, groups, bias, transposed=False)

    def __call__(self, x: Value) -> Value:
        """``[N, in_channels, D1, ...]`` to ``[N, out_channels, O1, ...]``, in the weights'
        dtype."""
        return self._biased(conv(x, self.weight.of(x), strides=self.stride, padding=self.padding,
                                 dilations=self.dilation, groups=self.groups))


class Conv1d(Conv):
    """`Conv` over 1 spatial axis, as torch.nn.Conv1d."""

    _rank = 1


class Conv2d(Conv):
    """`Conv` over 2 spatial axes, as torch.nn.Conv2d."""


class Conv3d(Conv):
    """`Conv` over 3 spatial axes, as torch.nn.Conv3d."""

    _rank = 3


class ConvTranspose2d(_Convolution):
    """A transposed convolution with a bias, as torch.nn.ConvTranspose2d.

    Parameters
    ----------
    in_channels, out_channels : int
        ``weight`` is ``[in_channels, out_channels // groups, *kernel_size]``.
    kernel_size : int or sequence of int
        One for each spatial axis, or one for all.
    stride, dilation : int or sequence of int
        Steps between the places of two elements, and between those of two of the kernel's.
    padding, output_padding : int or sequence of int
        What is cut from both sides of each spatial axis of the result, and what it is longer
        behind.
    groups : int
        Groups of channels, each convolved on its own.
    bias : bool
        Whether there is one.
    """

    _rank = 2

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
                 padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, bias: bool = True,
                 dilation: Sizes = 1) -> None:
        self.stride, self.dilation = stride, dilation
        self.padding, self.output_padding = padding, output_padding
        super().__init__(in_channels, out_channels, _per_axis(kernel_size, self._rank), groups,
                         bias, transposed=True)

    def __call__(self, x: Value) -> Value:
        """``[N, in_channels, D1, ...]`` to ``[N, out_channels, O1, ...]``, in the weights'
        dtype."""
        return self._biased(conv_transpose(
            x, self.weight.of(x), strides=self.stride, padding=self.padding,
            output_padding=self.output_padding, dilations=self.dilation, groups=self.groups))


class ConvTranspose1d(ConvTranspose2d):
    """`ConvTranspose2d` over 1 spatial axis, as torch.nn.ConvTranspose1d."""

    _rank = 1


class ConvTranspose3d(ConvTranspose2d):
    """`ConvTranspose2d` over 3 spatial axes, as torch.nn.ConvTranspose3d."""

    _rank = 3


class MaxPool(Module):
    """The maximum of each window, as torch.nn.MaxPool1d, 2d and 3d, which have names here too.

    Parameters
    ----------
    kernel_size : int or sequence of int
        One for each spatial axis, or one for all.
    stride : int or sequence of int, optional
        Steps of the window; by default its sizes.
    padding : int or sequence of int
        On both sides of each spatial axis; never the maximum.
    dilation : int or sequence of int
        Steps between the elements of a window.
    """

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0,
                 dilation: Sizes = 1) -> None:
        self.kernel_size, self.stride = kernel_size, stride
        self.padding, self.dilation = padding, dilation

    def __call__(self, x: Value) -> Value:
        """``[N, C, D1, ...]`` to ``[N, C, O1, ...]``; floats, integers and bools."""
        return max_pool(x, self.kernel_size, strides=self.stride, padding=self.padding,
                        dilations=self.dilation)


MaxPool1d = MaxPool2d = MaxPool3d = MaxPool


class AvgPool(Module):
    """The mean of each window, as torch.nn.AvgPool1d, 2d and 3d, which have names here too.

    Parameters
    ----------
    kernel_size : int or sequence of int
        One for each spatial axis, or one for all.
    stride : int or sequence of int, optional
        Steps of the window; by default its sizes.
    padding : int or sequence of int
        Zeros on both sides of each spatial axis.
    count_include_pad : bool
        Whether these zeros count as elements.
    """

    def __init__(self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0, *,
                 count_include_pad: bool = True) -> None:
        self.kernel_size, self.stride = kernel_size, stride
        self.padding, self.count_include_pad = padding, count_include_pad

    def __call__(self, x: Value) -> Value:
        """``[N, C, D1, ...]`` to ``[N, C, O1, ...]``; floats."""
        return average_pool(x, self.kernel_size, strides=self.stride, padding=self.padding,
                            count_padding=self.count_include_pad)


AvgPool1d = AvgPool2d = AvgPool3d = AvgPool


class _AdaptivePool(Module):
    """Base of pools of windows that divide the input into so many parts.

    Parameters
    ----------
    output_size : int or sequence of int
        The result's spatial sizes, one for all or one for each; each must divide the input's.
    """

    def __init__(self, output_size: Sizes) -> None:
        self.output_size = output_size

    def _reduced(self, x: Value, axes: list[int]) -> Value:
        raise NotImplementedError

    def __call__(self, x: Value) -> Value:
        """``[N, C, D1, ...]`` to ``[N, C, *output_size]``."""
        name, rank = type(self).__name__, x.ndim - 2
        sizes = _per_axis(self.output_size, rank)
        if rank < 1 or len(sizes) != rank or any(size < 1 for size in sizes):
            raise fail(name, [x], f"output_size={self.output_size!r} must be an integer of 1 or "
                       "more, or one per spatial axis, of x with the axes [N, C, ...]")
        shape = list(x._shape[:2])
        for i, size in enumerate(sizes, start=2):
            part = exact_div(x._shape[i], Expr(size))
            if part is None:
                raise fail(name, [x], f"output_size {size} must divide axis {i} of size "
                           f"{x._shape[i]}")
            shape += [Expr(size), part]
        return self._reduced(reshape(x, shape), list(range(3, 3 + 2 * rank, 2)))


class AdaptiveAvgPool(_AdaptivePool):
    """The mean of each part, as torch.nn.AdaptiveAvgPool1d, 2d and 3d where the parts are equal;
    floats.

    Parameters
    ----------
    output_size : int or sequence of int
        The result's spatial sizes, one for all or one for each; each must divide the input's.
    """

    def _reduced(self, x: Value, axes: list[int]) -> Value:
        return reductions.mean(x, axes)


AdaptiveAvgPool1d = AdaptiveAvgPool2d = AdaptiveAvgPool3d = AdaptiveAvgPool


class AdaptiveMaxPool(_AdaptivePool):
    """The maximum of each part, as torch.nn.AdaptiveMaxPool1d, 2d and 3d where the parts are equal.

    Parameters
    ----------
    output_size : int or sequence of int
        The result's spatial sizes, one for all or one for each; each must divide the input's.
    """

    def _reduced(self, x: Value, axes: list[int]) -> Value:
        return reductions.max(x, axes)


AdaptiveMaxPool1d = AdaptiveMaxPool2d = AdaptiveMaxPool3d = AdaptiveMaxPool


class Upsample(Module):
    """`athanor.interpolate`, as torch.nn.Upsample.

    Parameters
    ----------
    size : int or sequence of int, optional
        The result's spatial sizes.
    scale_factor : float or sequence of float, optional
        Instead of `size`: what sizes are multiplied by.
    mode : str
        ``"nearest"``, ``"linear"``, ``"bilinear"`` or ``"trilinear"``.
    align_corners : bool
        Whether the first and last elements keep their places, in linear modes.
    """

    def __init__(self, size: Sizes | None = None,
                 scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
                 align_corners: bool | None = None) -> None:
        self.size, self.scale_factor = size, scale_factor
        self.mode, self.align_corners = mode, bool(align_corners)

    def __call__(self, x: Value) -> Value:
        """``[N, C, D1, ...]`` to ``[N, C, O1, ...]``; linear modes take floats."""
        return interpolate(x, self.size, self.scale_factor, self.mode,
                           align_corners=self.align_corners)


class PixelShuffle(Module):
    """Turns channels into a finer image: ``[N, C r^2, H, W]`` to ``[N, C, H r, W r]``, as
    torch.nn.PixelShuffle.

    Parameters
    ----------
    upscale_factor : int
        What heights and widths are multiplied by.
    """

    def __init__(self, upscale_factor: int) -> None:
        if upscale_factor < 1:
            raise InvalidArgument(f"PixelShuffle: upscale_factor={upscale_factor} must be 1 or "
                                  "more")
        self.upscale_factor = upscale_factor

    def __call__(self, x: Value) -> Value:
        """Any dtype."""
        r = self.upscale_factor
        channels = exact_div(x._shape[1], Expr(r * r)) if x.ndim == 4 else None
        if channels is None:
            raise fail("PixelShuffle", [x], f"x must have the axes [N, C, H, W] with C a multiple "
                       f"of {r * r}")
        n, _, h, w = x._shape
        parts = permute(reshape(x, [n, channels, Expr(r), Expr(r), h, w]), (0, 1, 4, 2, 5, 3))
        return reshape(parts, [n, channels, h * r, w * r])
