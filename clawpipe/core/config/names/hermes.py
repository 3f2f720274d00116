"""Names of Hermes and Atropos: the batch runner, the `rl_*` tools, environments' configs, the trajectory API and its trainer."""

TABLE = """
python batch_runner.py | clawpipe batch FILE --output FILE --endpoint URL --model NAME | or its own: its rows are read
dataset_file | clawpipe batch FILE |
run_name | clawpipe batch --output FILE | a file in place of a folder; the same command resumes
distribution | clawpipe batch --tools FILE | sets of tools are not drawn by chance: name the tools
base_url | clawpipe batch --endpoint URL | of rollouts: rollouts.engine.url
api_key | $OPENAI_API_KEY | keys come from the environment
max_turns | rollouts.max_turns | of clawpipe batch: --max-turns, with tools that are run
num_workers | clawpipe batch --concurrency NUMBER |
resume | clawpipe batch | the same command resumes
ephemeral_system_prompt | clawpipe batch --prompt TEXT | it is stored with the row, which is trained on as it was asked
prefill_messages_file | environments.md | prompts may be lists of messages
max_samples | environment.train_items | of clawpipe batch: cut the file
max_tokens | rollouts.max_new_tokens | of clawpipe batch: --max-tokens
reasoning_effort | rollouts.engine.options | what an endpoint takes besides
providers_allowed | - | which provider of a router answers is the router's affair
log_prefix_chars | - | prompts are in no log
toolsets_used | ingest.md | kept in extra
tool_stats | ingest.md | read: calls and failures of tools
tool_error_counts | ingest.md | read: failures of tools
trajectory_samples.jsonl | clawpipe ingest FILE | read as it is
failed_trajectories.jsonl | clawpipe ingest FILE | read as it is
hermes sessions export | clawpipe ingest FILE | read as it is
trajectory_compressor.py | curation.compress.max_tokens | longer trajectories are shortened, for methods that learn from text
target_max_tokens | curation.compress.max_tokens |
rl_list_environments | clawpipe mcp | the same tool, over MCP; on the command line clawpipe env list
rl_select_environment | clawpipe mcp | the same tool; environment.name
rl_get_current_config | clawpipe mcp | the same tool; clawpipe config show
rl_edit_config | clawpipe mcp | the same tool; -o NAME=VALUE
rl_start_training | clawpipe mcp | the same tool; clawpipe run
rl_check_status | clawpipe mcp | the same tool; clawpipe status
rl_stop_training | clawpipe mcp | the same tool; clawpipe runs stop
rl_get_results | clawpipe mcp | the same tool; clawpipe report
rl_list_runs | clawpipe mcp | the same tool; clawpipe runs list
rl_test_inference | clawpipe mcp | the same tool; clawpipe env test
group_size | rollouts.group_size |
batch_size | train.batch_rows | rows per optimizer step; Atropos counts sequences, too
max_token_length | rollouts.max_new_tokens | new tokens of an answer; whole rows: curation.max_tokens
max_token_trainer_length | curation.max_tokens |
max_num_workers | runtime.workers |
worker_timeout | environment.call_timeout | of a call of the environment
total_steps | train.max_steps, rounds | optimizer steps a round, and rounds of a night
num_steps | train.max_steps, rounds |
training_steps | train.max_steps, rounds |
steps_per_eval | train.probe_steps | training items are asked; held-out ones are played once, at the night's end
eval_limit_ratio | environment.heldout_items | a number of held-out items
eval_handling | - | evaluation and training take turns
inference_weight | environments | shares of several environments are given by their numbers of items
min_batch_allocation | environments | each environment has its own numbers of items
max_batches_offpolicy | curation.max_staleness | most policy versions between sampling and training
ensure_scores_are_not_same | curation.drop_zero_variance_groups | on by default
include_messages | - | messages are always stored
tokenizer_name | model.base | the tokenizer of the model
rollout_server_url | rollouts.engine.url | of an engine; Atropos' trajectory API: -o environment.name=atropos:FILE.py
use_wandb | tracking.wandb |
wandb_name | tracking.wandb | runs are named after their night and method
data_path_to_save_groups | clawpipe export KIND | every rollout is stored in any case
num_rollouts_to_keep | clawpipe gc | rollouts are kept until they are removed
thinking_mode | rollouts.engine.options | chat_template_kwargs of an engine
server_type | rollouts.engine.name | embedded, vllm, sglang or openai
model_name | model.base |
num_requests_for_eval | rollouts.engine.concurrency |
n_kwarg_is_ignored | - | answers are asked for one by one where an endpoint knows no n
health_check | clawpipe doctor | an engine is asked before a night
slurm | runtime.accelerate | processes of several machines are accelerate's affair
testing | - | configs/tiny.yaml is a whole night in half a minute
lora_rank | train.lora.rank |
learning_rate | train.learning_rate |
checkpoint_dir | clawpipe models export NAME@3 --output FOLDER | versions are in the registry, checkpoints in the night's folder
save_checkpoint_interval | train.checkpoint_steps |
wandb_project | tracking.wandb |
wandb_group | tracking.wandb |
tool_call_parser | model.tool_call_format |
score_answer | environments.md | verify of an environment
get_next_item | environments.md | items of an environment
collect_trajectories | environments.md | an episode is played by clawpipe; a library's own: atropos:FILE.py
tokens | ingest.md | of a group: read
masks | ingest.md | of a group: read, -100 is not trained
scores | ingest.md | of a group: read
inference_logprobs | ingest.md | of a group: read, 1.0 is none
ref_logprobs | ingest.md | of a group: kept in extra
advantages | ingest.md | of a group: kept in extra, and computed anew
distill_logprobs | ingest.md | of a group: kept in extra; a teacher of the night is train.opd.teacher
set_advantage_to_zero | ingest.md | read: turns of that sequence are side turns
run-api | - | a night needs no server between its steps
atropos-sft-gen | clawpipe train FILE | with --method sft on ingested groups
atropos-dpo-gen | clawpipe train FILE | with --method dpo: pairs are made of attempts at one prompt
view-run | clawpipe report | a page of the night
train/loss | tracking.md | loss/total
train/learning_rate | tracking.md | learning_rate
logprobs/diff | tracking.md | compared before a night trains: check_model
advantages/mean | tracking.md | the same meaning
"""
