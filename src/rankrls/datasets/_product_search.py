"""Generated data in the form of a table of a shop: text, missing values, long tails."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from rankrls._frames import data_frame
from rankrls._validation import check_integer

__all__ = ["make_product_search"]

COLOURS = ("black", "blue", "brown", "green", "grey", "orange", "pink", "red", "white", "yellow")
GOODS = ("bag", "bowl", "chair", "clock", "desk", "jacket", "lamp", "mug", "rug", "shelf")
SELLERS = ("north", "south", "west")


def make_product_search(
    n_queries: int = 60, n_products: int = 25, *, random_state: Any = None
) -> Any:
    """Generate a table of products found by searches, each with a grade of relevance.

    The table is like those that people have: columns of different scales and of long tails, text,
    booleans and missing values. Grades depend on the logarithms of clicks and price, and on
    whether a product of one of the sellers is in stock.

    Parameters
    ----------
    n_queries : int, default=60
        Number of searches.
    n_products : int, default=25
        Products of each search.
    random_state : int, RandomState or None, default=None
        Seed.

    Returns
    -------
    table : pandas.DataFrame
        One row for each product of a search, the rows of a search one after the other.

        query : str
            What was searched for, such as "red lamp".
        product : str
            Name of the product.
        clicks : int
            With a long tail.
        price : float
            With a long tail; a fifth of the prices are missing.
        seller : str
            "north", "south" or "west".
        in_stock : bool
            Whether it can be sent.
        grade : int
            Relevance from 0 to 3.

    Examples
    --------
    >>> from rankrls.datasets import make_product_search
    >>> table = make_product_search(n_queries=2, n_products=2, random_state=0)
    >>> list(table.columns)
    ['query', 'product', 'clicks', 'price', 'seller', 'in_stock', 'grade']
    >>> list(table["query"])
    ['black bag', 'black bag', 'blue bag', 'blue bag']
    """
    check_integer("n_queries", n_queries, least=1)
    check_integer("n_products", n_products, least=1)
    rng = check_random_state(random_state)
    n = n_queries * n_products
    query = np.repeat([_search(number) for number in range(n_queries)], n_products)
    clicks = rng.poisson(np.exp(rng.normal(2, 1.5, size=n)))
    price = np.exp(rng.normal(3, 1, size=n)).round(2)
    seller = np.array(SELLERS)[rng.randint(len(SELLERS), size=n)]
    in_stock = rng.uniform(size=n) < 0.7
    worth = np.log1p(clicks) - 0.5 * np.log(price + 0.01) + 1.5 * ((seller == "west") & in_stock)
    grade = np.digitize(worth + rng.normal(size=n), [0.5, 2, 3.5])
    return data_frame(
        {
            "query": query,
            "product": [f"{text.split()[1]} {1000 + i}" for i, text in enumerate(query)],
            "clicks": clicks,
            "price": np.where(rng.uniform(size=n) < 0.2, np.nan, price),
            "seller": seller,
            "in_stock": in_stock,
            "grade": grade,
        },
        caller="make_product_search",
    )


def _search(number: int) -> str:
    """Colour and good; with a number from the hundred-and-first search on."""
    good, colour = divmod(number, len(COLOURS))
    edition, good = divmod(good, len(GOODS))
    return f"{COLOURS[colour]} {GOODS[good]}" + (f" {edition + 1}" if edition else "")
