"""Generated tables as shops and question answering have them: categories, texts, vectors, ids.

A shop's log has numbers with long tails, missing values, a category, a brand, a title and the text
of the query. Passages have the text of a question, texts, a BM25 score and vectors of both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

__all__ = ["make_passages", "make_shop"]

LETTERS = np.array(list("bcdfghklmnprstvz"))
VOWELS = np.array(list("aeiou"))


def words(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return n different made-up words of two or three syllables."""
    found: dict[str, None] = {}
    while len(found) < n:
        syllables = rng.integers(2, 4)
        pairs = zip(rng.choice(LETTERS, syllables), rng.choice(VOWELS, syllables), strict=True)
        found["".join(a + b for a, b in pairs)] = None
    return np.array(list(found), dtype=object)


def make_shop(n_queries: int = 150, n_products: int = 40, *, seed: int = 0) -> dict[str, Any]:
    """Return a shop's log: ``X`` (data frame), ``y`` (grades 0 to 4) and ``qid``."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(12345)  # the same shop for every seed
    n_categories, n_brands, n_attributes, n_catalogue = 40, 300, 120, 6000
    names = words(n_categories + n_brands + n_attributes, fixed)
    category_words, rest = names[:n_categories], names[n_categories:]
    brand_words, attribute_words = rest[:n_brands], rest[n_brands:]
    popular = 1 / np.arange(1, n_brands + 1) ** 0.8
    category = fixed.integers(n_categories, size=n_catalogue)
    brand = fixed.choice(n_brands, size=n_catalogue, p=popular / popular.sum())
    attributes = fixed.integers(n_attributes, size=(n_catalogue, 3))
    brand_worth, category_price = fixed.normal(size=n_brands), fixed.normal(3, 1, n_categories)
    price = np.exp(
        category_price[category] + 0.4 * brand_worth[brand] + 0.6 * fixed.normal(size=n_catalogue)
    )
    reviews = fixed.poisson(np.exp(fixed.normal(2, 1.5, size=n_catalogue)))
    rating = np.clip(3.8 + 0.4 * brand_worth[brand] + 0.5 * fixed.normal(size=n_catalogue), 1, 5)
    age = fixed.exponential(300, size=n_catalogue)
    title = [
        " ".join(
            [brand_words[brand[i]], *attribute_words[attributes[i]], category_words[category[i]]]
        )
        for i in range(n_catalogue)
    ]
    rows, queries, texts = [], [], []
    for _ in range(n_queries):
        wanted, attribute = rng.integers(n_categories), rng.integers(n_attributes)
        chance = 0.03 + 1.0 * (category == wanted) + 0.5 * (attributes == attribute).any(axis=1)
        rows.append(rng.choice(n_catalogue, n_products, replace=False, p=chance / chance.sum()))
        queries.append((wanted, attribute))
        texts.append(f"{attribute_words[attribute]} {category_words[wanted]}")
    item, qid = np.concatenate(rows), np.repeat(np.arange(n_queries), n_products)
    wanted, attribute = np.array(queries)[qid].T
    log_price = np.log(price[item])
    stock, shipping = rng.random(len(item)) < 0.8, rng.integers(1, 15, size=len(item))
    worth = (
        1.5 * (category[item] == wanted)
        + 1.2 * (attributes[item] == attribute[:, None]).any(axis=1)
        + 0.8 * brand_worth[brand[item]]
        - 0.5 * (log_price - category_price[category[item]]) ** 2
        + 0.7 * (rating[item] - 3.8) * np.log1p(reviews[item]) / 2
        + 0.8 * stock
        - 0.05 * shipping * stock
        + rng.normal(size=len(item))
    )
    y = np.digitize(worth, np.quantile(worth, [0.5, 0.75, 0.9, 0.97])).astype(float)
    frame = pd.DataFrame(
        {
            "sku": [f"SKU-{number:07d}" for number in rng.permutation(len(item))],
            "query": np.array(texts, dtype=object)[qid],
            "title": np.array(title, dtype=object)[item],
            "category": category_words[category[item]],
            "brand": np.where(rng.random(len(item)) < 0.02, None, brand_words[brand[item]]),
            "price": np.where(rng.random(len(item)) < 0.05, np.nan, price[item].round(2)),
            "rating": np.where(reviews[item] == 0, np.nan, rating[item].round(1)),
            "reviews": reviews[item],
            "age_days": age[item].round(),
            "in_stock": stock,
            "shipping_days": shipping,
        }
    )
    return {"X": frame, "y": y, "qid": qid}


def make_passages(n_queries: int = 150, n_passages: int = 30, *, seed: int = 0) -> dict[str, Any]:
    """Return questions and passages: ``X`` (data frame), ``y`` (0, 1 or 2) and ``qid``."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(54321)
    n_words, n_topics, n_vector = 3000, 24, 64
    vocabulary = words(n_words, fixed)
    topics = fixed.dirichlet(np.full(n_words, 0.02), size=n_topics)
    common = 1 / np.arange(1, n_words + 1)
    common /= common.sum()
    embed = fixed.normal(size=(n_topics, n_vector))
    quality_direction = fixed.normal(size=n_vector) / np.sqrt(n_vector)
    n = n_queries * n_passages
    qid = np.repeat(np.arange(n_queries), n_passages)
    of_query = rng.dirichlet(np.full(n_topics, 0.1), size=n_queries)
    closeness = rng.beta(1.2, 2.0, size=n)[:, None]
    of_passage = closeness * of_query[qid] + (1 - closeness) * rng.dirichlet(
        np.full(n_topics, 0.1), size=n
    )

    def text(mixture: np.ndarray, length: int, share: float) -> np.ndarray:
        chance = share * (mixture @ topics) + (1 - share) * common
        return rng.choice(n_words, size=length, p=chance / chance.sum())

    query_words = [text(one, int(rng.integers(4, 9)), 0.9) for one in of_query]
    lengths = rng.integers(25, 90, size=n)
    passage_words = [text(one, int(k), 0.5) for one, k in zip(of_passage, lengths, strict=True)]
    present = np.zeros(n_words)
    for one in passage_words:
        present[np.unique(one)] += 1
    idf = np.log(1 + (n - present + 0.5) / (present + 0.5))
    bm25 = np.zeros(n)
    for i, (query, passage) in enumerate(zip(qid, passage_words, strict=True)):
        asked = np.unique(query_words[query])
        count = (passage[:, None] == asked).sum(axis=0)
        bm25[i] = (
            idf[asked] * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(passage) / 57))
        ).sum()
    noise = 0.15
    q_vector = of_query @ embed + noise * rng.normal(size=(n_queries, n_vector))
    d_vector = of_passage @ embed + noise * rng.normal(size=(n, n_vector))
    quality = d_vector @ quality_direction
    source = rng.integers(30, size=n)
    source_worth = fixed.normal(size=30)
    worth = 6 * (of_query[qid] * of_passage).sum(axis=1) + 0.25 * np.log1p(bm25)
    worth += 0.4 * quality + 0.3 * source_worth[source] + 0.5 * rng.normal(size=n)
    y = np.digitize(worth, np.quantile(worth, [0.85, 0.95])).astype(float)
    frame = pd.DataFrame(
        {
            "passage_id": [f"d{number}" for number in rng.permutation(n)],
            "question": np.array([" ".join(vocabulary[w]) for w in query_words], dtype=object)[qid],
            "passage": [" ".join(vocabulary[w]) for w in passage_words],
            "bm25": bm25.round(4),
            "length": lengths,
            "source": [f"source {number}" for number in source],
            "question_vector": list(q_vector[qid]),
            "passage_vector": list(d_vector),
        }
    )
    return {"X": frame, "y": y, "qid": qid}
