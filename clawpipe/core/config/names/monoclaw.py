"""Names of MonoClaw's guide: its commands, and the `rl:` block of its config."""

TABLE = """
monoclaw batch run | clawpipe batch FILE --output FILE --endpoint URL --model NAME | its printed flags work, too
--save-tool-calls | clawpipe batch FILE --output FILE --save-tool-calls true | the same flag
python -m tinker.process | clawpipe process FILE --output FILE | its printed flags work, too
--filter-success-only | clawpipe process FILE --output FILE --filter-success-only | the same flag
python -m atropos.train | clawpipe train --model NAME FILE --method grpo --output FOLDER | its printed flags work, too
--wandb-project | tracking.wandb | the same flag of clawpipe train
rl.training.batch_size | train.batch_rows | rows per optimizer step
rl.training.learning_rate | train.learning_rate |
rl.training.max_length | curation.max_tokens | longer trajectories are filtered out, not cut
rl.training.save_steps | train.checkpoint_steps |
rl.wandb.project | tracking.wandb |
rl.wandb.entity | tracking.wandb | entity/project
monoclaw config set model.custom.endpoint | clawpipe serve MODEL | MonoClaw's own command takes its URL
monoclaw config set model.custom.name | clawpipe serve MODEL | MonoClaw's own command takes its name
max_length | curation.max_tokens |
save_steps | train.checkpoint_steps |
"""
