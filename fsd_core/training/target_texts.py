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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fsd_core.errors import ModelUnavailable, NotEnough, UnfitModel
from fsd_core.models.forward import AuxHiddenStates
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.prompt import encode_prompt, render_prompt
from fsd_core.ops.distributions import draw
from fsd_core.system import whole_file
from fsd_core.tasks.word_problems import MOST_SHOTS, after_examples, worked
from fsd_core.training.loop import mixed_precision

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
            "gsm8k": _gsm8k(data),
            "worked": _worked(data, shuffle),
            "dolly": [instruction(row) for row in dolly(data)],
            "csqa": _csqa(data),
            "mbpp": [question for question, _ in mbpp(data)],
            "passages": _passages(data, shuffle),
        }
    return _endless(sources, mix, shuffle)


@contextmanager
def named_if_missing() -> Iterator[None]:
    """Raise ``ModelUnavailable``, which names the file, if a file of training questions is missing."""
    try:
        yield
    except FileNotFoundError as error:
        raise ModelUnavailable(
            f"The file {error.filename} of training questions is missing: set FSD_DATA_DIR to the folder that has it."
        ) from None


def _endless(sources: Mapping[str, list[str]], mix: Mapping[str, float], shuffle: random.Random) -> Iterator[str]:
    decks: dict[str, list[str]] = {name: [] for name in sources}
    while True:
        (name,) = shuffle.choices(list(mix), list(mix.values()))
        if not decks[name]:
            decks[name] = shuffle.sample(sources[name], len(sources[name]))
        yield decks[name].pop()


def json_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def _gsm8k(data: Path) -> list[str]:
    return [row["question"] for row in json_lines(data / "gsm8k" / "train.jsonl")]


def _worked(data: Path, shuffle: random.Random) -> list[str]:
    """Return each problem after one to four others with their solutions."""
    rows = shuffle.sample(problems := json_lines(data / "gsm8k" / "train.jsonl"), len(problems))
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


T = TypeVar("T")
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
    """bfloat16 [T − 1, ·]: states of the target at all tokens but the last, if requested"""


