"""Names of MonoClaw's guide: its commands, and the `rl:` block of its config."""

TABLE = """
monoclaw batch run | clawpipe batch run --input FILE --output FILE --endpoint URL --model NAME | the same flags besides
--save-tool-calls | clawpipe batch run --input FILE --output FILE --save-tool-calls true | the same flag
python -m tinker.process | clawpipe process --input FILE --output FILE | the same flags
--filter-success-only | clawpipe process --input FILE --output FILE --filter-success-only | the same flag
python -m atropos.train | clawpipe train --model NAME --data FILE --method grpo --output FOLDER | the same flags
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
