"""Training texts of a draft, with the target's distribution at every token.

The target's distributions and states of texts that are there.

A GPU reads a text again faster than a disk gives back what was stored of it: the states of a token of SmolLM2-135M
take 3 KB, and its distribution's 32 likeliest tokens 192 bytes. So there each batch is read anew.

Existing texts under a target's chat template, with the target's distribution at each of their tokens.

A target reads a text about ten times as fast as it writes one, so a draft sees more of its distributions in the same
time. However, they follow other people's words, not the target's own.

Prompts that a target writes itself: it goes on from the beginning of a user's turn (Xu et al. 2024, Magpie, arXiv
2406.08464). They are as many as one likes, of every kind that the target was taught, and of no benchmark.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from fsd_core.errors import ModelUnavailable, NotEnough, UnfitModel
from fsd_core.models.draft_weights import ReducedHead
from fsd_core.models.forward import AuxHiddenStates
from fsd_core.models.language_model import LanguageModel, vocabulary_of
from fsd_core.models.loading import adapted, resolve_device
from fsd_core.models.prompt import encode_prompt, render_prompt
from fsd_core.ops.distributions import draw
from fsd_core.system import whole_file
from fsd_core.tasks.word_problems import MOST_SHOTS, after_examples, worked
from fsd_plugins.training.loop import is_own, on_device, read_model
from fsd_plugins.training.plans import TextsPlan

T = TypeVar("T")
P = TypeVar("P", bound=TextsPlan)
MIX = {"gsm8k": 0.2, "worked": 0.08, "dolly": 0.42, "csqa": 0.06, "mbpp": 0.06, "passages": 0.18}
"""shares of the kinds of questions: sums, sums after worked ones, instructions, choices, code, texts to summarise"""


def training_prompts(data: Path, seed: int = 0, mix: Mapping[str, float] = MIX) -> Iterator[str]:
    """Yield questions without end, in an order of the seed alone.

    ``data``: a folder with ``gsm8k/train.jsonl``, ``dolly/dolly_train.json``, ``csqa/train_rand_split.jsonl``,
    ``mbpp/mbpp.jsonl`` (only its training split, problems 601 to 974), and in ``tinystories_sample`` the stories and
    the passages of WikiText's training split. Raises ``ModelUnavailable`` if one is missing.
    """
    shuffle = random.Random(seed)
    with named_if_missing():
        sources = {
            "gsm8k": [row["question"] for row in gsm8k(data)],
            "worked": _worked(data, shuffle),
            "dolly": [instruction(row) for row in dolly(data)],
            "csqa": _csqa(data),
            "mbpp": [question for question, _ in mbpp(data)],
            "passages": _passages(data, shuffle),
        }
    return mixed({name: decks(texts, shuffle) for name, texts in sources.items()}, mix, shuffle)


@contextmanager
def named_if_missing() -> Iterator[None]:
    """Raise ``ModelUnavailable``, which names the file, if a file of training questions is missing."""
    try:
        yield
    except FileNotFoundError as error:
        raise ModelUnavailable(
            f"The file {error.filename} of training questions is missing: set FSD_DATA_DIR to the folder that has it."
        ) from None


def mixed(sources: Mapping[str, Iterator[T]], mix: Mapping[str, float], shuffle: random.Random) -> Iterator[T]:
    """Yield what the sources yield, without end, by their shares in ``mix``."""
    while True:
        (name,) = shuffle.choices(list(mix), list(mix.values()))
        yield next(sources[name])


def decks(rows: Sequence[T], shuffle: random.Random) -> Iterator[T]:
    """Yield rows in random order without end, each once before any comes again."""
    while True:
        yield from reversed(shuffle.sample(rows, len(rows)))


def json_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def gsm8k(data: Path) -> list[dict[str, Any]]:
    """Return rows with a ``question`` and an ``answer``."""
    return json_lines(data / "gsm8k" / "train.jsonl")


def _worked(data: Path, shuffle: random.Random) -> list[str]:
    """Return each problem after one to four others with their solutions."""
    rows = shuffle.sample(problems := gsm8k(data), len(problems))
    shots = [shuffle.randint(1, MOST_SHOTS) for _ in rows]
    return [
        after_examples(rows[max(0, i - count) : i], row["question"])
        for i, (count, row) in enumerate(zip(shots, rows, strict=True))
    ]


def _passages(data: Path, shuffle: random.Random) -> list[str]:
    """Return texts to summarise, and questions of Dolly about a text, which stands next to another one."""
    texts, questions = prose(data), []
    for row in dolly(data):
        if passage := row["input"].strip()[:1200]:
            passages = "\n\n".join(shuffle.sample([passage, shuffle.choice(texts)[:600]], 2))
            questions.append(f"{passages}\n\n{row['instruction'].strip()}")
    return [f"Summarize: {text[:1600]}" for text in texts] + questions


def prose(data: Path) -> list[str]:
    """Return stories, and passages of WikiText's training split."""
    return [
        text.strip()
        for name in ("tinystories", "wikitext")
        for text in json.loads((data / "tinystories_sample" / f"{name}_1000.json").read_text(encoding="utf-8"))
    ]


