"""Records of scikit-learn's vectorizers of text and of feature dicts."""

from __future__ import annotations

import codecs
import re
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import numpy as np

from rankrls._validation import show
from rankrls.io._kinds import (
    COUNT,
    FLAG,
    LISTING,
    NAMES,
    NUMBER_TYPE,
    SIZE,
    TEXT,
    array,
    either,
    instance,
    maybe,
    optional,
    require,
    tuple_of,
)
from rankrls.io._stored_steps import step

__all__ = ["VECTORIZERS"]

#: Maximum number of words or characters in an n-gram.
MAX_NGRAM = 50

#: Maximum length and number of repetitions of a regular expression for tokens.
MAX_PATTERN, MAX_REPEATS = 200, 2

_WORDS = maybe(either(TEXT, LISTING))

PARAMS = {
    "dtype": NUMBER_TYPE,
    "ngram_range": tuple_of(SIZE, SIZE),
    "stop_words": _WORDS,
    "vocabulary": maybe(LISTING),
    "preprocessor": maybe(TEXT),
    "tokenizer": maybe(TEXT),
    "analyzer": TEXT,
    "token_pattern": maybe(TEXT),
}


def _function(name: str) -> str:
    return (
        f"{name} is a function, which is not stored as data: apply it to the text before the "
        "pipeline, or save the model by skops (see the guide)"
    )


ADVICE = {name: _function(name) for name in ("preprocessor", "tokenizer", "analyzer")}


def _check_words(vectorizer: Any) -> None:
    """Raise an error if the vectorizer reads files or can be slow: the file is not trusted."""
    kind = type(vectorizer).__name__
    require(vectorizer.input == "content", f"a {kind} that reads files")
    low, high = vectorizer.ngram_range
    require(1 <= low <= high <= MAX_NGRAM, f"a {kind} of n-grams of {low} to {high} words")
    require(_is_encoding(vectorizer.encoding), f"an unknown encoding, {show(vectorizer.encoding)}")
    if vectorizer.analyzer == "word":
        require(vectorizer.token_pattern is not None, f"a {kind} without a token_pattern")
        _check_pattern(vectorizer.token_pattern)
    words = vectorizer.stop_words
    if words is not None and not isinstance(words, str):
        require(all(isinstance(word, str) for word in words), f"stop words of {kind} are text")


def _is_encoding(name: Any) -> bool:
    try:
        return isinstance(name, str) and codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError):
        return False


def _check_pattern(pattern: Any) -> None:
    """Raise an error unless the time of a search grows slowly with the length of the text.

    An expression with nested repetitions can take exponential time.
    """
    text = f"token_pattern {show(pattern)}"
    require(isinstance(pattern, str) and len(pattern) <= MAX_PATTERN, f"{text} is too long")
    try:
        tree = _parser.parse(pattern)
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{text} is not a regular expression: {error}") from error
    require(compiled.groups <= 1, f"{text} has more than one group")
    require(
        _n_repeats(tree, inside=False) <= MAX_REPEATS,
        f"{text} repeats more than a model file may (at most {MAX_REPEATS} repetitions, none "
        "inside another): cut the text into words before the pipeline",
    )


def _n_repeats(tree: Any, *, inside: bool) -> int:
    """Return the number of long repetitions; more than allowed if they are nested."""
    total = 0
    for code, argument in tree:
        if code in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
            _, high, part = argument
            often = high > 1
            if often and inside:
                return MAX_REPEATS + 1
            total += often + _n_repeats(part, inside=inside or often)
        elif code is _constants.SUBPATTERN:
            total += _n_repeats(argument[-1], inside=inside)
        elif code is _constants.BRANCH:
            total += sum(_n_repeats(part, inside=inside) for part in argument[1])
        elif code in (_constants.LITERAL, _constants.NOT_LITERAL, _constants.IN, _constants.ANY):
            continue
        elif code not in (_constants.AT, _constants.RANGE, _constants.CATEGORY):
            return MAX_REPEATS + 1  # a lookaround or a back-reference
    return total


def _pack_words(vectorizer: Any) -> dict[str, Any]:
    """Return a vocabulary given by the user as a list."""
    if vectorizer.vocabulary is None:
        return {}
    return {"vocabulary": _terms(vectorizer.vocabulary_).tolist()}


