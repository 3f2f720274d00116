"""A taskset of verifiers whose reward reads what its tasks do once the rollout is over."""

import verifiers.v1 as vf


class VisitsTask(vf.Task[vf.TaskData]):
    async def finalize(self, trace, runtime):
        trace.info["visits"] = 1

    @vf.reward
    async def visited(self, trace: vf.Trace) -> float:
        return float(trace.info.get("visits", 0))


class VisitsTaskset(vf.Taskset[VisitsTask, vf.TasksetConfig]):
    def load(self):
        yield VisitsTask(vf.TaskData(prompt="Visit."), self.config.task)


__all__ = ["VisitsTaskset"]
