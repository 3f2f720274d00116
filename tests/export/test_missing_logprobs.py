"""Log-probs that a file of Atropos lacks, asked of the policy that its rows name."""

import json

import pytest

from clawpipe.cli.main import _outcome as main
from clawpipe.core.store.home import Home
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.version import base_ref

SAID = [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": "57"}]
GROUP = {
    "tokens": [[7, 8, 9, 20, 2], [7, 8, 9, 21, 2]],
    "masks": [[-100, -100, -100, 20, 2], [-100, -100, -100, 21, 2]],
    "scores": [1.0, -1.0],
    "messages": [SAID, SAID],
}


def test_the_policy_that_is_named_says_missing_log_probs(tmp_path, monkeypatch, quick_children):
    """The oracle is a pass of another engine; a row that names no policy of these settings keeps what it has."""
    base = resolve_base("random")
    version = base_ref("random", base.digest, "pythonic", "float32").policy_version
    home, engine = Home(tmp_path / "home"), EmbeddedEngine(base.path, None, device="cpu")
    rows, night = tmp_path / "rows.jsonl", tmp_path / "night.yaml"
    rows.write_text(json.dumps(GROUP))
    night.write_text("model: {base: random}\n")
    monkeypatch.setenv("CLAWPIPE_HOME", str(home.root))
    for policy, known in ((version, True), ("another", False)):
        made = ingest(home, [str(rows)], Options(policy_version=policy, temperature=0.5)).datasets["trajectories"]
        out = tmp_path / f"{policy}.jsonl"
        assert main(["export", made.digest, "--format", "atropos", "--config", str(night), "--output", str(out)]) == 0
        written = json.loads(out.read_text())
        assert (written["tokens"], written["scores"]) == (GROUP["tokens"], GROUP["scores"])
        assert (written["inference_logprobs"] is not None) == known
        for ids, logprobs in zip(written["tokens"], written["inference_logprobs"] or (), strict=False):
            assert logprobs == pytest.approx([1.0, 1.0, 1.0, *engine.score(ids, 3, 0.5)], abs=1e-4)
    assert main(["export", "scores", "--format", "parquet", "--config", str(night), "--output", str(tmp_path / "scores")]) == 2
