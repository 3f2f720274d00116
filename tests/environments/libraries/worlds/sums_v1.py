"""A taskset of verifiers: sums, with a reward for the right one and one for a short reply."""

import verifiers.v1 as vf


class SumsData(vf.TaskData):
    answer: int


class SumsTask(vf.Task[SumsData]):
    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(str(self.data.answer) in trace.last_reply.split())

    @vf.reward(weight=0.25)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) < 6)


class SumsTaskset(vf.Taskset[SumsTask, vf.TasksetConfig]):
    def load(self):
        for a in range(90):
            yield SumsTask(SumsData(prompt=f"What is {a} + 4?", system_prompt="Think.", answer=a + 4), self.config.task)


__all__ = ["SumsTaskset"]
