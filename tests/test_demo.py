"""The demo shows what it promises, and the ranker wins on the data made for it."""

import re

from rankrls import demo


def test_demo_prints_its_table(capsys):
    demo.main()
    out, err = capsys.readouterr()
    assert err == ""
    assert "solver 'primal'" in out
    rows = {
        name: [float(v) for v in re.search(rf"^  {name} +([\d.]+) +([\d.]+)$", out, re.M).groups()]
        for name in ("RankRLS", "plain regression", "random order")
    }
    error, ndcg = zip(*rows.values(), strict=True)
    assert error[0] < error[1] < error[2]
    assert 0.45 < error[2] < 0.55
    assert ndcg[0] > ndcg[1] > ndcg[2]
