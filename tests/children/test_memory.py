"""Children that the kernel killed because memory ran out, by its own count."""

from clawpipe.learn.children import memory


def test_a_kill_is_counted_by_the_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_VMSTAT", tmp_path / "vmstat")
    (tmp_path / "vmstat").write_text("nr_free_pages 7\noom_kill 3\nnuma_hit 9\n")
    assert memory.kernel_kills() == 3


def test_without_kernel_counts_no_kill_is_for_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_VMSTAT", tmp_path / "none")
    assert memory.kernel_kills() == 0