def dolly(data: Path) -> list[dict[str, Any]]:
    """Return rows with an ``instruction``, an ``input`` that may be empty, and an ``output``."""
    return json.loads((data / "dolly" / "dolly_train.json").read_text(encoding="utf-8"))


def instruction(row: dict[str, Any]) -> str:
    """Return the question of a row of Dolly."""
    return "\n\n".join(filter(None, (row["instruction"].strip(), row["input"].strip()[:1500])))


def _csqa(data: Path) -> list[str]:
    texts = []
    for row in json_lines(data / "csqa" / "train_rand_split.jsonl"):
        choices = "\n".join(f"{choice['label']}) {choice['text']}" for choice in row["question"]["choices"])
        texts.append(f"{row['question']['stem']}\n{choices}\nWhich one is right, and why?")
    return texts


def mbpp(data: Path) -> list[tuple[str, str]]:
    """Return the tasks of the training split and their programs."""
    rows = json_lines(data / "mbpp" / "mbpp.jsonl")
    return [(row.get("prompt") or row["text"], row["code"]) for row in rows if 601 <= row["task_id"] <= 974]


TOP_TOKENS = 32
"""number of likeliest tokens stored per distribution: the others have too little probability for their bytes"""


@dataclass(frozen=True)
class TrainingText:
    """A prompt and an answer, written or read by the target."""

    tokens: Tensor
    """int32 [T], prompt first"""
    prompt: int
    """number of prompt tokens"""
    top: Tensor
    """int32 [T − prompt, K]: the likeliest tokens at each position of the answer; K is ``TOP_TOKENS``, or 0 in a text
    whose distributions are read anew"""
    log_p: Tensor
    """float16 [T − prompt, K]: their log-probabilities under the raw target"""
    states: Tensor | None = None
    """bfloat16 [T − 1, ·]: states of the target at all tokens but the last, if requested; of a file, in its pages"""


