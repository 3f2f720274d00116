"""What trackers get, and what happens when one fails."""

from __future__ import annotations

import statistics

ONE, TWO, THREE = ({"step": step, "loss": 1.0 / step, "learning_rate": 0.1} for step in (1, 2, 3))


def test_rounds_form_one_curve_with_rewards_at_their_first_step(tell, memory):
    night = tell(memory)
    rewards = [0.0, 1.0, 1.0, 0.25]
    night.scored("round-1", rewards)
    night.updated("round-1", ONE, TWO)
    night.trained("round-1", [ONE, TWO])
    night.scored("round-2", [1.0])
    night.updated("round-2", ONE)
    night.trained("round-2", [ONE])
    assert [step for step, _ in memory.curve] == [1, 2, 3]
    first, second, third = (metrics for _, metrics in memory.curve)
    assert first == {
        "loss/total": 1.0,
        "learning_rate": 0.1,
        "round": 1.0,
        "reward/mean": statistics.fmean(rewards),
        "reward/std": statistics.pstdev(rewards),
        "rollouts/success": 0.5,
    }
    assert second == {"loss/total": 0.5, "learning_rate": 0.1, "round": 1.0}
    assert (third["round"], third["reward/mean"]) == (2.0, 1.0)


def test_a_cached_step_is_logged_like_one_that_ran(tell, memory):
    night = tell(memory)
    night.trained("round-1", [ONE, TWO])
    verdict = night.judged()
    assert [step for step, _ in memory.curve] == [1, 2]
    assert memory.verdicts == [str(verdict.decision)] == ["PROMOTE"]


def test_a_round_resumed_at_a_checkpoint_logs_nothing_twice(tell, memory):
    tell(memory).updated("round-1", ONE, TWO)  # killed here
    again = tell(memory)
    again.updated("round-1", TWO, THREE)
    again.trained("round-1", [ONE, TWO, THREE])
    assert [step for step, _ in memory.curve] == [1, 2, 3]


def test_adapters_are_handed_on_when_asked_for(tell, memory):
    tell(memory).trained("round-1", [ONE])
    assert memory.kept == []
    tell(memory, checkpoints=True).trained("round-1", [ONE])
    assert memory.kept == ["round-1"]


def test_a_tracker_that_fails_is_said_once_and_disturbs_nobody(tell, memory):
    broken = type(memory)(name="broken", full=1)
    night = tell(broken, memory)
    night.trained("round-1", [ONE, TWO, THREE])
    night.judged()
    night.tracker.close(failed=False)
    assert (len(broken.curve), len(memory.curve), broken.verdicts, memory.verdicts) == (1, 3, [], ["PROMOTE"])
    [warning] = night.warnings
    assert "broken did not get optimizer step 2 and everything after it" in warning
    assert "status.json keeps every figure" in warning
    assert "make room. If it ends before, run the same command again" in warning
    assert "secret" not in warning


def test_what_a_tracker_did_not_take_is_sent_later_in_order(tell, memory):
    memory.full = 1
    night = tell(memory, checkpoints=True)
    night.trained("round-1", [ONE, TWO])
    verdict = night.judged()
    assert ([step for step, _ in memory.curve], memory.kept, memory.verdicts) == ([1], [], [])
    memory.full = None
    night.tracker.close(failed=False)
    assert ([step for step, _ in memory.curve], memory.kept, memory.verdicts) == ([1, 2], ["round-1"], [str(verdict.decision)])
    assert len(night.warnings) == 1


def test_a_tracker_that_fails_is_not_asked_again_at_once(tell, memory):
    tries = []
    memory.open = lambda attempt: tries.append(attempt) or 1 / 0
    night = tell(memory)
    night.trained("round-1", [ONE, TWO, THREE])
    assert tries == [1]


def test_another_result_is_sent_whole_to_a_tracker_that_was_away(tell, memory):
    night = tell(memory)
    night.trained("round-1", [ONE], weights=0.1)
    memory.full, memory.curve = 0, []
    night = tell(memory)
    night.updated("round-1", ONE, TWO)
    night.trained("round-1", [ONE, TWO], weights=0.2)
    memory.full = None
    night.tracker.close(failed=False)
    assert [step for step, _ in memory.curve] == [1, 2]


def test_what_was_missed_is_made_up_by_the_next_run(tell, memory):
    memory.full = 1
    tell(memory).trained("round-1", [ONE, TWO, THREE])
    memory.full = None
    night = tell(memory)
    night.trained("round-1", [ONE, TWO, THREE])
    night.judged()
    assert [step for step, _ in memory.curve] == [1, 2, 3]
    assert (memory.verdicts, night.warnings) == (["PROMOTE"], [])


def test_a_night_in_which_nothing_is_told_opens_nothing(tell, memory):
    memory.open = lambda attempt: 1 / 0
    night = tell(memory)
    night.scored("round-1", [1.0])
    night.tracker.close(failed=True)
    assert night.warnings == []


def test_probes_go_to_the_steps_that_they_followed_once(tell, memory):
    for _ in range(2):  # the second night finds everything cached
        night = tell(memory)
        night.trained("round-1", [ONE, TWO])
        night.probed("round-1", {"step": 2, "success": 0.25, "items": 4})
        night.trained("round-2", [ONE, TWO, THREE])
        night.probed("round-2", {"step": 1, "success": 0.5, "items": 4}, {"step": 3, "items": 0})  # where none was verified
        night.judged()
    assert memory.probes == [{2: {"probe/success": 0.25}, 3: {"probe/success": 0.5}}]
