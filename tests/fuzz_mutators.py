"""Functions ``mutate(content, rng)`` of bytes: what files of any kind, and text files, suffer."""

from __future__ import annotations

import gzip

#: Bytes of an input that do not become more.
LARGE = 2**20


def flip_bytes(content, rng):
    out = bytearray(content)
    for position in rng.integers(len(out), size=rng.integers(1, 9)):
        out[position] ^= int(rng.integers(1, 256))
    return bytes(out)


def cut_and_paste(content, rng):
    """Remove, repeat or overwrite a block, or all that follows."""
    start, stop = sorted(rng.integers(0, len(content) + 1, 2).tolist())
    block = content[start:stop]
    at = int(rng.integers(len(content) + 1))
    choices = [
        content[:start] + content[stop:],
        content[:at] + block[:2000] + content[at:],
        content[:start] + rng.bytes(len(block)) + content[stop:],
        content[:start],
        content[:start] + bytes(len(block)) + content[stop:],
    ]
    return choices[rng.integers(len(choices))]


#: What numbers, words and separators of text files become.
WORDS = [
    *(b"", b"0", b"-1", b"-0.0", b"1e999", b"nan", b"NaN", b"inf", b"-inf", b"NULL", b"true"),
    *(b"2147483647", b"2147483648", b"-2147483648", b"9223372036854775808", b"1" * 400, b"1_0"),
    *(b"0x10", b"1e-400", b"\xd9\xa1", b"\x00", b"\x1f", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b'"'),
    *(
        b"4.9e-324",
        b"18446744073709551616",
        b"1e-999",
        b"+-1",
        b"1.2.3",
        b"\xe2\x80\xa8",
        b'"2\x1f3"',
    ),
    *(b" -3:1", b" 1:1 1:1", b" 0:1", b"qid:\0", b",,,,", b'","', b"<!--", b"-->", b"<![CDATA["),
    *(b"<!DOCTYPE corpus [<!ENTITY a 'b'>]>", b'encoding="x"', b'charOffset="5-1"', b"</a>"),
    *(b'"\n"', b"'", b"#", b"qid:", b":", b"::", b"\t", b" ", b"x" * 5000, b"&#0;", b"<", b"&a;"),
]

#: What stands between words.
SEPARATORS = b" \t\n\r,;:\"'<>=/#"


def replace_word(content, rng):
    """Another word in place of one or of a separator."""
    where = [i for i, byte in enumerate(content[:20_000]) if byte in SEPARATORS]
    if len(where) < 2:
        return content
    for _ in range(rng.integers(1, 4)):
        i = int(rng.integers(len(where) - 1))
        start, stop = where[i] + 1, where[i + 1]
        if rng.integers(3) == 0:
            start, stop = where[i], where[i] + 1
        content = content[:start] + WORDS[rng.integers(len(WORDS))] + content[stop:]
    return content


def insert_much(content, rng):
    """A long word, comment, number or row of separators somewhere."""
    size = int(rng.choice([1000, 30_000, 300_000]))
    choices = [
        b"x" * size,
        b"9" * size,
        b" 1:1" * (size // 4),
        b"," * size,
        b"\n" * size,
        b"<!--" + b"-x" * (size // 2) + b"-->",
        b"<a>" * (size // 100),
        b"<a/>" * (size // 4),
    ]
    at = int(rng.integers(len(content) + 1))
    return content[:at] + choices[rng.integers(len(choices))] + content[at:]


def change_lines(content, rng):
    """Lines in another order, joined, repeated or removed."""
    lines = content.split(b"\n")
    i, j = (int(k) for k in rng.integers(len(lines), size=2))
    often = min(int(rng.choice([2, 100, 3000])), LARGE // (len(lines[i]) + 1) + 1)
    choices = [
        lambda: [*lines[:i], *lines[i + 1 :]],
        lambda: [*lines[:i], lines[j], *lines[i + 1 :]],
        lambda: [*lines[:i], *[lines[i]] * often, *lines[i + 1 :]],
        lambda: [*lines[:i], b"".join(lines[i : i + 2]), *lines[i + 2 :]],
        lambda: [*lines[:i], lines[i] * often, *lines[i + 1 :]],
        lambda: [*lines[:i], b"", b" ", *lines[i:]],
    ]
    return b"\n".join(choices[rng.integers(len(choices))]())


def compress(content, rng):
    """Compressed, sometimes cut off or damaged afterwards."""
    times = min(int(rng.choice([1, 1, 1, 50, 2000])), LARGE // len(content) + 1)
    zipped = gzip.compress(content * times, mtime=0)
    kind = rng.integers(4)
    if kind == 0:
        return zipped[: rng.integers(len(zipped))]
    if kind == 1:
        return flip_bytes(zipped, rng)
    return zipped + zipped if kind == 2 else zipped


#: Of text files.
TEXT = [
    flip_bytes,
    cut_and_paste,
    replace_word,
    replace_word,
    replace_word,
    change_lines,
    insert_much,
    compress,
]

#: Of any file.
BINARY = [flip_bytes, flip_bytes, cut_and_paste]


def mutated(content, rng, mutators):
    """One to three of the mutators in turn."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        if 0 < len(content) < LARGE:
            content = mutators[rng.integers(len(mutators))](content, rng)
    return content
