"""A generated language whose entropy is known: what a fitted E can be held against. A pure function of a seed.

A document of `words` begins with a start token and a word that names its topic. Every further word follows the one
before it (3 in 8), belongs to the topic (2 in 8) or is drawn from the lexicon (3 in 8):

    p(w' | w, topic) = 3/8 S(w, w') + 2/8 T(topic, w') + 3/8 U(w')

U is Zipf-Mandelbrot over 65,536 words, T its share for the words of one of 8 topics, S puts 4, 2, 1 and 1 eighths on
the four followers of w. A word is one to three syllables and a space, so text spells its words in one way only, and the
topic and the word before are always in sight: the probability of every byte given those before it is a sum of known
terms. Frequent words, then their followers and topics, are learnt first and rare ones last, over many decades of data
and size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

START = 0xFF
# Counts in the hash of every manifest: a change of the language is another language.
VERSION = 1

WORDS = 2**16
TOPICS = 8
FOLLOWERS = np.array([4, 2, 1, 1]) / 8
FOLLOW, TOPIC, FREE = 3 / 8, 2 / 8, 3 / 8

_CONSONANTS = np.frombuffer(b"bcdfghjklmnpqrstvwxz", np.uint8)
_VOWELS = np.frombuffer(b"aeiou", np.uint8)
_SYLLABLES = 100
# Bytes of a word, its space included, and the ranks of the words that have so many.
_RANKS = {3: slice(0, 64), 5: slice(64, 4096), 7: slice(4096, WORDS)}
_LONGEST = 7
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NAMES = 64  # ranks 64 to 71 name the topics; those below belong to none
_AT_ONCE = 2**18  # words (in `nats`, bytes) worked on together: bounds memory
_PICK = np.repeat(np.arange(4), [4, 2, 1, 1])  # three bits to a follower, as FOLLOWERS says
_FIRST = np.tri(9, 8, -1, dtype=np.uint8).view(np.uint64)[:, 0]  # row k: eight bytes, the first k of them 1

Words64 = NDArray[np.uint64]


def mix(x: ArrayLike) -> Words64:
    """SplitMix64: unsigned 64-bit integers, each replaced by one that looks random."""
    z = np.atleast_1d(np.asarray(x, np.uint64)) + _GOLDEN
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def permuted(index: ArrayLike, size: int, seed: int) -> NDArray[np.int64]:
    """Where a keyed permutation of 0, ..., size - 1 puts each index, without holding the permutation.

    A Feistel network over the next power of two; what lands outside goes through again until it lands inside.
    """
    left_bits = max(1, (size - 1).bit_length() // 2)
    right_bits = np.uint64(max(1, (size - 1).bit_length() - left_bits))
    left_mask, right_mask = np.uint64(2**left_bits - 1), np.uint64(2 ** int(right_bits) - 1)
    keys = mix(mix(_unsigned(seed)) + np.arange(8, dtype=np.uint64))
    found = np.array(index, np.uint64, ndmin=1)
    going = np.arange(found.size)
    flat = found.reshape(-1)
    while going.size:
        left, right = flat[going] >> right_bits, flat[going] & right_mask
        for first, second in keys.reshape(4, 2):
            left ^= mix(right ^ first) & left_mask
            right ^= mix(left ^ second) & right_mask
        flat[going] = left << right_bits | right
        going = going[flat[going] >= size]
    return found.astype(np.int64)


def _unsigned(value: int) -> Words64:
    """Python integers wrap around at 64 bits; numpy's refuse to."""
    return np.array(value % 2**64, np.uint64)