@torch.inference_mode()
def answer(
    target: LanguageModel,
    prompts: Sequence[Sequence[int]],
    greedy: Tensor,
    limit: int,
    generator: torch.Generator,
    layers: tuple[int, ...] = (),
    stored: bool = True,
) -> list[TrainingText]:
    """Return answers to prompts of similar length, each up to its end token or ``limit`` tokens.

    prompts: token ids. greedy: bool [B], rows that take the likeliest token. The others sample at temperature 1.
    layers: those whose states are stored, as ``AuxHiddenStates`` counts them. stored: false if distributions and states
    will be read anew, else they are read at the end. ``generator``: on the CPU, whatever the target's device.
    All rows advance together: while one still reads its prompt, others write. A row that has ended leaves the batch.
    """
    device, sizes, count = target.device, [len(prompt) for prompt in prompts], len(prompts)
    shortest, longest = min(sizes), max(sizes)
    padded = pad_sequence([torch.tensor(prompt, dtype=torch.int32) for prompt in prompts], batch_first=True)
    tokens = nn.functional.pad(padded, (0, limit)).to(device)
    lengths, greedy = torch.tensor(sizes, device=device), greedy.to(device)
    cache = target.new_cache(longest + limit, count)
    end = torch.tensor(sorted(target.eos_tokens), device=device)
    rows, ends = torch.arange(count, device=device), lengths + limit  # ends: number of tokens of each text
    fed = tokens[:, :shortest].long()
    for position in range(shortest, longest + limit):
        log_p = target.forward(fed, cache, logits_to_keep=1)[:, -1].log_softmax(-1)  # [B,V]
        # torch.multinomial takes ten times as long.
        sampled = draw(log_p.exp(), torch.rand(len(rows), generator=generator).to(device))
        sampled = torch.where(greedy[rows], log_p.argmax(-1), sampled).int()
        writing = (position >= lengths[rows]) & (position < ends[rows])
        sampled = torch.where(writing, sampled, tokens[rows, position])
        tokens[rows, position] = sampled
        ends[rows] = torch.where(writing & torch.isin(sampled, end), position + 1, ends[rows])
        alive = position + 1 < ends[rows]
        left = int(alive.sum())
        if not left:
            break
        fed = sampled[:, None].long()
        if left < 0.8 * len(rows):  # copying a cache costs as much as a few tokens
            rows, fed = rows[alive], fed[alive]
            cache.keep_rows(alive.nonzero()[:, 0])
    cache.release()
    texts = [(row[:stop].clone(), size) for row, size, stop in zip(tokens, sizes, ends.tolist(), strict=True)]
    if stored:
        return read(target, texts, layers)
    nothing = [torch.empty(len(text) - size, 0) for text, size in texts]
    return [TrainingText(*text, rest.int(), rest.half()) for text, rest in zip(texts, nothing, strict=True)]


def _in_files(
    folder: Path, groups: Iterable[T], make: Callable[[int, T], list[TrainingText]], report: Callable[[dict], None]
) -> None:
    """Store the texts that are made of each numbered group in a file, unless that is there."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, group in enumerate(groups):
        if not (file := folder / f"{number:05d}.safetensors").exists():
            texts = make(number, group)
            save_texts(texts, file)
            report({"file": number + 1, "rows": len(texts), "tokens": sum(len(text.top) for text in texts)})


def save_texts(texts: Sequence[TrainingText], file: Path) -> None:
    """Write texts in the format of :func:`read_texts`. The file appears completely or not at all."""
    states = [text.states for text in texts if text.states is not None]
    packed = {
        **({"states": torch.cat(states)} if states else {}),
        "tokens": torch.cat([text.tokens for text in texts]),
        "lengths": torch.tensor([len(text.tokens) for text in texts]),
        "prompts": torch.tensor([text.prompt for text in texts]),
        "top": torch.cat([text.top for text in texts]),
        "log_p": torch.cat([text.log_p for text in texts]),
    }
    with whole_file(file) as partial:
        save_file(packed, partial)


def read_texts(folder: Path) -> list[TrainingText]:
    """Return every stored text, in order."""
    return [text for file in sorted(folder.glob("*.safetensors")) for text in _read_file(file)]


def _read_file(file: Path) -> Iterator[TrainingText]:
    """Yield the texts of one file of :func:`save_texts`."""
    with safe_open(file, "pt") as stored:  # maps the file: states are loaded where they are used
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    lengths, prompts = tensors["lengths"], tensors["prompts"]
    answers, states = (lengths - prompts).tolist(), tensors.get("states")
    yield from map(
        TrainingText, tensors["tokens"].split(lengths.tolist()), prompts.tolist(), tensors["top"].split(answers),
        tensors["log_p"].split(answers), repeat(None) if states is None else states.split((lengths - 1).tolist()),
    )  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """Texts padded on the right, which a causal model does not see, and their distributions row by row."""

    tokens: Tensor
    """int64 [B,T]"""
    judged: Tensor
    """bool [B,T], true before answer tokens"""
    top: Tensor
    """int64 [N,TOP_TOKENS]"""
    p: Tensor
    """[N,TOP_TOKENS], which sum to 1"""
    mass: Tensor
    """[N,1]: the target's probability of the stored tokens"""
    states: Tensor | None
    """[B,T − 1,·] of the target"""