@torch.inference_mode()
def answer(
    target: LanguageModel,
    prompts: Sequence[Sequence[int]],
    greedy: Tensor,
    limit: int,
    generator: torch.Generator,
    layers: tuple[int, ...] = (),
    stored: int = TOP_TOKENS,
) -> list[TrainingText]:
    """Return answers to prompts of similar length, each up to its end token or ``limit`` tokens.

    prompts: token ids. greedy: bool [B], rows that take the likeliest token. The others sample at temperature 1.
    layers: those whose states are stored, as ``AuxHiddenStates`` counts them. stored: likeliest tokens stored of each
    distribution, 0 if it will be read anew. ``generator``: on the CPU, whatever the target's device.
    All rows advance together: while one still reads its prompt, others write. A row that has ended leaves the batch.
    """
    device, sizes, count = target.device, [len(prompt) for prompt in prompts], len(prompts)
    shortest, longest = min(sizes), max(sizes)
    tokens = torch.zeros(count, longest + limit, dtype=torch.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = torch.tensor(prompt)
    tokens, lengths, greedy = tokens.to(device), torch.tensor(sizes, device=device), greedy.to(device)
    top = torch.zeros(count, limit, stored, dtype=torch.int32, device=device)
    top_log_p = torch.zeros(count, limit, stored, dtype=torch.float16, device=device)
    aux, states = AuxHiddenStates(layers) if layers else None, torch.empty(0)
    cache = target.new_cache(longest + limit, count)
    end = torch.tensor(sorted(target.eos_tokens), device=device)
    rows, ends = torch.arange(count, device=device), lengths + limit  # ends: number of tokens of each text
    fed = tokens[:, :shortest].long()
    for position in range(shortest, longest + limit):
        log_p = target.forward(fed, cache, logits_to_keep=1, aux_hidden_states=aux)[:, -1].log_softmax(-1)  # [B,V]
        if aux is not None:
            new = aux.states.bfloat16()
            if not len(states):
                states = new.new_zeros(count, longest + limit, new.shape[-1])
            states[rows, position - fed.shape[1] : position] = new
        # torch.multinomial takes ten times as long.
        sampled = draw(log_p.exp(), torch.rand(len(rows), generator=generator).to(device))
        sampled = torch.where(greedy[rows], log_p.argmax(-1), sampled).int()
        writing = (position >= lengths[rows]) & (position < ends[rows])
        sampled = torch.where(writing, sampled, tokens[rows, position])
        tokens[rows, position] = sampled
        if stored:
            values, indices = log_p.topk(stored)
            at, place = rows[writing], position - lengths[rows[writing]]
            top[at, place], top_log_p[at, place] = indices[writing].int(), values[writing].half()
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
    return [
        TrainingText(
            tokens[row, :stop].clone(),
            size,
            top[row, : stop - size].clone(),
            top_log_p[row, : stop - size].clone(),
            states[row, : stop - 1].clone() if layers else None,
        )
        for row, (size, stop) in enumerate(zip(sizes, ends.tolist(), strict=True))
    ]


def write_texts(
    target: LanguageModel,
    tokenizer: PreTrainedTokenizerBase,
    questions: Iterator[str],
    folder: Path,
    count: int,
    limit: int = 160,
    longest_prompt: int = 600,
    batch: int = 96,
    seed: int = 0,
    layers: tuple[int, ...] = (),
    stored: int = TOP_TOKENS,
    report: Callable[[dict], None] = lambda row: None,
) -> None:
    """Write ``count`` texts as files under ``folder``. Existing files are not written again.

    Prompts of similar length are answered together. ``layers``, ``stored``: see :func:`answer`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    encoded = (encode_prompt(tokenizer, question) for question in questions)
    longest_prompt = min(longest_prompt, target.context - limit)
    prompts = sorted(islice((ids for ids in encoded if len(ids) <= longest_prompt), count), key=len)
    groups = [prompts[i : i + batch] for i in range(0, len(prompts), batch)]
    random.Random(seed).shuffle(groups)
    for number, group in enumerate(groups):
        file = folder / f"{number:05d}.safetensors"
        if file.exists():
            continue
        generator = torch.Generator().manual_seed(seed * 1_000_003 + number)
        texts = answer(target, group, torch.arange(len(group)) % 2 == 0, limit, generator, layers, stored)
        save_texts(texts, file)
        report(
            {"file": number + 1, "of": len(groups), "rows": len(group), "tokens": sum(len(text.top) for text in texts)}
        )


def save_texts(texts: Sequence[TrainingText], file: Path) -> None:
    """Write texts in the format of :func:`read_file`. The file appears completely or not at all."""
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
    return [text for file in sorted(folder.glob("*.safetensors")) for text in read_file(file)]


def read_file(file: Path) -> list[TrainingText]:
    """Return the texts of one file of :func:`save_texts`."""
    with safe_open(file, "pt") as stored:  # the states are not loaded
        tensors = {name: stored.get_tensor(name) for name in ("tokens", "lengths", "prompts", "top", "log_p")}
    answers = (tensors["lengths"] - tensors["prompts"]).tolist()
    parts = zip(
        tensors["tokens"].split(tensors["lengths"].tolist()), tensors["prompts"].tolist(),
        tensors["top"].split(answers), tensors["log_p"].split(answers), strict=True,
    )  # fmt: skip
    return [TrainingText(*part) for part in parts]


Batch = tuple[Tensor, Tensor, Tensor, Tensor]
"""tokens int64 [B,T]; judged bool [B,T], true before answer tokens; top int64 [N,TOP_TOKENS]; p [N,TOP_TOKENS]"""


def stack(texts: list[TrainingText]) -> Batch:
    """Return texts padded on the right, which a causal model does not see, and their distributions row by row."""
    width, device = max(len(text.tokens) for text in texts), texts[0].tokens.device
    tokens = torch.zeros(len(texts), width, dtype=torch.long, device=device)
    judged = torch.zeros(len(texts), width, dtype=torch.bool, device=device)
    for i, text in enumerate(texts):
        tokens[i, : len(text.tokens)] = text.tokens
        judged[i, text.prompt - 1 : len(text.tokens) - 1] = True
    p = torch.cat([text.log_p for text in texts]).float().exp()
    return tokens, judged, torch.cat([text.top for text in texts]).long(), p / p.sum(-1, keepdim=True)


def similar(texts: Sequence[T], length: Callable[[T], int], size: int, seed: int) -> Iterator[list[T]]:
    """Yield groups of ``size`` texts without end, texts of similar length together, each text once per pass."""
    shuffle = random.Random(seed)
    while True:
        order = sorted(texts, key=lambda text: length(text) + shuffle.random() * 16)
        groups = [order[i : i + size] for i in range(0, len(order), size)]
        shuffle.shuffle(groups)
        yield from groups


def tokens_of(text: TrainingText) -> int:
    """Return how many tokens a text has."""
    return len(text.tokens)


def batches(texts: list[TrainingText], size: int, seed: int) -> Iterator[Batch]:
    """Yield batches of :func:`similar` texts without end."""
    return map(stack, similar(texts, tokens_of, size, seed))


def answer_logits(model: PreTrainedModel, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return a draft's logits where answers are predicted, [N,K], over the tokens of its reduced head.

    Also return the target's likeliest tokens as indices into these, int64 [N,TOP_TOKENS], and their probabilities, 0
    for a token outside the reduced head, whose index is arbitrary.
    """
    device = model.device
    tokens, judged, top, p = (part.to(device) for part in batch)
    with mixed_precision(device):
        hidden = model.model(tokens, use_cache=False).last_hidden_state  # [B,T,H]
        logits = model.lm_head.reduced_logits(hidden[judged])
    index_of = torch.full((model.config.vocab_size,), -1, device=device)
    index_of[model.lm_head.tokens] = torch.arange(logits.shape[-1], device=device)
    at = index_of[top]
    return logits, at.clamp_min(0), p * (at >= 0)


def cross_entropy(model: PreTrainedModel, batch: Batch) -> Tensor:
    """Return the mean over answer tokens of −Σ p ln q in nats (Hinton et al. 2015).

    Both are over the tokens of the draft's reduced head, and p is the target's stored distribution.
    """
    logits, at, p = answer_logits(model, batch)
    p = p / p.sum(-1, keepdim=True).clamp_min(1e-6)
    expected = (p * logits.gather(1, at).float()).sum(-1)
    return (torch.logsumexp(logits.float(), -1) - expected).mean()


@torch.inference_mode()
def agreement(model: PreTrainedModel, texts: list[TrainingText], size: int = 16) -> dict[str, float]:
    """Return how a draft would fare on texts it has not seen, per token.

    ``overlap``: mean of Σ min(p, q), the chance that a token sampled from q is accepted at temperature 1 (a lower
    bound, because only the stored part of p counts). ``same_choice``: share of positions with the same likeliest token.
    """
    overlap = same = count = 0.0
    for i in range(0, len(texts), size):
        batch = stack(texts[i : i + size])
        logits, at, probabilities = answer_logits(model, batch)
        raw = torch.cat([text.log_p for text in texts[i : i + size]]).float().exp().to(probabilities.device)
        q = logits.float().softmax(-1).gather(1, at)
        overlap += float(torch.minimum(raw * (probabilities > 0), q * (1 - model.config.rest_share)).sum())
        same += float(((logits.argmax(-1) == at[:, 0]) & (probabilities[:, 0] > 0)).sum())
        count += len(at)
    return {"overlap": round(overlap / count, 4), "same_choice": round(same / count, 4)}


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


TOKENS_AT_ONCE = 4096
"""tokens per forward; their float32 logits take 0.8 GB at a vocabulary of 50,000. A GPU takes eight times as many."""
SAMPLE = 512
"""texts of a source that are read to count a head's tokens"""
Source = tuple[LanguageModel, Sequence[TrainingText]]
"""a target, and the texts that it wrote"""


def read(
    target: LanguageModel, texts: Sequence[tuple[Sequence[int], Sequence[int]]], layers: tuple[int, ...] = ()
) -> list[TrainingText]:
    """Return training texts for token ids of prompts and answers, read in one batch, on the target's device.

    layers: those whose states are stored, as ``AuxHiddenStates`` counts them.
    """
    return _read(target, [(torch.tensor([*prompt, *answer]), len(prompt)) for prompt, answer in texts], layers)


@torch.no_grad()
def _read(target: LanguageModel, texts: Sequence[tuple[Tensor, int]], layers: tuple[int, ...]) -> list[TrainingText]:
    """Return the same for the tokens of whole texts, each with the number of those that are the prompt."""
    width = max(len(text) for text, _ in texts)
    tokens = torch.zeros(len(texts), width, dtype=torch.long)
    judged = torch.zeros(len(texts), width - 1, dtype=torch.bool)
    for row, (text, prompt) in enumerate(texts):
        tokens[row, : len(text)] = text
        judged[row, prompt - 1 : len(text) - 1] = True
    tokens, judged = tokens.to(target.device), judged.to(target.device)
    aux = AuxHiddenStates(layers) if layers else None
    cache = target.new_cache(width - 1, len(texts))  # nothing is predicted after the last token
    logits = target.forward(tokens[:, :-1], cache, aux_hidden_states=aux)[judged]  # [N,V]
    cache.release()
    likeliest, top = logits.topk(TOP_TOKENS)
    log_p = (likeliest - logits.logsumexp(-1, keepdim=True)).half()
    answers = [len(text) - prompt for text, prompt in texts]
    parts = zip(texts, top.int().split(answers), log_p.split(answers), strict=True)
    results = []
    seen = None if aux is None else aux.states.bfloat16()
    for row, ((text, prompt), text_top, text_log_p) in enumerate(parts):
        states = None if seen is None else seen[row, : len(text) - 1]
        results.append(TrainingText(tokens[row, : len(text)].int(), prompt, text_top, text_log_p, states))
    return results


def reread(target: LanguageModel, texts: Sequence[TrainingText], layers: tuple[int, ...] = ()) -> list[TrainingText]:
    """Return texts with their distributions, and the states of ``layers``, as the target computes them now."""
    at_once = TOKENS_AT_ONCE * (1 if target.device.type == "cpu" else 8)
    rows = max(1, at_once // max(map(tokens_of, texts)))
    found: list[TrainingText] = []
    for i in range(0, len(texts), rows):
        found += _read(target, [(text.tokens, text.prompt) for text in texts[i : i + rows]], layers)
    return found


def read_anew(
    sources: Sequence[Source], size: int, seed: int, layers: tuple[int, ...] = ()
) -> Iterator[list[TrainingText]]:
    """Yield groups of ``size`` texts of one source without end, read anew; each source as often as it has texts."""
    shuffle, shares = random.Random(seed), [len(texts) for _, texts in sources]
    groups = [similar(texts, tokens_of, size, seed) for _, texts in sources]
    while True:
        (chosen,) = shuffle.choices(range(len(sources)), shares)
        yield reread(sources[chosen][0], next(groups[chosen]), layers)


def existing_texts(data: Path, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Return an iterator over questions and their answers, each once, in an order of the seed alone.

    The texts are GSM8K's solutions, Dolly's answers, MBPP's programs, and stories and passages of WikiText to be
    continued. ``data``: as for ``prompts.training_prompts``. Raises ``ModelUnavailable`` if a file is missing.
    """
    with named_if_missing():
        sums = json_lines(data / "gsm8k" / "train.jsonl")[::3]  # all would be two thirds of the texts
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
    longest_prompt: int = 400,
    batch: int = 96,
    layers: tuple[int, ...] = (),
    report: Callable[[dict], None] = lambda row: None,
) -> None:
    """Read up to ``count`` texts, the first ``limit`` tokens of each answer, into files under ``folder``.

    The files are like those of ``distillation.write_texts``. Existing ones are not read again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    end = tokenizer.eos_token_id
    texts, groups = islice(texts, count), 0
    while group := list(islice(texts, batch)):
        groups += 1
        if (file := folder / f"{groups - 1:05d}.safetensors").exists():
            continue
        pairs = []
        for question, answer in group:
            prompt = encode_prompt(tokenizer, question)
            ids = [*tokenizer(answer, add_special_tokens=False)["input_ids"], end][:limit]
            if len(prompt) <= min(longest_prompt, target.context - limit):
                pairs.append((prompt, ids))
        pairs.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
        read_so_far = []
        while pairs:
            rows = max(1, TOKENS_AT_ONCE // (len(pairs[-1][0]) + len(pairs[-1][1])))
            pairs, chunk = pairs[:-rows], pairs[-rows:]
            read_so_far += read(target, chunk, layers)
        save_texts(read_so_far, file)
        report({"file": groups, "rows": len(read_so_far), "tokens": sum(len(text.top) for text in read_so_far)})


LONGEST = 128  # tokens of a prompt; one that has not ended by then is left out
_MARK = "PROMPT"


def _beginning(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the token ids before a user's first word. Raises ``InvalidSetting`` without a chat template."""
    if not tokenizer.chat_template:
        raise UnfitModel(
            "The target has no chat template, so it cannot write prompts of its own: give --own-prompts 0, and a "
            "folder of questions in FSD_DATA_DIR."
        )
    before, _, _ = render_prompt(tokenizer, _MARK)[0].partition(_MARK)
    return tokenizer(before, add_special_tokens=False)["input_ids"]


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
    beginning, found, generator = _beginning(tokenizer), dict[str, None](), torch.Generator().manual_seed(seed)
    drawn = torch.zeros(side_by_side, dtype=torch.bool)
    while len(found) < count:
        before = len(found)
        texts = answer(target, [beginning] * side_by_side, drawn, LONGEST, generator, stored=0)
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
