"""What long calls show without ``verbose``: on a terminal and in a notebook, and nowhere else."""

import io
import sys
import threading
import types
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rankrls import ConditionalRankRLSCV, RankRLS, RankRLSCV, _calls
from rankrls._calls import progress_goes_to
from rankrls.metrics import pairwise_accuracy

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 3))
y = rng.integers(0, 3, 40)
qid = np.repeat(np.arange(8), 5)


class Terminal(io.StringIO):
    """A stream that somebody looks at; ``seen`` is set when a text was written."""

    def __init__(self, text, *, terminal=True):
        super().__init__()
        self.text, self.terminal, self.seen = text, terminal, threading.Event()

    def isatty(self):
        return self.terminal

    def write(self, text):
        written = super().write(text)
        if self.text in self.getvalue():
            self.seen.set()
        return written


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal("2 alphas, 8 folds")
    # Not sys.stderr itself, which pytest sets again before each test.
    monkeypatch.setattr(_calls, "sys", types.SimpleNamespace(**{**vars(sys), "stderr": stream}))
    monkeypatch.setattr(_calls, "PATIENCE", 0.0)
    monkeypatch.setattr(_calls, "LOOK", 0.01)
    monkeypatch.delenv("RANKRLS_PROGRESS", raising=False)
    return stream


def searching(stream, seconds=10.0):
    """A cross-validation that goes on when its line was seen."""

    def score(y_true, y_score, **options):
        stream.seen.wait(seconds)
        return pairwise_accuracy(y_true, y_score, **options)

    return RankRLSCV([0.1, 1.0], kernel="rbf", scoring=score)


@pytest.mark.filterwarnings("ignore:the best alpha")
def test_a_terminal_sees_what_is_done_and_keeps_nothing(terminal):
    before = threading.active_count()
    searching(terminal).fit(X, y, qid=qid)
    assert terminal.seen.is_set()
    assert "RankRLSCV 0 s: 2 alphas, 8 folds" in terminal.getvalue()
    lines = terminal.getvalue().split("\n")
    assert len(lines) == 1  # rewritten, and blank at the end
    assert lines[0].rstrip("\r").rpartition("\r")[2].strip() == ""
    assert threading.active_count() == before


@pytest.mark.filterwarnings("ignore:the best alpha")
def test_nothing_without_anybody_who_looks(terminal, monkeypatch):
    monkeypatch.setenv("RANKRLS_PROGRESS", "0")
    searching(terminal, 0.05).fit(X, y, qid=qid)
    monkeypatch.delenv("RANKRLS_PROGRESS")
    terminal.terminal = False
    searching(terminal, 0.05).fit(X, y, qid=qid)
    terminal.terminal = True
    thread = threading.Thread(target=lambda: searching(terminal, 0.05).fit(X, y, qid=qid))
    thread.start()
    thread.join()
    assert terminal.getvalue() == ""


@pytest.mark.filterwarnings("ignore:the best alpha")
def test_a_notebook_is_looked_at(terminal, monkeypatch):
    terminal.terminal = False
    shell = type("ZMQInteractiveShell", (), {})()
    fake = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", fake)
    searching(terminal).fit(X, y, qid=qid)
    assert terminal.seen.is_set()


def test_a_call_that_fails_ends_its_line(terminal):
    def fail(*scores, **options):
        terminal.seen.wait(10.0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        RankRLSCV([0.1, 1.0], scoring=fail).fit(X, y, qid=qid)
    assert terminal.seen.is_set()


@pytest.mark.filterwarnings("ignore:the best alpha")
def test_a_listener_hears_of_all_steps():
    heard = []
    with progress_goes_to(lambda *message: heard.append(message)):
        RankRLSCV([0.1, 1.0]).fit(X, y, qid=qid)
        RankRLSCV([0.1, 1.0], cv=4).fit(X, y, qid=qid)
        ConditionalRankRLSCV([0.1, 1.0], random_state=0).fit(X[:9], rng.random((9, 9)))
    texts = [message for message, *_ in heard]
    assert "2 alphas, 8 folds" in texts
    assert "2 alphas, 4 folds" in texts
    assert any("solver primal" in text for text in texts)
    assert any("alpha" in text and "score" in text for text in texts)
    assert _calls._listener.get() is None


def test_threads_report_to_their_own_listener():
    """Two fits at the same time, in two threads: each display hears of its own only."""
    both = threading.Barrier(2, timeout=10.0)

    def heard_by(kernel, alphas):
        def score(y_true, y_score, **options):
            both.wait()
            return pairwise_accuracy(y_true, y_score, **options)

        heard = []
        with progress_goes_to(lambda *message: heard.append(message[0])):
            both.wait()
            RankRLSCV(alphas, kernel=kernel, scoring=score).fit(X, y, qid=qid)
        return heard

    with warnings.catch_warnings(), ThreadPoolExecutor(2) as pool:
        warnings.simplefilter("ignore")
        calls = [pool.submit(heard_by, *a) for a in (("rbf", [0.1, 1.0]), ("linear", [1.0, 2.0]))]
        rbf, linear = (call.result() for call in calls)
    assert any("dual" in text for text in rbf)
    assert any("primal" in text for text in linear)
    assert not any("primal" in text for text in rbf)
    assert not any("dual" in text for text in linear)


def test_variances_of_many_rows_tell_how_many_are_done():
    ranker, heard = RankRLS(kernel="rbf").fit(X, y, qid=qid), []
    with progress_goes_to(lambda *message: heard.append(message)):
        _, expected = ranker.predict(X, return_std=True)
        assert heard == []  # one block
        _, std = ranker.predict(np.tile(X, (1000, 1)), return_std=True)
    np.testing.assert_allclose(std, np.tile(expected, 1000))
    assert [text for text, *_ in heard] == ["posterior variances of rows"] * 2
    assert [count for _, *count in heard] == [[0, 40_000], [2**20 // 40, 40_000]]