def stack(texts: Sequence[TrainingText]) -> Batch:
    """Return the batch of some texts."""
    tokens = pad_sequence([text.tokens.long() for text in texts], batch_first=True)
    judged = _judged([(len(text.tokens), text.prompt) for text in texts], tokens)
    p = torch.cat([text.log_p for text in texts]).float().exp()
    states = [text.states for text in texts if text.states is not None]
    return Batch(
        tokens, judged, torch.cat([text.top for text in texts]).long(), p / p.sum(-1, keepdim=True),
        p.sum(-1, keepdim=True), pad_sequence(states, batch_first=True) if states else None,
    )  # fmt: skip


def _judged(sizes: Sequence[tuple[int, int]], tokens: Tensor) -> Tensor:
    """Return where tokens, [B,T], stand before a token of the answer, bool [B,T]. ``sizes``: how many tokens each text
    has, and how many of these are its prompt."""
    ends, prompts = torch.tensor(sizes, device=tokens.device).T[..., None] - 1
    places = torch.arange(tokens.shape[1], device=tokens.device)
    return (prompts <= places) & (places < ends)


def similar(texts: Sequence[TrainingText], size: int, seed: int) -> Iterator[list[TrainingText]]:
    """Yield groups of ``size`` texts without end, texts of similar length together, each text once per pass."""
    shuffle = random.Random(seed)
    while True:
        order = sorted(texts, key=lambda text: len(text.tokens) + shuffle.random() * 16)
        groups = [order[i : i + size] for i in range(0, len(order), size)]
        shuffle.shuffle(groups)
        yield from groups


Guess = tuple[Tensor, Tensor, Tensor]
"""logits over the tokens of a reduced head, [N,K]; the target's likeliest tokens as indices into these, int64
[N,TOP_TOKENS]; their probabilities, 0 for a token outside the reduced head, whose index is arbitrary"""


def guess(logits: Tensor, head: ReducedHead, top: Tensor, p: Tensor) -> Guess:
    """Return the logits of a reduced head beside the target's probabilities."""
    index_of = torch.full((head.vocabulary,), -1, device=logits.device)
    index_of[head.tokens] = torch.arange(len(head.tokens), device=logits.device)
    at = index_of[top.to(logits.device)]
    return logits.float(), at.clamp_min(0), p.to(logits.device) * (at >= 0)


def cross_entropy(guess: Guess) -> Tensor:
    """Return the mean over answer tokens of −Σ p ln q in nats (Hinton et al. 2015).

    Both are over the tokens of the reduced head, and p is the target's stored distribution.
    """
    logits, at, p = guess
    p = p / p.sum(-1, keepdim=True).clamp_min(1e-6)
    return (logits.logsumexp(-1) - (p * logits.gather(1, at)).sum(-1)).mean()


