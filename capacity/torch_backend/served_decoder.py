"""A decoder with random weights that serves sequences of unequal length, iteration by iteration.

Iterations of decodes alone are replayed from recorded graphs, one for each of ``BUCKETS``. Of those
that carry prompts all but attention is recorded, layer by layer, for token counts in steps of
``TOKEN_STEP``; attention, whose shapes differ each time, is launched between the pieces. Sequences
lie contiguously in one cache, as their owner says; tokens stay on the GPU, and each iteration hands
the new ones to the host before it counts as done, as a server that streams them must.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from capacity.bench.decoder_shapes import DecoderShape
from capacity.torch_backend import paged_kernels, triton_kernels

BUCKETS: Final = (
    1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224,
    256,
)  # fmt: skip
TOKEN_STEP: Final = 64
MOST_TOKENS: Final = 2048 + 256
"""Of one iteration."""

LONGEST_PROMPT: Final = 16384
PROGRAMS: Final = 528
"""Decode attention aims at four programs a multiprocessor of an H100 or H200."""

LEAST_SPLITS, MOST_SPLITS = 4, 64
KEY_BLOCKS: Final = ((64, 4, 2), (64, 4, 3), (128, 4, 2), (128, 8, 2), (32, 4, 3))
"""Keys a block, warps and stages of decode attention; the first is the untuned choice."""


class Decode(NamedTuple):
    """One more token of a sequence: its first place, and the places in use with the new token."""

    start: int
    length: int


class PromptPart(NamedTuple):
    """Tokens ``filled`` to ``filled + tokens`` of a prompt that begins at place ``start``."""

    start: int
    filled: int
    tokens: int


class ServedDecoder:
    """Weights, cache and recorded iterations.

    Args:
        shape: Of the model.
        places: Tokens that the cache holds; the last one is kept for padding.
        dtype: Of weights and cache.
    """

    def __init__(self, shape: DecoderShape, places: int, device: torch.device, dtype: Any) -> None:
        self.shape = shape
        self.places = places
        self._device, self._dtype = device, dtype
        width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
        sizes = (
            (width, shape.hidden),
            (shape.hidden, shape.heads * shape.head_dim),
            (2 * shape.intermediate, shape.hidden),
            (shape.hidden, shape.intermediate),
        )
        self.weights = [tuple(self._weight(size) for size in sizes) for _ in range(shape.layers)]
        self.embedding = self._normal((shape.vocabulary, shape.hidden))
        self.output = self._weight((shape.vocabulary, shape.hidden))
        self._norm = torch.ones(shape.hidden, dtype=dtype, device=device)
        exponent = torch.arange(0, shape.head_dim, 2, device=device) / shape.head_dim
        self.angles = 500000.0 ** (-exponent.float())
        cache = (shape.layers, places, shape.kv_heads, shape.head_dim)
        self._k = self._normal(cache)  # never zeros: those draw less
        self._v = self._normal(cache)
        self.prompt_ids = torch.randint(0, shape.vocabulary, (LONGEST_PROMPT,), device=device)
        self.next_ids = torch.zeros(places, dtype=torch.int64, device=device)
        self._x = self._empty((MOST_TOKENS, shape.hidden))
        self._residual, self._normed = torch.empty_like(self._x), torch.empty_like(self._x)
        self._qkv = self._empty((MOST_TOKENS, width))
        self._q = self._empty((MOST_TOKENS, shape.heads, shape.head_dim))
        self._attended = self._empty((MOST_TOKENS, shape.heads, shape.head_dim))
        self._gate_up = self._empty((MOST_TOKENS, 2 * shape.intermediate))
        self._gated = self._empty((MOST_TOKENS, shape.intermediate))
        self._key_block = KEY_BLOCKS[0]
        self._scratch: dict[int, Any] = {}
        self._graphs: dict[int, tuple[Any, Any, Any, Any]] = {}
        self.logits: Any = None
        self._prompt_attention = flash if device.type == "cuda" else masked
        self._pieces: dict[int, list[Any]] = {}
        on_host = {"dtype": torch.int32, "pin_memory": device.type == "cuda"}
        self._host = torch.zeros(8 * MOST_TOKENS, **on_host)
        self._positions = torch.zeros(MOST_TOKENS, dtype=torch.int32, device=device)
        self._places = torch.full_like(self._positions, places - 1)

    def run(self, decodes: Sequence[Decode], parts: Sequence[PromptPart]) -> list[int]:
        """One iteration; it has ended when this returns.

        Returns:
            The new token of each decode, then of each part.
        """
        if not parts and self._graphs:
            return self._replay(decodes)
        return self._launch(decodes, parts)

    def record(self, longest_batch: int) -> None:
        """Record iterations of decodes alone up to a batch."""
        pool = None
        for bucket in BUCKETS:
            if bucket > longest_batch:
                break
            meta = torch.ones((2, bucket), dtype=torch.int32, device=self._device)
            meta[0] = self.places - 1
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._decode_pass(meta)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                new = self._decode_pass(meta)
            pool = graph.pool()
            self._graphs[bucket] = (graph, meta, new, self.logits)

    def record_pieces(self, most_tokens: int) -> None:
        """Record all but attention of iterations with prompts, up to so many tokens."""
        pool = None
        for tokens in range(TOKEN_STEP, most_tokens + 1, TOKEN_STEP):
            pieces = []
            for layer in range(self.shape.layers + 1):
                self._piece(layer, tokens)
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
                    self._piece(layer, tokens)
                pool = graph.pool()
                pieces.append(graph)
            self._pieces[tokens] = pieces

    def tune(self, batch: int, length: int, seconds: Callable[[Callable[[], None]], float]) -> str:
        """Take the key block that is fastest for a typical batch; before ``record``."""
        room = max(1, (self.places - length) // max(1, batch))
        starts = torch.arange(batch, dtype=torch.int32, device=self._device) * min(room, length)
        lengths = torch.full_like(starts, length)
        found = []
        for block in KEY_BLOCKS:
            self._key_block = block

            def attend() -> None:
                self._attend_decodes(0, starts, lengths)

            try:
                found.append((seconds(attend), block))
            except RuntimeError:
                continue  # more shared memory than the GPU has
        self._key_block = min(found)[1]
        return f"{self._key_block} of {sorted(found)}"

    # -- iterations --------------------------------------------------------------------------------

    def _replay(self, decodes: Sequence[Decode]) -> list[int]:
        n = len(decodes)
        bucket = next(size for size in BUCKETS if size >= n)
        graph, meta, new, self.logits = self._graphs[bucket]
        rows = self._host[: 2 * bucket].view(2, bucket)
        host = rows.numpy()
        host[0], host[1] = self.places - 1, 1
        host[:, :n] = np.array(decodes, dtype=np.int32).T
        meta.copy_(rows, non_blocking=True)
        graph.replay()
        tokens: list[int] = new[:n].cpu().tolist()
        return tokens

    def _launch(self, decodes: Sequence[Decode], parts: Sequence[PromptPart]) -> list[int]:
        n, tokens = len(decodes), len(decodes) + sum(part[2] for part in parts)
        padded = -(-tokens // TOKEN_STEP) * TOKEN_STEP
        padded = padded if padded in self._pieces else tokens
        lists = n + len(parts)
        told = self._host[: 2 * padded + 4 * lists + 4 * len(parts)]
        host = told.numpy()
        positions, places = host[:padded], host[padded : 2 * padded]
        # Four short lists: starts, lengths, rows of the new tokens, first places; then the edges.
        short = host[2 * padded : 2 * padded + 4 * lists].reshape(4, lists)
        edges = host[2 * padded + 4 * lists :].reshape(-1, 4)
        short[:2, :n] = np.array(decodes, dtype=np.int32).reshape(-1, 2).T
        positions[:n] = short[1, :n] - 1
        places[:n] = short[0, :n] + positions[:n]
        short[2, :n], short[3, :n] = np.arange(n), short[0, :n]
        positions[tokens:], places[tokens:] = 0, self.places - 1
        row, chunks = n, []
        for index, (start, filled, count) in enumerate(parts):
            positions[row : row + count] = np.arange(filled, filled + count)
            places[row : row + count] = start + positions[row : row + count]
            edges[index] = 0, count, 0, filled + count
            row += count
            short[2, n + index], short[3, n + index] = row - 1, start
            chunks.append((row - count, start, filled, count))
        meta = told.to(self._device, non_blocking=True)
        self._positions[:padded] = meta[:padded]
        self._places[:padded] = meta[padded : 2 * padded]
        there = meta[2 * padded : 2 * padded + 4 * lists].view(4, lists)
        at = meta[2 * padded + 4 * lists :].view(-1, 4)
        ids = self.prompt_ids[self._positions[:padded]]
        if n:
            ids[:n] = self.next_ids[there[0, :n]]
        self._x[:padded] = functional.embedding(ids, self.embedding)
        around = [
            (*chunk, (edge[:2], edge[2:], chunk[3], chunk[2] + chunk[3]))
            for chunk, edge in zip(chunks, at, strict=True)
        ]
        self._layers(padded, (there[0, :n], there[1, :n]), around)
        new = self._tokens(self._normed[there[2]])
        self.next_ids[there[3]] = new
        tokens_made: list[int] = new.cpu().tolist()
        return tokens_made

    def _decode_pass(self, meta: Any) -> Any:
        """Tokens of one decode a column of ``meta`` (starts; lengths)."""
        starts, lengths = meta[0], meta[1]
        n = meta.shape[1]
        self._positions[:n] = lengths - 1
        self._places[:n] = starts + lengths - 1
        self._x[:n] = functional.embedding(self.next_ids[starts], self.embedding)
        self._layers(n, (starts, lengths), ())
        new = self._tokens(self._normed[:n])
        self.next_ids[starts] = new
        return new

    def _layers(self, rows: int, decodes: tuple[Any, Any], chunks: Sequence[Any]) -> None:
        """All layers and the last norm, over the embedded tokens: decodes first, then chunks."""
        pieces = self._pieces.get(rows) if chunks else None
        for layer in range(self.shape.layers + 1):
            if pieces is None:
                self._piece(layer, rows)
            else:
                pieces[layer].replay()
            if layer < self.shape.layers:
                self._attend(layer, decodes, chunks)

    def _piece(self, layer: int, rows: int) -> None:
        """From the attention of the layer before up to that of this one."""
        out, residual, normed = self._x[:rows], self._residual[:rows], self._normed[:rows]
        if layer == 0:
            residual.zero_()
        else:
            _, out_w, up_w, down_w = self.weights[layer - 1]
            torch.mm(self._attended[:rows].view(rows, -1), out_w.T, out=out)
            triton_kernels.add_norm(out, residual, self._norm, normed)
            torch.mm(normed, up_w.T, out=self._gate_up[:rows])
            triton_kernels.gate(self._gate_up[:rows], self._gated[:rows])
            torch.mm(self._gated[:rows], down_w.T, out=out)
        triton_kernels.add_norm(out, residual, self._norm, normed)
        if layer < self.shape.layers:
            torch.mm(normed, self.weights[layer][0].T, out=self._qkv[:rows])
            paged_kernels.rotate_and_place(
                self._qkv[:rows], self.angles, self._positions, self._places, self._q[:rows],
                (self._k[layer], self._v[layer]),
            )  # fmt: skip

    def _attend(self, layer: int, decodes: tuple[Any, Any], chunks: Sequence[Any]) -> None:
        if decodes[0].shape[0]:
            self._attend_decodes(layer, *decodes)
        for row, start, filled, count, edges in chunks:
            keys, rows = slice(start, start + filled + count), slice(row, row + count)
            self._attended[rows] = self._prompt_attention(
                self._q[rows], self._k[layer][keys], self._v[layer][keys], edges
            )

    def _attend_decodes(self, layer: int, starts: Any, lengths: Any) -> None:
        batch = starts.shape[0]
        pairs = batch * self.shape.kv_heads
        splits = max(LEAST_SPLITS, min(MOST_SPLITS, -(-PROGRAMS // pairs)))
        if batch not in self._scratch:
            size = (batch, self.shape.heads, self.shape.head_dim)
            self._scratch[batch] = paged_kernels.decode_scratch(*size, splits, self._device)
        paged_kernels.decode(
            self._q[:batch], (self._k[layer], self._v[layer]), starts, lengths,
            self._scratch[batch], self._attended[:batch], (splits, *self._key_block),
        )  # fmt: skip

    def _tokens(self, normed: Any) -> Any:
        self.logits = torch.mm(normed, self.output.T)
        return torch.argmax(self.logits, dim=1)

    def _weight(self, size: tuple[int, int]) -> Any:
        return self._normal(size).mul_(size[1] ** -0.5)

    def _normal(self, size: tuple[int, ...]) -> Any:
        return torch.randn(size, dtype=self._dtype, device=self._device)

    def _empty(self, size: tuple[int, ...]) -> Any:
        return torch.empty(size, dtype=self._dtype, device=self._device)


def flash(q: Any, k: Any, v: Any, edges: tuple[Any, Any, int, int]) -> Any:
    """The last queries (t, h, d) of a prompt over all of its keys so far (s, kv, d)."""
    cu_q, cu_k, most_q, most_k = edges
    flash_attention = torch.ops.aten._flash_attention_forward
    return flash_attention(q, k, v, cu_q, cu_k, most_q, most_k, 0.0, True, False)[0]


def masked(q: Any, k: Any, v: Any, _: tuple[Any, Any, int, int]) -> Any:
    """The same with a mask, for CPUs and to check by."""
    queries, keys = q.shape[0], k.shape[0]
    seen = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
    out = functional.scaled_dot_product_attention(
        q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None], attn_mask=seen,
        enable_gqa=True,
    )  # fmt: skip
    return out[0].transpose(0, 1)
