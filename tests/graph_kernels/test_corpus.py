"""The corpus reader: what it finds, what it refuses, and that it streams."""

import gzip
import io
import tracemalloc

import numpy as np
import pytest

from rankrls.graph_kernels import Dependency, Pair, Token, iter_interaction_corpus
from rankrls.graph_kernels._corpus import overlaps

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<corpus source="Toy">\n'
SENTENCE = """<sentence id="s0" text="AB binds C-D">
 <entity id="e0" charOffset="0-1" text="AB" type="protein"/>
 <entity id="e1" charOffset="9-9,11-11" text="CD" type="protein"/>
 <entity id="e2" charOffset="11-11" text="D" type="protein"/>
 <pair id="p0" e1="e0" e2="e1" interaction="True"/>
 <pair id="p1" e1="e0" e2="e2" interaction="False"/>
 <pair id="p2" e1="e2" e2="e2" interaction="False"/>
 <pair id="p3" e1="e1" e2="e2"/>
 <sentenceanalyses>
  <parses>
   <parse parser="one" tokenizer="words">
    <dependency id="x1" t1="t1" t2="t0" type="nsubj"/>
    <dependency id="x2" t1="t1" t2="t2" type="dobj"/>
   </parse>
   <parse parser="two" tokenizer="split"/>
  </parses>
  <tokenizations>
   <tokenization tokenizer="words">
    <token id="t0" POS="NN" charOffset="0-1" text="AB"/>
    <token id="t1" POS="VBZ" charOffset="3-7" text="binds"/>
    <token id="t2" POS="NN" charOffset="9-11" text="C-D"/>
   </tokenization>
   <tokenization tokenizer="split">
    <token id="u0" POS="NN" charOffset="0-1" text="AB"/>
    <token id="u1" POS="VBZ" charOffset="3-7" text="binds"/>
    <token id="u2" POS="NN" charOffset="9-9" text="C"/>
    <token id="u3" POS="HYPH" charOffset="10-10" text="-"/>
    <token id="u4" POS="NN" charOffset="11-11" text="D"/>
   </tokenization>
  </tokenizations>
 </sentenceanalyses>
</sentence>"""
TAIL = "\n</corpus>\n"
CORPUS = f'{HEAD}<document id="d0">{SENTENCE}</document><document id="d1"/>{TAIL}'


def read(text, **options):
    data = text if isinstance(text, bytes) else text.encode()
    return list(iter_interaction_corpus(io.BytesIO(data), **options))


def test_everything_in_a_sentence():
    documents = read(CORPUS, parser="one")
    assert [document.id for document in documents] == ["d0", "d1"]
    assert documents[1].sentences == ()
    (sentence,) = documents[0].sentences
    assert sentence.id == "s0"
    assert sentence.text == "AB binds C-D"
    assert sentence.tokens == (Token("AB", "NN"), Token("binds", "VBZ"), Token("C-D", "NN"))
    assert sentence.dependencies == (Dependency(1, 0, "nsubj"), Dependency(1, 2, "dobj"))
    assert [entity.tokens for entity in sentence.entities] == [(0,), (2,), (2,)]
    assert [entity.type for entity in sentence.entities] == ["protein"] * 3
    pairs = Pair("p0", 0, 1, True), Pair("p1", 0, 2, False), Pair("p3", 1, 2, None)
    assert sentence.pairs == pairs


def test_the_other_parse_has_its_own_tokens_and_graphs():
    (sentence,) = read(CORPUS, parser="two")[0].sentences
    assert [token.text for token in sentence.tokens] == ["AB", "binds", "C", "-", "D"]
    assert sentence.dependencies == ()
    assert [entity.tokens for entity in sentence.entities] == [(0,), (2, 4), (4,)]
    labels = sentence.graph(sentence.pairs[0]).labels
    assert [node[0] for node in labels[:5]] == ["PROT1", "binds", "PROT2", "-", "PROT2"]
    labels = sentence.graph(sentence.pairs[1]).labels
    assert [node[0] for node in labels[:5]] == ["PROT1", "binds", "PROT", "-", "PROT2"]
    assert sentence.graph(sentence.pairs[1], names=("A", "B", "O")).labels[2][0] == "O"