@torch.inference_mode()
def agreement(
    guesses: Callable[[Batch], Iterable[Guess]], texts: Sequence[TrainingText], covers: float = 1.0, size: int = 16
) -> dict[str, float]:
    """Return how a draft would fare on texts it has not seen, per token.

    ``guesses``: of a batch, one for each step that is taught. ``covers``: probability of the tokens of its head.
    ``overlap``: mean of Σ min(p, q) at the first step, the chance that a token sampled from q is accepted at
    temperature 1 (a lower bound, because only the stored part of p counts). ``same_choice``: share of positions with
    the same likeliest token at the first step; ``same_choice_last``: at the last of several.
    """
    overlap, same, count, step = 0.0, Counter[int](), 0, 0
    for i in range(0, len(texts), size):
        for step, (logits, at, p) in enumerate(guesses(stack(texts[i : i + size]))):
            same[step] += int(((logits.argmax(-1) == at[:, 0]) & (p[:, 0] > 0)).sum())
            if step == 0:
                q = covers * logits.softmax(-1).gather(1, at)
                overlap += float(torch.minimum(p, q).sum())
                count += len(at)
    figures = {"overlap": round(overlap / count, 4), "same_choice": round(same[0] / count, 4)}
    return figures | ({"same_choice_last": round(same[step] / count, 4)} if step else {})


def tokens_of_head(plan: TextsPlan, target: PreTrainedModel, taught: Taught) -> tuple[Tensor, float]:
    """Return the tokens that a head covers, int64 [K], and the probability of the others."""
    vocabulary, ends = vocabulary_of(target), LanguageModel(target, lean=False).eos_tokens
    tokens = common_tokens(taught.sample, min(plan.head_tokens or vocabulary, vocabulary), vocabulary, ends)
    return tokens, round(max(share_of_others(taught.held_out, tokens, vocabulary), 1e-5), 5)


def common_tokens(texts: list[TrainingText], count: int, vocabulary: int, always: Iterable[int]) -> Tensor:
    """Return the ``count`` tokens with the most target probability in these texts, int64 [count], ascending.

    ``always``: tokens that are included whatever the texts say.
    """
    order = _mass(texts, vocabulary)
    order[list(always)] = float("inf")
    return order.topk(count).indices.sort().values


def share_of_others(texts: list[TrainingText], tokens: Tensor, vocabulary: int) -> float:
    """Return the share of all tokens but ``tokens`` (int64 [K]) in the stored probability of these texts."""
    mass = _mass(texts, vocabulary)
    return float(1 - mass[tokens].sum() / mass.sum())


def _mass(texts: list[TrainingText], vocabulary: int) -> Tensor:
    """Return the expected number of occurrences of each token, from the stored distributions, float64 [V]."""
    mass = torch.zeros(vocabulary, dtype=torch.float64)
    for text in texts:
        mass.index_add_(0, text.top.cpu().flatten().long(), text.log_p.cpu().double().exp().flatten())
    return mass


_LONGEST_WRITTEN, _LONGEST_READ = 600, 400
"""tokens of prompts whose answers are written, and read; those of longer ones are not"""
TOKENS_AT_ONCE = 4096
"""tokens per forward; their float32 logits take 0.8 GB at a vocabulary of 50,000. A GPU takes eight times as many."""
SAMPLE = 512
"""texts of a source that are read to count a head's tokens"""
Source = tuple[LanguageModel, Sequence[TrainingText]]
"""a target, and the texts that it wrote"""


