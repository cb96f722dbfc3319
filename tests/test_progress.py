"""What long calls show without ``verbose``: on a terminal and in a notebook, and nowhere else."""

import inspect
import io
import sys
import threading
import types
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rankrls import ConditionalRankRLSCV, RankRLS, RankRLSCV, _calls
from rankrls._calls import Progress, progress_goes_to, unchanged_on_error
from rankrls.core.ridge import models
from rankrls.metrics import pairwise_accuracy
from rankrls.model_selection import leave_query_out_predict

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


def test_loops_have_a_bar(terminal):
    terminal.text = "folds"
    with unchanged_on_error(RankRLS()):
        progress = Progress("Ranker", 0)
        progress.bar(3, 4, "folds")
        assert terminal.seen.wait(10.0)
        # The same line goes on in a call inside.
        assert Progress("Inner", 0)._listener is progress._listener
    assert "█" * 15 in terminal.getvalue()
    assert Progress("outside", 0)._listener is None


def test_verbose_prints_lines_as_ever(terminal):
    with unchanged_on_error(RankRLS()):
        Progress("Outer", 0)
        progress = Progress("Ranker", 1)
        progress("solved")
    assert terminal.getvalue().rpartition("\r")[2].startswith("[Ranker ")
    assert terminal.getvalue().endswith(" s] solved\n")


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


def test_variances_of_many_rows_tell_how_many_are_done(terminal, monkeypatch):
    terminal.text = "posterior variances of rows"
    ranker = RankRLS(kernel="rbf").fit(X, y, qid=qid)
    heard = []
    with progress_goes_to(lambda *message: heard.append(message)):
        _, expected = ranker.predict(X, return_std=True)
        assert heard == []  # one block
        monkeypatch.setattr(models, "WORK", 10 * len(X))  # blocks of ten rows
        _, std = ranker.predict(X, return_std=True)
    assert np.allclose(std, expected)
    assert heard == [("posterior variances of rows", done, 40) for done in (0, 10, 20, 30)]
    variance = ranker._model._variance

    def slow(*rows):
        terminal.seen.wait(10.0)
        return variance(*rows)

    monkeypatch.setattr(ranker._model, "_variance", slow)
    ranker.predict(X, return_std=True)
    assert "predict 0 s: posterior variances of rows" in terminal.getvalue()


def test_functions_that_take_long_tell_what_they_do(terminal):
    terminal.text = "predictions of every query without it"

    def wait(rows, others):
        terminal.seen.wait(10.0)
        return rows @ others.T

    scores = leave_query_out_predict(RankRLS(kernel=wait), X, y, qid=qid)
    assert scores.shape == y.shape
    assert "leave_query_out_predict 0 s: predictions of every query" in terminal.getvalue()
    assert inspect.signature(leave_query_out_predict).parameters["alphas"].default is None
