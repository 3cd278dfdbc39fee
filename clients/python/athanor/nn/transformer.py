"""Transformer encoders with weights, in torch's layouts."""

from __future__ import annotations

import copy
from collections.abc import Callable

from athanor.elementwise import gelu, relu
from athanor.errors import InvalidArgument
from athanor.nn.attention import MultiHeadAttention
from athanor.nn.containers import ModuleList
from athanor.nn.layers import Linear
from athanor.nn.module import Module
from athanor.nn.norms import LayerNorm
from athanor.value import Value

Activation = Callable[[Value], Value]


class TransformerEncoderLayer(Module):
    """Self-attention and two linear layers, each with a norm, as torch.nn.TransformerEncoderLayer.

    Parameters
    ----------
    d_model, nhead : int
        Features, which the heads divide: ``self_attn``, ``norm1``, ``norm2``.
    dim_feedforward : int
        Features between ``linear1`` and ``linear2``.
    dropout : float
        As torch takes it; it is for training alone.
    activation : str or function of a Value
        ``"relu"``, ``"gelu"``, or such as `athanor.silu`.
    layer_norm_eps : float
        Of the norms.
    batch_first : bool
        Whether the axes are ``[N, L, E]``; by default ``[L, N, E]``, as in torch.
    norm_first : bool
        Whether norms come before attention and linear layers; by default behind.
    bias : bool
        Whether there are biases.
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: str | Activation = "relu", layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True) -> None:
        named: dict[object, Activation] = {"relu": relu, "gelu": gelu}
        if isinstance(activation, str) and activation not in named:
            raise InvalidArgument(f'TransformerEncoderLayer: activation={activation!r} must be '
                                  '"relu", "gelu" or a function')
        self.activation = named[activation] if isinstance(activation, str) else activation
        self.norm_first = norm_first
        self.self_attn = MultiHeadAttention(d_model, nhead, bias=bias, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)

    def _fed(self, x: Value) -> Value:
        return self.linear2(self.activation(self.linear1(x)))

    def __call__(self, src: Value, src_mask: Value | None = None,
                 src_key_padding_mask: Value | None = None, is_causal: bool = False) -> Value:
        """Returns the shape of `src`.

        Parameters
        ----------
        src : Value
            ``[L, N, E]`` (``[N, L, E]`` with `batch_first`), or ``[L, E]``; floats of the weights'
            dtype.
        src_mask, src_key_padding_mask, is_causal
            As attn_mask, key_padding_mask and is_causal of `MultiHeadAttention`.
        """
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            src = src + self._attended(self.norm1(src), *masks)
            return src + self._fed(self.norm2(src))
        src = self.norm1(src + self._attended(src, *masks))
        return self.norm2(src + self._fed(src))

    def _attended(self, x: Value, mask: Value | None, padding: Value | None,
                  is_causal: bool) -> Value:
        return self.self_attn(x, attn_mask=mask, key_padding_mask=padding, is_causal=is_causal)


class TransformerEncoder(Module):
    """Layers one after another, as torch.nn.TransformerEncoder.

    Parameters
    ----------
    encoder_layer : TransformerEncoderLayer
        Copied for each layer: ``layers.0``, ``layers.1`` and so on.
    num_layers : int
        How many.
    norm : Module, optional
        Comes last.
    """

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int,
                 norm: Module | None = None) -> None:
        if num_layers < 1:
            raise InvalidArgument(f"TransformerEncoder: num_layers={num_layers} must be 1 or more")
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.norm = norm

    def __call__(self, src: Value, mask: Value | None = None,
                 src_key_padding_mask: Value | None = None, is_causal: bool = False) -> Value:
        """Returns the shape of `src`; arguments as of `TransformerEncoderLayer`."""
        for layer in self.layers:
            assert isinstance(layer, TransformerEncoderLayer)
            src = layer(src, mask, src_key_padding_mask, is_causal)
        result: Value = src if self.norm is None else self.norm(src)
        return result
