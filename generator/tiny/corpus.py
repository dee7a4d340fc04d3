"""The text: its speeches, the held-out split, the tokenizer, and token streams."""

import json
import re

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
BOS_ID, EOS_ID = 0, 1
BLOCK = 40  # consecutive speeches in a block
FOLD = 20  # one block in FOLD is held out
HELD_OUT = 13  # ... the one with this index modulo FOLD
ALIGNED = 0.75  # share of training windows that begin where a speech does


def speeches(text):
    """The text's speeches: 'NAME:', a newline, lines. Blank lines part them."""
    return re.split(r"\n{2,}", text.strip("\n"))


def split(all_speeches):
    """(training, held out): two lists of stretches of consecutive speeches.

    Speeches are numbered from 0 in file order. Block k is speeches 40k to
    40k+39; blocks with k % 20 == 13 are held out, the rest trains.
    """
    training, held_out, run = [], [], []
    for start in range(0, len(all_speeches), BLOCK):
        block = all_speeches[start:start + BLOCK]
        if start // BLOCK % FOLD != HELD_OUT:
            run += block
            continue
        held_out.append(block)
        training.append(run)
        run = []
    return training + [run], held_out


def passage(some_speeches):
    """One passage's text. EOS stands where the next blank line would be."""
    return "\n\n".join(some_speeches) + "\n"


def train_tokenizer(stretches, vocab_size):
    """A byte-level BPE, learned from the training stretches alone. BOS is 0, EOS is 1."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[BOS, EOS], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator([passage(s) for s in stretches], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, BOS_ID), (EOS, EOS_ID)])
    return tokenizer


def encode(tokenizer, text):
    """The text's token ids, without BOS."""
    return tokenizer.encode(text, add_special_tokens=False).ids


class Retokenizer:
    """Draws tokenizations of words with BPE-dropout (arXiv:1910.13267), from a seed.

    At each step of a word's merging, each possible merge is passed over with
    probability `dropout`. A word has `variants` tokenizations, drawn once; the
    first is the tokenizer's own.
    """

    def __init__(self, tokenizer, dropout, variants, rng):
        self.tokenizer, self.dropout, self.rng = tokenizer, dropout, rng
        self.variants = variants if dropout > 0 else 1
        vocab = tokenizer.get_vocab()
        self.ids, self.ranks = vocab, merge_ranks(tokenizer)
        self.words, self.table = {}, []

    def words_of(self, text):
        """The text as indexes of words: the pieces that merges never cross."""
        pieces = self.tokenizer.pre_tokenizer.pre_tokenize_str(text)
        return [self._index(piece, None) for piece, _ in pieces]

    def special(self, name):
        """The index of the word that is this special token."""
        return self._index(name, [self.ids[name]])

    def _index(self, word, fixed):
        if word not in self.words:
            self.words[word] = len(self.table)
            drops = [0.0] + [self.dropout] * (self.variants - 1)
            self.table.append([fixed or self._merge(word, drop) for drop in drops])
        return self.words[word]

    def _merge(self, word, drop):
        symbols = list(word)
        while True:
            candidates = [
                (self.ranks[pair], i) for i, pair in enumerate(zip(symbols, symbols[1:]))
                if pair in self.ranks and (drop == 0 or self.rng.random() >= drop)]
            if not candidates:
                return [self.ids[s] for s in symbols]
            i = min(candidates)[1]
            symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]

    def freeze(self):
        """Lays the table out flat. Call once, after the last words_of and special."""
        flat = [ids for row in self.table for ids in row]
        self.lengths = np.array([len(ids) for ids in flat])
        self.offsets = np.cumsum(self.lengths) - self.lengths
        self.flat = np.concatenate([np.array(ids) for ids in flat])

    def tokens(self, words, share):
        """Token ids for an array of word indexes, this share of the words redrawn."""
        redrawn = self.rng.random(len(words)) < share
        picks = self.rng.integers(self.variants, size=len(words)) * redrawn
        cells = np.asarray(words) * self.variants + picks
        lengths = self.lengths[cells]
        ends = np.cumsum(lengths)
        steps = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        return self.flat[np.repeat(self.offsets[cells], lengths) + steps]


def merge_ranks(tokenizer):
    """{(left, right): rank} from the tokenizer's own serialization."""
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return {tuple(m.split(" ") if isinstance(m, str) else m): r for r, m in enumerate(merges)}


class Epochs:
    """Windows of training tokens, cut and retokenized anew for each epoch."""

    def __init__(self, stretches, retokenizer, context, mean_speeches, rng):
        self.retokenizer, self.context, self.rng = retokenizer, context, rng
        self.cut_chance = 1 / mean_speeches
        self.bos, self.eos = retokenizer.special(BOS), retokenizer.special(EOS)
        self.newline = retokenizer.words_of("\n")[0]
        self.newline_id = encode(retokenizer.tokenizer, "\n")[0]
        self.stretches = [[retokenizer.words_of(s) + [self.newline] for s in stretch]
                          for stretch in stretches]
        retokenizer.freeze()

    def passages(self):
        """The stretches cut at random speech boundaries: lists of word indexes."""
        result = []
        for stretch in self.stretches:
            words = [self.bos]
            for i, speech in enumerate(stretch):
                words += speech
                if i + 1 < len(stretch) and self.rng.random() >= self.cut_chance:
                    words.append(self.newline)
                    continue
                result.append(words + [self.eos])
                words = [self.bos]
        return result

    def windows(self, share):
        """One epoch: int64 [windows, context+1], BOS first in each.

        Generation begins with BOS, then mostly a speech. So most windows begin
        where a speech does, overlapping a little; the others go on mid-line.
        """
        passages = self.passages()
        order = self.rng.permutation(len(passages))
        words = np.concatenate([np.array(passages[i]) for i in order])
        stream = self.retokenizer.tokens(words, share)
        speeches, position, starts = speech_starts(stream, self.newline_id), 1, []
        while position + self.context <= len(stream):
            starts.append(position)
            position += self.context
            if self.rng.random() < ALIGNED:
                speech = speeches[np.searchsorted(speeches, position, side="right") - 1]
                position = speech if speech > starts[-1] else position  # not where a speech is longer than a window
        windows = stream[np.array(starts)[:, None] + np.arange(-1, self.context)]
        windows[:, 0] = BOS_ID
        return windows[self.rng.permutation(len(starts))]

    def batches(self, size, count):
        """`count` batches, int64 [size, context+1]. Retokenization fades out over them."""
        pool = self.windows(1.0)
        for i in range(count):
            while len(pool) < size:
                pool = np.concatenate([pool, self.windows(1 - i / count)])
            yield pool[:size]
            pool = pool[size:]


def speech_starts(stream, newline):
    """Positions after BOS or after a blank line."""
    after_blank = (stream[1:-1] == newline) & (stream[:-2] == newline)
    after_bos = stream[1:-1] == BOS_ID
    return np.flatnonzero(after_blank | after_bos) + 2