@dataclass(frozen=True)
class Words:
    """The language `words` of a seed; other seeds have other spellings, followers and topics."""

    seed: int = 0

    def rows(self, index: ArrayLike, context: int, stream: int = 0) -> NDArray[np.uint8]:
        """Documents of a stream by their index: the start token and `context` bytes, the last word cut."""
        index = np.array(index, np.uint64, ndmin=1)
        keys = mix(mix(mix(_unsigned(self.seed)) + _unsigned(stream)) + index * _GOLDEN)
        # No fewer than 5.3 bytes a word on average, and never fewer than 3.
        guess = context // 5 + 4
        step = max(1, _AT_ONCE // guess)
        pieces = [self._some(keys[at : at + step], context, guess) for at in range(0, len(keys), step)]
        return np.concatenate(pieces) if pieces else np.empty((0, context + 1), np.uint8)

    def _some(self, keys: Words64, context: int, guess: int) -> NDArray[np.uint8]:
        tables = _tables(self.seed)
        words = tables.draw(keys, 0, guess, None)
        while True:
            ends = np.cumsum(tables.length[words], axis=0, dtype=np.int32)
            if ends[-1].min() >= context:
                break
            more = tables.draw(keys, len(words), guess // 4 + 2, words)
            words = np.concatenate([words, more])
        ends = np.ascontiguousarray(ends.T)
        words_nw = np.ascontiguousarray(words.T)
        lengths = tables.length[words_nw]
        lengths -= np.clip(ends - context, 0, lengths).astype(np.uint8)
        spelt = tables.spelling[words_nw].view(np.uint8)
        keep = _FIRST[lengths].view(np.bool_)
        rows = np.full((len(keys), context + 1), START, np.uint8)
        rows[:, 1:] = spelt[keep].reshape(len(keys), context)
        return rows

    def nats(self, rows: ArrayLike) -> NDArray[np.float64]:
        """What each byte after the start token costs under the language itself, given the bytes before it in its row.

        Infinite from the first byte on that the language cannot say. The mean over held-out rows is the loss that no
        model can beat on those very rows.
        """
        rows = np.asarray(rows)
        if rows.shape[1] < 2:
            return np.zeros((len(rows), 0))
        step = max(1, _AT_ONCE // rows.shape[1])
        pieces = [_tables(self.seed).nats(rows[at : at + step, 1:]) for at in range(0, len(rows), step)]
        return np.concatenate(pieces) if pieces else np.zeros((0, rows.shape[1] - 1))

    def log_probability(self, text: bytes | str) -> float:
        """Of a document that begins with this text; minus infinity for text that is not of the language."""
        raw = text.encode() if isinstance(text, str) else text
        return -float(self.nats(np.frombuffer(bytes([START]) + raw, np.uint8)[None]).sum())

    @cached_property
    def entropy_rate(self) -> float:
        """Nats per byte in the limit of long documents: nats per word over bytes per word, a mean over topics."""
        tables = _tables(self.seed)
        return float(np.mean([tables.rate(topic) for topic in range(TOPICS)]))

    def entropy(self, context: int) -> NDArray[np.float64]:
        """Exact nats of each byte of a row of `context` bytes, given those before it; falls to `entropy_rate`.

        Their mean is the E that a fit of losses on rows of this length should find.
        """
        return _entropy(self.seed, context).copy()


@lru_cache(maxsize=16)
def _entropy(seed: int, context: int) -> NDArray[np.float64]:
    return np.mean([_tables(seed).positions(topic, context) for topic in range(TOPICS)], axis=0)


@lru_cache(maxsize=4)
def _tables(seed: int) -> _Tables:
    return _Tables(seed)


class _Tables:
    """What a seed makes of the language: spellings, followers, topics, and how words are drawn."""

    def __init__(self, seed: int):
        base = mix(_unsigned(seed) ^ np.uint64(0x776F726473))
        sub = [int(mix(base + np.uint64(k))[0]) for k in range(5)]
        self.spelling, self.length = _spelt(sub[:3])
        # Whole numbers, so that no machine's rounding makes another language.
        lexicon = [2**40 // (10 * rank + 27) for rank in range(WORDS)]
        blocks = [sum(lexicon[at : at + TOPICS]) if at >= _NAMES else 0 for at in range(0, WORDS, TOPICS)]
        free, in_topic = _alias(lexicon), _alias(blocks)
        self.keep = np.concatenate([free[0], in_topic[0]])
        self.other = np.concatenate([free[1], WORDS + in_topic[1]])
        self.free, self.block = _exact(*free), _exact(*in_topic)
        self.shift = (mix(np.arange(len(blocks), dtype=np.uint64) + np.uint64(sub[3])) % np.uint64(TOPICS)).astype(
            np.intp
        )
        bits = mix(np.arange(WORDS * len(FOLLOWERS), dtype=np.uint64) + np.uint64(sub[4]))
        slot = (bits >> np.uint64(16) & np.uint64(WORDS - 1)).astype(np.intp)
        self.followers = self._drawn(bits, slot).reshape(len(FOLLOWERS), WORDS)

    def _drawn(self, bits: Words64, slot: NDArray[np.intp]) -> NDArray[np.intp]:
        return np.where((bits >> np.uint64(32)) < self.keep[slot], slot, self.other[slot])

    def of_topic(self, block: NDArray[np.intp], topic: NDArray[np.intp] | int) -> NDArray[np.intp]:
        """The one word of a topic among each eight of neighbouring rank."""
        return block * TOPICS + (topic - self.shift[block]) % TOPICS

    def draw(self, keys: Words64, first: int, count: int, before: NDArray[np.intp] | None) -> NDArray[np.intp]:
        """Words first, ..., first + count - 1 of each document (down), for each key (across)."""
        places = np.arange(first, first + count, dtype=np.uint64) * _GOLDEN
        bits = mix(keys + places[:, None])
        kind = bits & np.uint64(7)
        slot = (bits >> np.uint64(16) & np.uint64(WORDS - 1)).astype(np.intp)
        topical = (kind == 3) | (kind == 4)
        slot = np.where(topical, WORDS + slot % (WORDS // TOPICS), slot)
        fresh = self._drawn(bits, slot)
        names = _NAMES + (bits[0] % np.uint64(TOPICS)).astype(np.intp) if before is None else before[0]
        topic = self.topic_of(names)
        down, across = np.nonzero(topical)
        fresh[down, across] = self.of_topic(fresh[down, across] - WORDS, topic[across])
        pick = WORDS * _PICK[(bits >> np.uint64(3) & np.uint64(7)).astype(np.intp)]
        follower = self.followers.reshape(-1)
        follows = kind < 3
        last = names if before is None else before[-1]
        for place in range(count):
            if before is None and place == 0:
                fresh[0] = names
                continue
            np.copyto(fresh[place], follower[pick[place] + last], where=follows[place])
            last = fresh[place]
        return fresh

    def topic_of(self, words: NDArray[np.intp]) -> NDArray[np.intp]:
        """Which topic each word belongs to; the 64 most frequent belong to none."""
        return (words + self.shift[words // TOPICS]) % TOPICS

    # Probabilities

    def fresh(self, topic: int) -> NDArray[np.float64]:
        """What a word is when it does not follow the one before it, by rank."""
        p = FREE * self.free
        p[self.of_topic(np.arange(len(self.block)), topic)] += TOPIC * self.block
        return p

    @cached_property
    def sorted_codes(self) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """Words in the order of their spelling, and the spellings as numbers: 5 bits a letter, a space is 0."""
        digits = np.where(np.arange(8) < self.length[:, None] - 1, self.letters.astype(np.int64) - 96, 0)
        codes = digits @ (1 << 5 * np.arange(7, -1, -1, dtype=np.int64))
        order = np.argsort(codes)
        return order, codes[order]

    @property
    def letters(self) -> NDArray[np.uint8]:
        """Spellings as bytes, eight a word."""
        return self.spelling.view(np.uint8).reshape(WORDS, 8)

    @cached_property
    def below(self) -> NDArray[np.float64]:
        """Fresh probability of all words spelt before a place in that order, by topic; last, of the topics' names."""
        order, _ = self.sorted_codes
        names = np.where((np.arange(WORDS) >= _NAMES) & (np.arange(WORDS) < _NAMES + TOPICS), 1 / TOPICS, 0.0)
        each = np.array([*(self.fresh(topic) for topic in range(TOPICS)), names])[:, order]
        return np.concatenate([np.zeros((TOPICS + 1, 1)), np.cumsum(each, axis=1)], axis=1)

    def nats(self, text: NDArray[np.integer]) -> NDArray[np.float64]:
        """By byte, -ln p of the prefix of its word that ends there, less that of the prefix before."""
        order, codes = self.sorted_codes
        n, width = text.shape
        place = np.arange(width)
        space = text == 32
        begins = np.zeros((n, width), np.intp)  # where the word of each byte begins
        begins[:, 1:] = np.maximum.accumulate(np.where(space, place + 1, 0), axis=1)[:, :-1]
        depth = place - begins
        digit = np.where((text >= 97) & (text <= 122), text.astype(np.int64) - 96, 31)
        digit[space] = 0
        too_long = depth >= _LONGEST
        worth = np.where(too_long, 0, digit << 5 * (7 - np.minimum(depth, 7)))
        total = np.cumsum(worth, axis=1)
        row = np.arange(n)[:, None]
        code = total - np.where(begins > 0, total[row, begins - 1], 0)
        low = np.searchsorted(codes, code)
        high = np.searchsorted(codes, code + (1 << 5 * (7 - np.minimum(depth, 7))))
        high[too_long] = low[too_long]
        word = order[np.minimum(low, WORDS - 1)]  # right where a word of the language ends
        last = word[row, begins - 1]
        opening = begins == 0
        # A row that begins with no name has probability 0 from there on, whatever its topic is taken to be.
        first_end = np.minimum(np.argmax(space, axis=1), width - 1)[:, None]
        topic = np.where(opening, TOPICS, self.topic_of(word[row, first_end]))
        p = self.below[topic, high] - self.below[topic, low]
        rank = np.empty(WORDS, np.intp)
        rank[order] = np.arange(WORDS)
        for follower, share in zip(rank[self.followers], FOLLOWERS, strict=True):
            at = follower[last]
            p += np.where((low <= at) & (at < high) & ~opening, FOLLOW * share, 0.0)
        p[low == high] = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            log_p = np.log(p)
            nats = np.where(depth == 0, 0.0, np.concatenate([np.zeros((n, 1)), log_p[:, :-1]], axis=1)) - log_p
        return np.where(np.logical_or.accumulate(p <= 0, axis=1), np.inf, nats)

    # Entropies

    @cached_property
    def prefixes(self) -> list[tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]]:
        """For 1 to 7 bytes: which prefix each word has, and for its followers the weight of all that share theirs.

        The last of the three counts a prefix once however many followers share it.
        """
        order, codes = self.sorted_codes
        found = []
        for depth in range(1, _LONGEST + 1):
            cut = codes >> 5 * (8 - depth)
            prefix = np.empty(WORDS, np.intp)
            prefix[order] = np.concatenate([[0], np.cumsum(cut[1:] != cut[:-1])])
            theirs = prefix[self.followers]
            weight = sum(share * (theirs == other) for share, other in zip(FOLLOWERS, theirs, strict=True))
            found.append((prefix, FOLLOW * weight, FOLLOWERS[:, None] / weight))
        return found

    def byte_entropies(self, topic: int) -> NDArray[np.float64]:
        """Of byte 1, ..., 7 of the next word given those before it (0 once it has ended), for each word before."""
        p = self.fresh(topic)
        whole = np.zeros((_LONGEST + 1, WORDS))  # of the first bytes together
        for depth, (prefix, weight, once) in enumerate(self.prefixes, start=1):
            mass = np.bincount(prefix, p)
            terms = _x_ln_x(mass)
            theirs = prefix[self.followers]
            changed = terms[theirs] - _x_ln_x(mass[theirs] + weight)
            whole[depth] = (once * changed).sum(0) - terms.sum()
        return np.diff(whole, axis=0)

    def step(self, p: NDArray[np.float64], fresh: NDArray[np.float64]) -> NDArray[np.float64]:
        """How the next word is distributed, if the word before is distributed like p (which need not add up to 1)."""
        found = p.sum() * fresh
        for follower, share in zip(self.followers, FOLLOWERS, strict=True):
            found += FOLLOW * share * np.bincount(follower, p, WORDS)
        return found

    def rate(self, topic: int) -> float:
        """Nats per byte of an endless document of a topic."""
        fresh = self.fresh(topic)
        p = fresh / fresh.sum()
        while True:  # each round divides what is missing by at least 8/3
            p, before = self.step(p, fresh), p
            if np.abs(p - before).sum() < 1e-13:
                return float(self.byte_entropies(topic).sum(0) @ p / (self.length @ p))

    def positions(self, topic: int, context: int) -> NDArray[np.float64]:
        """Nats of each byte of a document of a topic, by how words may end at each byte before it."""
        rate = self.rate(topic)
        entropies, fresh = self.byte_entropies(topic), self.fresh(topic)
        found = np.zeros(max(context, _LONGEST) + 2 * _LONGEST)
        names = self.prefixes_of_names
        found[: len(names)] = names
        ending = np.zeros((8, WORDS))  # probability that a word ends at a byte (modulo 8), by word
        ending[len(names), self.of_topic(np.array([_NAMES // TOPICS]), topic)] = 1
        for byte in range(len(names), context):
            here = ending[byte % 8]
            found[byte : byte + _LONGEST] += entropies @ here
            following = self.step(here, fresh)
            here[:] = 0
            for length, ranks in _RANKS.items():
                ending[(byte + length) % 8, ranks] = following[ranks]
            if byte > 4 * _LONGEST and np.abs(found[byte - 2 * _LONGEST : byte + 1] - rate).max() < 1e-8:
                found[byte + 1 :] = rate
                break
        return found[:context]

    @cached_property
    def prefixes_of_names(self) -> NDArray[np.float64]:
        """Nats of each byte of a document's first word."""
        letters = self.letters[_NAMES : _NAMES + TOPICS]
        length = int(self.length[_NAMES])
        shares = [np.unique(letters[:, :depth], axis=0, return_counts=True)[1] / TOPICS for depth in range(length + 1)]
        return np.diff([-_x_ln_x(share).sum() for share in shares])


def _x_ln_x(x: NDArray[Any]) -> NDArray[np.float64]:
    return x * np.log(x)


def _spelt(seeds: list[int]) -> tuple[Words64, NDArray[np.uint8]]:
    """Each word as eight bytes in one number, and how many of them count."""
    text = np.full((WORDS, 8), ord(" "), np.uint8)
    length = np.empty(WORDS, np.uint8)
    for syllables, (size, ranks) in enumerate(_RANKS.items(), start=1):
        length[ranks] = size
        number = permuted(np.arange(ranks.stop - ranks.start), _SYLLABLES**syllables, seeds[syllables - 1])
        for place in range(syllables):
            number, syllable = np.divmod(number, _SYLLABLES)
            text[ranks, 2 * place] = _CONSONANTS[syllable // len(_VOWELS)]
            text[ranks, 2 * place + 1] = _VOWELS[syllable % len(_VOWELS)]
    return text.view(np.uint64)[:, 0], length


def _alias(weights: list[int]) -> tuple[Words64, NDArray[np.intp]]:
    """Walker's tables, in whole numbers: slot i gives i if a 32-bit coin is below keep[i], and other[i] if not."""
    n, total = len(weights), sum(weights)
    left = [weight * n for weight in weights]
    keep, other = [2**32] * n, list(range(n))
    small = [i for i in range(n) if left[i] < total]
    large = [i for i in range(n) if left[i] >= total]
    while small and large:
        low, high = small.pop(), large[-1]
        keep[low], other[low] = left[low] * 2**32 // total, high
        left[high] -= total - left[low]
        if left[high] < total:
            small.append(large.pop())
    return np.array(keep, np.uint64), np.array(other, np.intp)


def _exact(keep: Words64, other: NDArray[np.intp]) -> NDArray[np.float64]:
    """The probabilities that the tables give, roundings of the coin included."""
    stays = keep / 2.0**32
    return (stays + np.bincount(other, 1 - stays, len(keep))) / len(keep)