def _terms(vocabulary: dict[str, int]) -> Any:
    """Return the terms in the order of their columns."""
    numbers = np.fromiter((int(n) for n in vocabulary.values()), np.int64, len(vocabulary))
    good = np.array_equal(np.sort(numbers), np.arange(len(numbers)))
    require(good, "a vocabulary whose terms are not numbered from 0")
    terms = np.empty(len(vocabulary), dtype=object)
    terms[numbers] = list(vocabulary)
    return terms


def _pack_vocabulary(vectorizer: Any) -> dict[str, Any]:
    """Return the fields with the terms in the order of their columns."""
    values = vars(vectorizer)
    return values | {"vocabulary_": _terms(values["vocabulary_"])}


def _check_vocabulary(vectorizer: Any) -> None:
    terms = vectorizer.vocabulary_
    require(len(terms) > 0, "a vocabulary without terms")
    texts = list(terms)
    require(all(isinstance(term, str) for term in texts), "a vocabulary of other than text")
    require(len(set(texts)) == len(texts), "a term that occurs twice")
    if hasattr(vectorizer, "ngram_range"):
        _check_words(vectorizer)
    if hasattr(vectorizer, "_tfidf"):
        good = vectorizer._tfidf.n_features_in_ == len(terms)
        require(good, "weights of other terms than those of a vocabulary")
    names = getattr(vectorizer, "feature_names_", None)
    if names is not None:
        ordered = _terms(terms) if isinstance(terms, dict) else terms
        require(list(names) == ordered.tolist(), "names of other features")


def _finish_vocabulary(vectorizer: Any) -> None:
    vectorizer.vocabulary_ = {term: i for i, term in enumerate(vectorizer.vocabulary_)}


def _finish_words(vectorizer: Any) -> None:
    _finish_vocabulary(vectorizer)
    vectorizer._stop_words_id = id(vectorizer.stop_words)  # marks the words as validated


def _cost_of_vocabulary(fields: dict[str, Any]) -> int:
    return 200 * len(fields["vocabulary_"])


def _n_terms(vectorizer: Any) -> int:
    return len(vectorizer.vocabulary_)


def _check_tfidf(transformer: Any) -> None:
    good = not transformer.use_idf or hasattr(transformer, "idf_")
    require(good, "a TfidfTransformer without weights of terms")


_WITH_TERMS: dict[str, Any] = {
    "params": PARAMS,
    "advice": ADVICE,
    "seen": {},
    "check": _check_vocabulary,
    "derived": ("_stop_words_id",),  # a memory address
    "pack": _pack_vocabulary,
    "pack_params": _pack_words,
    "cost": _cost_of_vocabulary,
    "finish": _finish_words,
    "n_out": _n_terms,
}

VECTORIZERS = (
    step(
        "CountVectorizer",
        "feature_extraction.text",
        {"vocabulary_": NAMES, "fixed_vocabulary_": FLAG},
        **_WITH_TERMS,
    ),
    step(
        "TfidfVectorizer",
        "feature_extraction.text",
        {"vocabulary_": NAMES, "fixed_vocabulary_": FLAG, "_tfidf": instance("TfidfTransformer")},
        **_WITH_TERMS,
    ),
    step(
        "TfidfTransformer",
        "feature_extraction.text",
        {"idf_": optional(array("f", "n"))},
        check=_check_tfidf,
    ),
    step(
        "HashingVectorizer",
        "feature_extraction.text",
        {},
        params={name: kind for name, kind in PARAMS.items() if name != "vocabulary"},
        advice=ADVICE,
        seen={},
        check=_check_words,
        derived=("_stop_words_id",),
        n_out=lambda vectorizer: vectorizer.n_features,
    ),
    step(
        "DictVectorizer",
        "feature_extraction",
        {"vocabulary_": NAMES, "feature_names_": LISTING},
        params={"dtype": NUMBER_TYPE},
        seen={},
        check=_check_vocabulary,
        pack=_pack_vocabulary,
        cost=_cost_of_vocabulary,
        finish=_finish_vocabulary,
        n_out=_n_terms,
    ),
    step(
        "FeatureHasher",
        "feature_extraction",
        {},
        params={"dtype": NUMBER_TYPE, "n_features": COUNT},
        seen={},
        n_out=lambda hasher: hasher.n_features,
    ),
)
