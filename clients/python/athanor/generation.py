"""Text generation as plain values: options of a request, answers, and the state of an engine.

    received(message).piece.text       # of a `GenerateResponse`

`athanor.Model.generate` explains the options.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypedDict

from athanor.protos import generate_pb2


class GenerateOptions(TypedDict, total=False):
    """Options that `Model.generate` and `Model.chat` share, explained there. What is absent or None
    is as the model's authors have it (`EngineStatus.sampling`)."""

    max_tokens: int | None
    min_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    seed: int | None
    stop: str | Sequence[str] | None
    stop_tokens: Sequence[int] | None
    ignore_eos: bool | None
    logprobs: int | None
    bias: Mapping[int, float] | None
    special_in_text: bool | None
    priority: int | None
    cache_salt: str | None


# A message of a chat: {"role": "user", "content": "..."}.
Messages = str | Sequence[Mapping[str, str]]


@dataclasses.dataclass(frozen=True)
class TokenLogprob:
    """A token with the natural logarithm of its probability, before any setting of the request.

    Attributes
    ----------
    token : int
    logprob : float
    text : bytes
        The token's bytes; they may be a part of a character.
    """

    token: int
    logprob: float
    text: bytes


@dataclasses.dataclass(frozen=True)
class Logprobs:
    """A generated token, and the likeliest ones in its place, descending."""

    chosen: TokenLogprob
    likeliest: tuple[TokenLogprob, ...]


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of an answer.

    Attributes
    ----------
    text : str
        Whole characters; may be empty while tokens came.
    tokens : tuple of int
    logprobs : tuple of Logprobs
        One per token if asked for, otherwise empty.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[Logprobs, ...]


@dataclasses.dataclass(frozen=True)
class Usage:
    """Counts of an answer, and what made it.

    Attributes
    ----------
    prompt_tokens, generated_tokens : int
    cached_tokens : int
        Tokens of the prompt that were not computed again.
    seed : int
        Repeats the answer when it is given with the same request.
    model_version, plan_id : str
        The version, and the plan of its last step.
    stop_token : int or None
        The token that ended it.
    stop_text : str or None
        The one of `stop` that ended it.
    preemptions : int
        Times that it gave its blocks of keys and values to another request and waited again.
    """

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    seed: int
    model_version: str
    plan_id: str
    stop_token: int | None
    stop_text: str | None
    preemptions: int


@dataclasses.dataclass(frozen=True)
class GenerateTimes:
    """Microseconds from the request's arrival at the server.

    Attributes
    ----------
    started_us : int
        Until the first step with it began.
    first_token_us, last_token_us : int
        Until the first and the last token were chosen.
    """

    started_us: int
    first_token_us: int
    last_token_us: int


@dataclasses.dataclass(frozen=True)
class GenerateResult:
    """A whole answer.

    Attributes
    ----------
    text, tokens, logprobs
        As in `Piece`.
    finish : {"stop", "length"}
        It ended with a stop token or text, or at `max_tokens` or the model's context.
    usage : Usage
    times : GenerateTimes
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[Logprobs, ...]
    finish: str
    usage: Usage
    times: GenerateTimes

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second after the first one; 0 for fewer than two tokens."""
        seconds = (self.times.last_token_us - self.times.first_token_us) / 1e6
        return (self.usage.generated_tokens - 1) / seconds if seconds > 0 else 0.0


@dataclasses.dataclass(frozen=True)
class Tokenized:
    """The tokens of a text: their ids, and the bytes of each."""

    ids: tuple[int, ...]
    texts: tuple[bytes, ...]


@dataclasses.dataclass(frozen=True)
class RenderedChat:
    """The prompt that a chat template made: its text, and the ids of its tokens."""

    text: str
    ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are chosen where a request is silent; None: nothing is said about it."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None


@dataclasses.dataclass(frozen=True)
class EngineStatus:
    """A model's engine as it is now.

    Attributes
    ----------
    model, version, family : str
        `family` is the kind of decoder: ``"llama"``.
    vocabulary : int
        Number of tokens that have a logit.
    max_model_len : int
        Most tokens of a prompt and its answer together.
    max_batched_tokens, max_sequences : int
        Most tokens and sequences of one step.
    end_tokens : tuple of int
        The model's own tokens that end an answer.
    sampling : Sampling
    has_tokenizer, has_chat : bool
        Whether it takes text, and chats.
    no_chat_reason : str
    running, waiting, paused : int
        Sequences; clients of paused ones do not read.
    blocks, free_blocks, kept_blocks, block_tokens : int
        Blocks of keys and values, those that no sequence has, those of these whose contents a
        prompt may find, and the positions of each.
    kv_bytes, token_kv_bytes : int
        Bytes of keys and values that are committed now, and bytes of one position.
    steps, prompt_tokens, generated_tokens : int
        Since the engine started.
    queried_tokens, cached_tokens : int
        Tokens of prompts that looked for computed beginnings, and those of them found; since the
        engine started.
    preemptions, recomputed_tokens : int
        Times that a sequence gave its blocks to another, and tokens computed again for it; since
        the engine started.
    plan_id : str
        The plan of the last step.
    """

    model: str
    version: str
    family: str
    vocabulary: int
    max_model_len: int
    max_batched_tokens: int
    max_sequences: int
    end_tokens: tuple[int, ...]
    sampling: Sampling
    has_tokenizer: bool
    has_chat: bool
    no_chat_reason: str
    running: int
    waiting: int
    paused: int
    blocks: int
    free_blocks: int
    kept_blocks: int
    block_tokens: int
    kv_bytes: int
    token_kv_bytes: int
    steps: int
    prompt_tokens: int
    generated_tokens: int
    queried_tokens: int
    cached_tokens: int
    preemptions: int
    recomputed_tokens: int
    plan_id: str


@dataclasses.dataclass(frozen=True)
class Received:
    """A message of an answer's stream; the last one has `end`."""

    piece: Piece
    end: tuple[str, Usage, GenerateTimes] | None


def _logprob(m: generate_pb2.TokenLogprob) -> TokenLogprob:
    return TokenLogprob(m.token, m.logprob, m.text)


def received(m: generate_pb2.GenerateResponse) -> Received:
    """The message as plain values."""
    piece = Piece(m.text, tuple(m.tokens),
                  tuple(Logprobs(_logprob(one.chosen), tuple(map(_logprob, one.likeliest)))
                        for one in m.logprobs))
    if m.finish == generate_pb2.FINISH_UNSPECIFIED:
        return Received(piece, None)
    finish = generate_pb2.FinishReason.Name(m.finish).removeprefix("FINISH_").lower()
    usage = Usage(m.usage.prompt_tokens, m.usage.cached_tokens, m.usage.generated_tokens,
                  m.usage.seed, m.usage.model_version, m.usage.plan_id,
                  m.usage.stop_token if m.usage.HasField("stop_token") else None,
                  m.usage.stop_text or None, m.usage.preemptions)
    times = GenerateTimes(m.times.started_us, m.times.first_token_us, m.times.last_token_us)
    return Received(piece, (finish, usage, times))


def engine_status(m: generate_pb2.EngineStatus) -> EngineStatus:
    """The message as a plain value."""
    sampling = {field.name: getattr(m.sampling, field.name) if m.sampling.HasField(field.name)
                else None for field in dataclasses.fields(Sampling)}
    values = {field.name: getattr(m, field.name) for field in dataclasses.fields(EngineStatus)}
    return EngineStatus(**{**values, "end_tokens": tuple(m.end_tokens),
                           "sampling": Sampling(**sampling)})
