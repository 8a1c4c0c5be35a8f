"""A small byte-level BPE vocabulary, trained on a few sentences, for the tiny test models.

It has the shape of the real one: 256 byte characters, then one entry per merge, then the added tokens. `assistant` and
`user` are single tokens (the prompt slices depend on it), a blank line is one token as in the real vocabulary (so that
leading line feeds of a text fuse with the one of the template), and some merges begin with `#`.
"""

from __future__ import annotations

import re
from collections import Counter

from snapshot import byte_characters

MERGES = 352

# Only decides which pairs merge. Words repeat on purpose: what occurs once never becomes a token of its own.
CORPUS = """
The quick brown fox jumps over the lazy dog. Hello, world! Please read this text aloud, slowly and clearly.
She said that the other voices were there; they have been here, and nothing was heard in the house.
Speak in a warm, low voice with a little laughter. A calm and friendly speaker, very clear, very happy.
What is the time? It is half past nine. One, two, three, four, five, six, seven, eight, nine, ten.
Where are you going? I'm going to the station, and I'll be there in an hour. Don't wait, we're late.
Der schnelle braune Fuchs springt über den faulen Hund. Guten Morgen, wie geht es dir? Schöne Grüße aus München.
Le petit chat est assis sur la chaise. Où est la gare? Ça va très bien, merci beaucoup.
El perro corre por la calle. ¿Dónde está la biblioteca? Mañana será otro día.
你好,世界。今天天气很好,我们一起去公园。请慢慢地读这段文字。我是中国人。你们好吗?今天是星期一。
こんにちは、世界。今日はとても良い天気です。これはテストです。ありがとうございます。私は学生です。
नमस्ते दुनिया। आज मौसम बहुत अच्छा है। यह एक परीक्षा है। धन्यवाद।
مرحبا بالعالم. كيف حالك اليوم؟ هذا اختبار بسيط. شكرا جزيلا.
안녕하세요 세계. 오늘 날씨가 좋습니다. 감사합니다.
Привет, мир. Сегодня хорошая погода. Спасибо большое. Как дела?
## # ### #include #define #define #1 #2 ## heading ### heading #tags
"""

# What the prompts rely on, whatever the corpus does to the other pairs.
REQUIRED = ("assistant", "user", "\n\n", "##", "###", "#include", "#tag")


def chain(word: str) -> list[tuple[str, str]]:
    """Merges that build one word from the left."""
    return [(word[:i], word[i]) for i in range(1, len(word))]


def byte_alphabet() -> dict[int, str]:
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    order = printable + [b for b in range(256) if b not in set(printable)]
    return dict(zip(order, byte_characters()))


def pieces(text: str) -> Counter:
    """A plain split (letters with one leading character, or punctuation) is enough for training."""
    alphabet = byte_alphabet()
    found: Counter = Counter()
    for piece in re.findall(r"[^\n\w]?[^\W\d_]+|\d| ?[^\s\w]+", text):
        found[tuple(alphabet[b] for b in piece.encode())] += 1
    return found


def join(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    out, i = [], 0
    while i < len(word):
        if word[i : i + 2] == pair:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def apply(words: Counter, pair: tuple[str, str]) -> Counter:
    merged: Counter = Counter()
    for word, count in words.items():
        merged[join(word, pair)] += count
    return merged


def train() -> list[tuple[str, str]]:
    """The merge list: the required words first, then the most frequent pairs (ties by code point order)."""
    alphabet = byte_alphabet()
    merges: list[tuple[str, str]] = []
    for word in REQUIRED:
        for pair in chain("".join(alphabet[b] for b in word.encode())):
            if pair not in merges:
                merges.append(pair)
    words = pieces(CORPUS)
    for pair in merges:
        words = apply(words, pair)
    made = {a + b for a, b in merges}
    while len(merges) < MERGES:
        pairs: Counter = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                if pair[0] + pair[1] not in made:
                    pairs[pair] += count
        pair = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(pair)
        made.add(pair[0] + pair[1])
        words = apply(words, pair)
    return merges
