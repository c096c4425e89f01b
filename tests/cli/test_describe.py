"""`cascader describe`: what a run consists of."""


def test_every_tier_is_described(run, three_tiers):
    code, out, err = run("describe", three_tiers)
    assert (code, err) == (0, "")
    assert all(word in out for word in ("kge", "contrastive", "listwise", "parameters", "MB"))
