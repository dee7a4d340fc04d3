"""A 5-gram baseline: interpolated modified Kneser-Ney (Chen and Goodman, 1999)."""

import math
from collections import Counter, defaultdict


class KneserNey:
    """Counts over sequences of symbols; each sequence is padded in front with `start`."""

    def __init__(self, sequences, order, vocabulary, start):
        self.order, self.vocabulary, self.start = order, vocabulary, start
        counts = Counter()
        for sequence in sequences:
            padded = [start] * (order - 1) + list(sequence)
            for i in range(order - 1, len(padded)):
                counts[tuple(padded[i - order + 1:i + 1])] += 1
        self.levels = []
        for _ in range(order):
            self.levels.append(Level(counts))
            counts = Counter(gram[1:] for gram in counts)  # in how many contexts each was seen
        self.levels.reverse()  # levels[n-1] holds n-grams

    def probability(self, history, symbol):
        """P(symbol | history), interpolated down to uniform over the vocabulary."""
        p = 1 / self.vocabulary
        for n, level in enumerate(self.levels):
            context = tuple(history[len(history) - n:])
            p = level.interpolate(context, symbol, p)
        return p

    def nats(self, sequence):
        """Total negative log likelihood of the sequence's symbols."""
        padded = [self.start] * (self.order - 1) + list(sequence)
        return -sum(
            math.log(self.probability(padded[i - self.order + 1:i], padded[i]))
            for i in range(self.order - 1, len(padded)))


class Level:
    """The grams of one length, their discounts and their contexts' back-off mass."""

    def __init__(self, counts):
        self.counts = counts
        self.discounts = discounts(counts)
        self.totals, self.mass = Counter(), defaultdict(float)
        for gram, count in counts.items():
            self.totals[gram[:-1]] += count
            self.mass[gram[:-1]] += self.discounts[min(count, 3)]

    def interpolate(self, context, symbol, lower):
        total = self.totals.get(context)
        if not total:
            return lower
        count = self.counts.get(context + (symbol,), 0)
        kept = count - self.discounts[min(count, 3)]
        return (kept + self.mass[context] * lower) / total


def discounts(counts):
    """D1, D2 and D3+ from the counts of counts; index 0 is no discount."""
    of = Counter(min(c, 5) for c in counts.values())
    if not all(of[i] for i in (1, 2, 3, 4)):
        return [0.0, 0.5, 0.5, 0.5]
    y = of[1] / (of[1] + 2 * of[2])
    return [0.0] + [i - (i + 1) * y * of[i + 1] / of[i] for i in (1, 2, 3)]


def baselines(training, held_out, encode, vocab_size, order=5):
    """Nats per held-out character of a character and a token 5-gram: {name: nats}."""
    characters = sum(len(text) for text in held_out)
    alphabet = len(set("".join(training + held_out)))
    by_char = KneserNey(training, order, alphabet, None)
    by_token = KneserNey([encode(t) for t in training], order, vocab_size, None)
    return {
        "character": sum(by_char.nats(t) for t in held_out) / characters,
        "token": sum(by_token.nats(encode(t)) for t in held_out) / characters,
    }