def test_only_one_document_is_held():
    def stream(n):
        yield HEAD.encode()
        for i in range(n):
            yield f'<document id="d{i}">{SENTENCE}</document>'.encode()
        yield TAIL.encode()

    class File:
        def __init__(self, n):
            self.parts = stream(n)

        def read(self, n_bytes):
            return next(self.parts, b"")

    n = 400  # 0.6 MB of XML, and several times that as objects
    tracemalloc.start()
    assert sum(1 for _ in iter_interaction_corpus(File(n), parser="one")) == n
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('id="s0" ', "", r"<stream>:3: <sentence> has no attribute 'id'"),
        ('t2="t0"', 't2="t9"', r"<stream>:14: <dependency id='x1'> refers to t2='t9'"),
        (' POS="VBZ"', "", r"<token id='t1'> has no attribute 'POS'"),
        ('type="nsubj"', "", "has no attribute 'type'"),
        ('e2="e1"', 'e2="e7"', r"<pair id='p0'> refers to e2='e7'"),
        ('interaction="True"', 'interaction="yes"', "interaction='yes'; it must be 'True'"),
        *(
            ('"9-9,11-11"', f'"{offset}"', r"<entity id='e1'> has charOffset=.*must read like")
            for offset in ("5", "-5", "1-99999999999999999999", "1-2,x", "")
        ),
        ('"9-9,11-11"', '"11-9"', "ends before it begins"),
        ('"9-9,11-11"', '"90-99"', r"<entity id='e1'> covers no token"),
        ('id="e1"', 'id="e0"', "has the id of an earlier element"),
        ('id="t1" POS', 'id="t0" POS', "has the id of an earlier element"),
        ('tokenization tokenizer="words"', 'tokenization tokenizer="w"', "0 tokenizations"),
        ('parser="one"', 'parser="uno"', r"exactly one parse by 'one'; it has: 'uno', 'two'"),
        ('<document id="d0">', "<document>", "<document> has no attribute 'id'"),
        ("</sentence>", "", r"not well-formed XML: mismatched tag"),
        ("<corpus ", "<html ", "begins with <html>, not <corpus>"),
        ('<document id="d1"/>', '<sentence id="s"/>', "<sentence> outside of a <document>"),
    ],
)
def test_errors_say_where(old, new, message):
    assert old in CORPUS
    with pytest.raises(ValueError, match=message):
        read(CORPUS.replace(old, new, 1), parser="one")


BOMB = """<?xml version="1.0"?>
<!DOCTYPE corpus [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<corpus source="&b;"><document id="d"/></corpus>"""
EXTERNAL = """<!DOCTYPE corpus SYSTEM "file:///nowhere.dtd"><corpus source="x"/>"""


ENCODED = '<?xml version="1.0" encoding="{}"?><corpus source="x"/>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "document type declaration"),
        (EXTERNAL, "document type declaration"),
        ('<!DOCTYPE corpus><corpus source="x"/>', "document type declaration"),
        ('<corpus source="x"><document id="&secret;"/></corpus>', "undefined entity"),
        (f'{HEAD}<document id="d">' + "<a>" * 1000, "not well-formed XML"),
        (gzip.compress(CORPUS.encode(), mtime=0)[:-20], "truncated or corrupt"),
        (b"\x00\x01\x02", "not well-formed XML"),
        (b"", "no element found"),
        *(
            (ENCODED.format(name), "<stream>:1: the encoding of the file cannot be read")
            for name in ("no-such", "rot13", "shift_jis", "utf-7")
        ),
        (CORPUS, r"<sentence id='s0'> has 2 parses \('one', 'two'\)"),
    ],
)
def test_files_that_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read(text)


def test_endless_tag_is_refused(monkeypatch):
    monkeypatch.setattr("rankrls.graph_kernels._corpus.MAX_TAG", 200_000)
    with pytest.raises(ValueError, match="a tag or comment is over"):
        read(f'{HEAD}<document id="' + "a" * 1_000_000)


def test_long_tags_are_not_scanned_again_and_again():
    """What expat has not used yet is at most as long as the next piece that it gets."""
    pieces = []

    class Counted(io.BytesIO):
        def read(self, n):
            pieces.append(n)
            return super().read(n)

    text = f'{HEAD}<!--{"x" * 12_000_000}--><document id="d"/>{TAIL}'
    assert [one.id for one in iter_interaction_corpus(Counted(text.encode()))] == ["d"]
    assert len(pieces) < 12  # 46 pieces of 256 KiB


def test_tokens_of_entities_against_a_double_loop():
    rng = np.random.default_rng(0)

    def draw(n):
        begin = rng.integers(0, 60, n)
        return list(zip(begin.tolist(), (begin + rng.integers(0, 6, n)).tolist(), strict=True))

    for _ in range(200):
        tokens = [draw(rng.integers(1, 3)) for _ in range(rng.integers(0, 12))]
        entity = draw(rng.integers(1, 5))
        expected = [
            index
            for index, token in enumerate(tokens)
            if any(a <= d and c <= b for a, b in entity for c, d in token)
        ]
        assert next(overlaps(tokens, [entity])) == tuple(expected)


def test_entities_that_cover_everything(monkeypatch):
    monkeypatch.setattr("rankrls.graph_kernels._corpus.MAX_TOUCHED", 3)
    with pytest.raises(ValueError, match=r"<entity id='e2'> and those before it cover over 3"):
        read(CORPUS.replace('"11-11" text="D" type', '"0-99" text="D" type'), parser="one")