@torch.no_grad()
def read(
    target: LanguageModel, texts: Sequence[tuple[Tensor, int]], layers: tuple[int, ...] = ()
) -> list[TrainingText]:
    """Return training texts for the tokens of whole texts, each with the number of those that are the prompt, on the
    target's device.

    layers: those whose states are stored, as ``AuxHiddenStates`` counts them.
    """
    at_once = TOKENS_AT_ONCE * (1 if target.device.type == "cpu" else 8)
    rows = max(1, at_once // max(len(text) for text, _ in texts))
    if len(texts) > rows:
        return [text for i in range(0, len(texts), rows) for text in read(target, texts[i : i + rows], layers)]
    tokens = pad_sequence([text.long() for text, _ in texts], batch_first=True).to(target.device)
    judged = _judged([(len(text), prompt) for text, prompt in texts], tokens)[:, :-1]
    aux = AuxHiddenStates(layers) if layers else None
    cache = target.new_cache(judged.shape[1], len(texts))  # nothing is predicted after the last token
    logits = target.forward(tokens[:, :-1], cache, aux_hidden_states=aux)[judged]  # [N,V]
    cache.release()
    likeliest, top = logits.topk(TOP_TOKENS)
    log_p = (likeliest - logits.logsumexp(-1, keepdim=True)).half()
    answers = [len(text) - prompt for text, prompt in texts]
    parts = zip(texts, tokens.int(), top.int().split(answers), log_p.split(answers), strict=True)
    seen = None if aux is None else aux.states.bfloat16()
    return [
        TrainingText(row[: len(text)], prompt, top, log_p, None if seen is None else seen[i, : len(text) - 1])
        for i, ((text, prompt), row, top, log_p) in enumerate(parts)
    ]


def reread(target: LanguageModel, texts: Sequence[TrainingText], layers: tuple[int, ...] = ()) -> list[TrainingText]:
    """Return texts with their distributions, and the states of ``layers``, as the target computes them now."""
    return read(target, [(text.tokens, text.prompt) for text in texts], layers)


def read_anew(
    sources: Sequence[Source], size: int, seed: int, layers: tuple[int, ...] = ()
) -> Iterator[list[TrainingText]]:
    """Yield groups of ``size`` texts of one source without end, read anew; each source as often as it has texts."""
    shuffle, shares = random.Random(seed), [len(texts) for _, texts in sources]
    groups = [similar(texts, size, seed) for _, texts in sources]
    while True:
        (chosen,) = shuffle.choices(range(len(sources)), shares)
        yield reread(sources[chosen][0], next(groups[chosen]), layers)


def existing_texts(data: Path, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Return an iterator over questions and their answers, each once, in an order of the seed alone.

    The texts are GSM8K's solutions, Dolly's answers, MBPP's programs, and stories and passages of WikiText to be
    continued. ``data``: as for :func:`training_prompts`. Raises ``ModelUnavailable`` if a file is missing.
    """
    with named_if_missing():
        sums = gsm8k(data)[::3]  # all would be two thirds of the texts
        pairs = [(row["question"], worked(row)) for row in sums]
        pairs += [(instruction(row), row["output"].strip()) for row in dolly(data)]
        pairs += [(question, f"```python\n{code.strip()}\n```") for question, code in mbpp(data)]
        pairs += [_continued(text) for text in map(_as_written, prose(data)) if len(text) > 200]
    random.Random(seed).shuffle(pairs)
    return iter([(question, answer) for question, answer in pairs if answer])


def _continued(text: str) -> tuple[str, str]:
    """Return a request with the first sentence or so of a text, and the remainder as the answer."""
    end = text.find(". ", 40, 160)
    cut = end + 1 if end >= 0 else 100
    return f"Continue this text: {text[:cut]}", text[cut:].strip()


def _as_written(text: str) -> str:
    """Return a passage of WikiText without the spaces that its tokenisation put before punctuation."""
    text = re.sub(r" @([-,.])@ ", r"\1", text)
    return re.sub(r" ([,.;:!?%)]|'s\b|n't\b)", r"\1", text).replace("( ", "(").strip()


def read_existing(
    target: LanguageModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Iterator[tuple[str, str]],
    folder: Path,
    count: int,
    limit: int = 160,
    batch: int = 96,
    layers: tuple[int, ...] = (),
    report: Callable[[dict], None] = lambda row: None,
) -> None:
    """Read up to ``count`` texts, the first ``limit`` tokens of each answer, into files under ``folder``.

    Files that exist are not read again.
    """
    end = tokenizer.eos_token_id
    longest = min(_LONGEST_READ, target.context - limit)
    counted = islice(texts, count)
    groups = iter(lambda: list(islice(counted, batch)), [])

    def read_group(number: int, group: list[tuple[str, str]]) -> list[TrainingText]:
        pairs = []
        for question, answer in group:
            prompt = encode_prompt(tokenizer, question)
            ids = [*tokenizer(answer, add_special_tokens=False)["input_ids"], end][:limit]
            if len(prompt) <= longest:
                pairs.append((torch.tensor([*prompt, *ids]), len(prompt)))
        return read(target, sorted(pairs, key=lambda pair: len(pair[0])), layers)

    _in_files(folder, groups, read_group, report)


LONGEST = 128  # tokens of a prompt; one that has not ended by then is left out
_MARK = "PROMPT"


def own_prompts(
    target: LanguageModel,
    tokenizer: PreTrainedTokenizerBase,
    count: int,
    file: Path,
    side_by_side: int,
    seed: int = 0,
) -> list[str]:
    """Return ``count`` prompts, all different, and keep them in ``file``, from which a later call takes them.
    ``side_by_side`` are written at once.

    Raises ``InvalidSetting`` for a target without a chat template, and if it hardly writes anything new.
    """
    if not count:
        return []
    if file.exists():
        return json.loads(file.read_text(encoding="utf-8"))[:count]
    if not tokenizer.chat_template:
        raise UnfitModel(
            "The target has no chat template, so it cannot write prompts of its own: give --own-prompts 0, and a "
            "folder of questions in FSD_DATA_DIR."
        )
    before_first, _, _ = render_prompt(tokenizer, _MARK)[0].partition(_MARK)
    beginning = tokenizer(before_first, add_special_tokens=False)["input_ids"]
    found, generator = dict[str, None](), torch.Generator().manual_seed(seed)
    drawn = torch.zeros(side_by_side, dtype=torch.bool)
    while len(found) < count:
        before = len(found)
        texts = answer(target, [beginning] * side_by_side, drawn, LONGEST, generator, stored=False)
        written = (text.tokens[text.prompt :].tolist() for text in texts)
        ended = (tokens[:-1] for tokens in written if tokens[-1] in target.eos_tokens)
        prompts = (str(tokenizer.decode(tokens, skip_special_tokens=True)).strip() for tokens in ended)
        found |= dict.fromkeys(filter(None, prompts))
        if len(found) - before < side_by_side / 100:
            raise NotEnough(
                f"The target wrote {len(found):,} different prompts and hardly any new one among the last "
                f"{side_by_side:,}: ask for fewer than the {count:,} of --own-prompts."
            )
    kept = list(found)[:count]
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as partial:
        partial.write_text(json.dumps(kept), encoding="utf-8")
    return kept


HELD_OUT_TEXTS = 64  # for evaluation only
_SIDE_BY_SIDE = 1024
"""texts that a GPU writes at once"""
Writing = tuple[str, Path | None, Iterator[str], int]
"""folder of texts, the adapter with which the target writes them, what it is asked, and the number of texts"""


def fitted(plan: P, target: str, device: str, given: Mapping[str, Any]) -> P:
    """Return a plan with the options that were ``given`` and not ``None``, for a target on a device.

    A target of one's own writes all prompts itself, unless their number is given. A GPU writes many texts side by side,
    and each batch is read anew. Raises ``InvalidSetting`` for a device that is not here.
    """
    plan = plan.changed(**given)
    if given.get("own_prompts") is None and is_own(target):
        plan = replace(plan, own_prompts=plan.texts)
    on_cpu = resolve_device(device).type == "cpu"
    return plan if on_cpu else replace(plan, anew=True, side_by_side=_SIDE_BY_SIDE)


@dataclass(frozen=True)
class Taught:
    """What a target teaches a draft or a head."""

    texts: list[TrainingText]
    read: list[TrainingText]
    """those of the texts that the target did not write"""
    held_out: list[TrainingText]
    sample: list[TrainingText]
    """texts with their distributions, by which the tokens of a head are chosen"""
    batches: Iterator[Batch]

    def facts(self) -> dict[str, int]:
        """Return how many texts and tokens of answers there are."""
        tokens, tokens_read = (sum(len(text.top) for text in texts) for texts in (self.texts, self.read))
        counts = {"texts": len(self.texts), "answer_tokens": tokens}
        return counts | {"texts_read": len(self.read), "answer_tokens_read": tokens_read}


def write_all(
    folder: Path,
    out: Path,
    writings: Iterable[Writing],
    plan: TextsPlan,
    seed: int,
    device: torch.device,
    report: Callable[[dict], None],
    layers: tuple[int, ...] = (),
) -> list[Source]:
    """Write texts of the target in ``folder``, and return them, each with the model that wrote it.

    Prompts of similar length are answered together. Texts that are there are not written again.
    """
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    size, limit = plan.side_by_side, plan.longest_answer
    sources: list[Source] = []
    for name, adapter, questions, count in writings:
        module = read_model(folder)
        module = on_device(module if adapter is None else adapted(module, adapter), device)
        model = LanguageModel(module, static=False)  # a graph is captured for each number of rows, which falls
        if adapter is None:
            own = own_prompts(model, tokenizer, plan.own_prompts, out / "own-prompts.json", size, seed)
            questions = chain(own, questions)
        encoded = (encode_prompt(tokenizer, question) for question in questions)
        longest = min(_LONGEST_WRITTEN, model.context - limit)
        prompts = sorted(islice((ids for ids in encoded if len(ids) <= longest), count), key=len)
        groups = [prompts[i : i + size] for i in range(0, len(prompts), size)]
        random.Random(0).shuffle(groups)

        def write(number: int, group: list[list[int]], model: LanguageModel = model) -> list[TrainingText]:
            generator, greedy = torch.Generator().manual_seed(number), torch.arange(len(group)) % 2 == 0
            return answer(model, group, greedy, limit, generator, layers, stored=not plan.anew)

        def told(row: dict, files: int = len(groups)) -> None:
            report({"file": row.pop("file"), "of": files} | row)

        _in_files(out / name, groups, write, told)
        sources.append((model, read_texts(out / name)))
    return sources


def teach(
    folder: Path,
    out: Path,
    data: Path,
    writings: Iterable[Writing],
    longest_read: int,
    plan: TextsPlan,
    seed: int,
    device: torch.device,
    report: Callable[[dict], None],
    layers: tuple[int, ...] = (),
) -> Taught:
    """Have the target in ``folder`` write and read texts under ``out``, those of the target alone first.

    ``longest_read``: answer tokens of existing texts. ``layers``: those whose states are learnt from. Raises
    ``NotEnough`` for too few texts.
    """
    sources, read = write_all(folder, out, writings, plan, seed, device, report, layers), []
    (target, first), *others = sources
    if plan.existing and not plan.anew:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        existing = existing_texts(data, seed)
        read_existing(
            target, tokenizer, existing, out / "read", plan.existing, longest_read, layers=layers, report=report
        )
        read = read_texts(out / "read")
    texts = [text for _, written in sources for text in written] + read
    if len(texts) <= HELD_OUT_TEXTS:
        raise NotEnough(
            f"Only {len(texts)} texts were written or read, of which {HELD_OUT_TEXTS} are held out: ask for more with "
            "--texts."
        )
    held_out, texts = texts[:HELD_OUT_TEXTS], texts[HELD_OUT_TEXTS:]
    if not plan.anew:
        groups = similar(texts, plan.schedule.batch, seed)
        return Taught(texts, read, held_out, texts, map(stack, groups))
    sources = [(target, first[HELD_OUT_TEXTS:]), *others]
    sample = [text for model, written in sources for text in reread(model, written[:SAMPLE])]
    groups = read_anew(sources, plan.schedule.batch, seed, layers)
    return Taught(texts, read, reread(target, held_out, layers), sample, map(stack, groups))
