"""Kernels as values: what each one computes and the least it must move.

The benchmark measures these, the capacity model predicts them, and a workload is a mix of them.
Operation and byte counts are the algorithm's own: each input read once, each output written once,
so that ``flops / seconds`` and ``bytes_moved / seconds`` can never honestly pass the roofs.

Kernel
├── Gemm            y = x W^T, the linear layer                             arithmetic
├── Attention       softmax(Q K^T) V, prefill or decode, four masks
├── MemoryStream    copy, triad or read: bandwidth                          passes
├── Elementwise     what a decoder does between its products: norm, rotation, gate
├── Idle            nothing runs; with and without a context                between
├── LaunchChain     n empty kernels, eager or replayed as one graph
├── Collective      all-reduce and friends over the GPUs of one host
└── DecoderStep     one whole forward pass of a decoder stack, made of the ones above
"""

from capacity.kernels.arithmetic import Attention, Gemm
from capacity.kernels.between import Collective, Idle, LaunchChain
from capacity.kernels.decoder_step import DecoderStep
from capacity.kernels.fields import (
    FORMAT_BYTES,
    OUTPUT_BYTES,
    CollectiveOp,
    ContextState,
    ElementwiseOp,
    LaunchMode,
    Mask,
    NumberFormat,
    Phase,
    StreamPattern,
)
from capacity.kernels.passes import Elementwise, MemoryStream
from capacity.kernels.shapes import Kernel, kernel_from_shape, kernel_shape

__all__ = [
    "FORMAT_BYTES",
    "OUTPUT_BYTES",
    "Attention",
    "Collective",
    "CollectiveOp",
    "ContextState",
    "DecoderStep",
    "Elementwise",
    "ElementwiseOp",
    "Gemm",
    "Idle",
    "Kernel",
    "LaunchChain",
    "LaunchMode",
    "Mask",
    "MemoryStream",
    "NumberFormat",
    "Phase",
    "StreamPattern",
    "kernel_from_shape",
    "kernel_shape",
]
