"""Mutated data: LETOR, CSV, Parquet, TREC and XML files, some of them compressed."""

from __future__ import annotations

import contextlib
import io
import json

import numpy as np

from fuzz import Target
from fuzz_mutators import BINARY, TEXT, mutated
from graph_kernels.test_corpus import CORPUS
from rankrls.datasets import (
    iter_letor,
    iter_ranking,
    load_csv,
    load_group,
    load_letor,
    load_preferences,
    load_qrels,
    load_ranking,
    load_run,
)
from rankrls.graph_kernels import iter_interaction_corpus

LETOR = b"".join(
    b"%d qid:%d 1:%.3f 2:%d 7:1e-3 # doc %d\n" % (i % 3, i // 4, i / 7, i, i) for i in range(24)
)

CSV = b"rel,qid,a,b c,d\n" + b"".join(
    b'%d,"q%d",%.3f,%d,"%d"\n' % (i % 3, i // 4, i / 7, i, -i) for i in range(24)
)

RUN = b"".join(b"q%d Q0 d%d %d %.3f me\n" % (i // 4, i, i % 4 + 1, -i / 7) for i in range(24))
QRELS = b"".join(b"q%d 0 d%d %d\n" % (i // 4, i, i % 3) for i in range(24))


WORDS = b"rel,qid,a,word,note\n" + b"".join(
    b'%d,q%d,%.3f,w%d,"no, %d"\n' % (i % 3, i // 4, i / 7, i % 5, i) for i in range(24)
)


JUDGEMENTS = b"model_a,model_b,winner,judge\n" + b"".join(
    b"m%d,m%d,%b,%d\n" % (i % 5, i % 5 + 1, [b"a", b"b", b"tie"][i % 3], i % 4) for i in range(24)
)

LINES = b"".join(
    json.dumps({"chosen": f"m{i % 5}", "rejected": f"m{i % 5 + 1}"}).encode() + b"\n"
    for i in range(24)
)


def parquet(folder):
    """A small table; None without pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return None
    columns = {"rel": np.arange(24) % 3, "qid": np.arange(24) // 4, "a": np.arange(24.0) / 7}
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream)
    return stream.getvalue()


def read_letor(path):
    load_letor(path)
    for _ in iter_letor(path, rows=8, n_features=7):
        pass


def read_csv(path):
    load_csv(path, target="rel", qid="qid")
    load_ranking(path, format="csv")


def read_text(path):
    rows = load_ranking(path, format="csv", text="auto", missing="nan")
    for name in rows.data.columns:
        assert len(rows.data[name]) == len(rows.target)


def read_parquet(path):
    load_ranking(path, format="parquet")
    for _ in iter_ranking(path, format="parquet"):
        pass


def read_judgements(path):
    data = load_preferences(path, format="csv")
    assert data.pairs.max() < len(data.item_names)


def read_lines(path):
    load_preferences(path, format="jsonl", items=[f"m{i}" for i in range(6)], unknown="drop")


def read_any(path):
    load_ranking(path)


def read_corpus(path):
    for document in iter_interaction_corpus(path, parser="one"):
        assert document.sentences is not None


#: Name: (a file that is right, or a function that makes it; mutators; reader).
KINDS = {
    "letor": (LETOR, TEXT, read_letor),
    "csv": (CSV, TEXT, read_csv),
    "text": (WORDS, TEXT, read_text),
    "any": (LETOR, [*TEXT, *BINARY], read_any),
    "parquet": (parquet, BINARY, read_parquet),
    "judgements": (JUDGEMENTS, TEXT, read_judgements),
    "lines": (LINES, TEXT, read_lines),
    "run": (RUN, TEXT, load_run),
    "qrels": (QRELS, TEXT, load_qrels),
    "group": (b"3\n17\n0\n4\n" * 6, TEXT, load_group),
    "xml": (CORPUS.encode(), TEXT, read_corpus),
}


def target(*names):
    """Mutants of these kinds of files in turn."""

    def prepare(folder):
        files = {name: KINDS[name][0] for name in names}
        return {n: made(folder) if callable(made) else made for n, made in files.items()}

    def make(files, seed, path):
        name = names[seed % len(names)]
        rng = np.random.default_rng(seed)
        path.write_bytes(b"" if files[name] is None else mutated(files[name], rng, KINDS[name][1]))
        return name

    def read(files, path, name):
        KINDS[name][2](path)
        return f"read-{name}"

    def warm_up(files, path):
        for name, content in files.items():
            path.write_bytes(content or b"")
            with contextlib.suppress(ValueError):
                read(files, path, name)

    return Target(prepare, make, read, warm_up)


#: All kinds together, and each alone.
TARGETS = {"tables": target(*KINDS), **{name: target(name) for name in KINDS}}
