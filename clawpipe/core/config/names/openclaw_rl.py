"""Names of OpenClaw-RL: its settings, the variables of its scripts, its headers and metrics, and what its guides promise."""

TABLE = """
method | train.method | binary_rl is grpo with scores of turns (curation.credit: turn), opd is opd, combine is combine
binary_rl | train.method, curation.credit | grpo, with credit: turn
batch_size | train.batch_rows | rows per optimizer step
gradient_accumulation_steps | train.batch_rows | rows of the whole step; pieces of it are packs of train.pack_tokens
learning_rate | train.learning_rate | unset: vetted for the method and the model's size
warmup_steps | train.warmup_steps | or train.warmup_ratio
max_steps | train.max_steps | optimizer steps a round
ppo_clip_ratio | train.loss.clip_low, train.loss.clip_high | the clip of the importance ratio, below and above 1
clip_ratio | train.loss.clip_low, train.loss.clip_high | the clip of the importance ratio, below and above 1
value_clip_ratio | train.ppo.value_clip | the clip of the critic's values; only ppo has a critic
gae_lambda | train.ppo.gae_lambda | only ppo has a critic; per token or per turn: train.ppo.steps
gamma | train.ppo.gamma | only ppo discounts; per token or per turn: train.ppo.steps
kl_loss_coef | train.loss.kl_coef |
entropy_coef | train.loss.entropy_coef |
W_RL | train.combine.w_rl |
W_OPD | train.combine.w_opd |
temperature | rollouts.temperature |
teacher_temperature | - | a teacher's log-probs are taken at the temperature of the sampling, else the two could not be compared
hint_extraction_model | scorers | a judge that writes hints: its url and its model
binary_weight | train.combine.w_rl | the weight of the rewards in combine
opd_weight | train.combine.w_opd | the weight of the teacher in combine
num_workers | runtime.workers | processes that generate
max_turns | rollouts.max_turns | turns of an episode
session_aware | curation.quotas.per_session | always: turns become sessions, each on one side of the held-out split
parallel_envs | rollouts.engine.concurrency | of an endpoint; an engine here plays a shard at once, rollouts.shard_rollouts
max_concurrent_sessions | rollouts.engine.concurrency | of the gateway: --at-once, 256
session_timeout | gateway.md | idle_seconds in sessions.yaml of the home, 3600 as well; or a client says that its session ends
min_turns | curation.filters.min_turns | shorter sessions are filtered out
main_line_roles | gateway.md | an answer is main unless its header or session says otherwise: main_types in sessions.yaml
side_roles | inspect.md | results of tools and system messages are context in any case
trajectory_format | clawpipe ingest FILE --format NAME | auto unless it is named: each line is recognised by its content
message_classes | gateway.md | main and side turns; main_types and side_beginnings in sessions.yaml of the home say which
reward_source | scorers | the next state is judged by scorers; users' words by the scorer of reactions
aggregation | scorers | votes of a judge: the majority, and 0 where they tie
num_samples | scorers | votes of a judge for each turn
judge_model | scorers | an option of a judge; of the evaluation evaluation.judge
majority_voting | scorers | always
num_judges | scorers | votes of a judge, or several scorers with their weights
consensus_threshold | scorers | the option consensus of the scorer prm, 0.6 as well
eval_frequency | train.probe_steps | training items are asked; held-out ones are played once, at the night's end
lora_rank | train.lora.rank |
lora_alpha | train.lora.alpha |
lora_dropout | train.lora.dropout |
target_modules | train.lora.target_modules |
tokenizer | model.base | a tokenizer apart from its model is refused: recorded tokens would mean something else
gpu_ids | runtime.device | or CUDA_VISIBLE_DEVICES, which is handed on
flash_attention | - | attention is PyTorch's own, which uses flash kernels where the GPU has them; trees of prefixes need its masks
gradient_checkpointing | train.gradient_checkpointing |
max_steps_per_episode | rollouts.max_turns | of a terminal: its turns
per_step_reward | curation.credit | credit: step takes the world's reward of each step
stop_when_done | environments.md | an episode ends when its world or the policy says so
tool_file | environments.md | tools from a JSON file: the environment server, or -o environment.options.tools
custom_reward | scorers | a class in a file of yours: name: my.py:NAME
debug_rollouts | runtime.log_rollouts | as text in the night's logs; before a night clawpipe env test NAME --output FOLDER
log_level | - | CLAWPIPE_DEBUG=1 shows where an error came from; rollouts as text: runtime.log_rollouts
checkpoint_interval | train.checkpoint_steps | and by the clock, train.checkpoint_seconds
save_interval | train.checkpoint_steps | a killed night goes on in any case
num_steps_per_rollout | train.optimizer_steps | optimizer steps an epoch
rollout_batch_size | rollouts.items | items a round, of which each is played rollouts.group_size times
n_samples_per_prompt | rollouts.group_size |
rollout_temperature | rollouts.temperature |
rollout_max_response_len | rollouts.max_new_tokens |
OPENCLAW_API_KEY | $CLAWPIPE_API_KEY | of clawpipe serve; of the gateway a key of clawpipe keys make
SGLANG_API_KEY | $CLAWPIPE_UPSTREAM_KEY, $SGLANG_API_KEY | the key that the gateway sends to its engine; and that of SGLang itself
HOST | clawpipe gateway --host ADDRESS | loopback unless told otherwise
PORT | clawpipe gateway --port NUMBER |
SERVED_MODEL_NAME | registry.model_name | the name under which a version is served
NUM_GPUS | runtime.workers | and train.processes: runtime.train_processes
ACTOR_GPUS | runtime.train_processes |
ROLLOUT_GPUS | runtime.workers |
PRM_GPUS | scorers | a judge is an endpoint: it runs wherever its URL leads
PRM_TEACHER_GPUS | train.opd.teacher | the teacher is loaded after the rollouts, in turn
HF_CKPT | model.base |
REF_LOAD | train.start_from | the policy that the penalty of train.loss.kl_coef pulls to is the one that the night starts from
SAVE_CKPT | clawpipe models export NAME@3 --output FOLDER | versions are in the registry
PRM_MODEL_PATH | scorers | the model of a judge
PRM_M | scorers | votes of a judge
PRM_TEMPERATURE | scorers | an option of a judge
PRM_MAX_NEW_TOKENS | scorers | an option of a judge
CONTEXT_LENGTH | curation.max_tokens | longer rows are filtered out; an engine's own limit is a flag of its server
MEM_FRACTION_STATIC | rollouts.engine.arguments | --gpu-memory-utilization, of a vLLM that the night starts
TP | rollouts.engine.arguments | --tensor-parallel-size, of a vLLM that the night starts
TOOL_CALL_PARSER | model.tool_call_format |
REASONING_PARSER | model.tool_call_format | thoughts are read by their markers, whatever the model
OPENCLAW_RECORD_ENABLED | clawpipe gateway | every turn is captured; clawpipe serve does it with --capture
OPENCLAW_RECORD_FILE | clawpipe gateway | below captured in the home
OPENCLAW_EVAL_MODE | - | rewards and hints are both kept in every case
OPENCLAW_COMBINE_W_RL | train.combine.w_rl |
OPENCLAW_COMBINE_W_OPD | train.combine.w_opd |
OPENCLAW_COMBINE_OPD_TEACHER_SOURCE | train.opd.teacher |
OPENCLAW_TOPK_K | train.opd.top_k | with train.opd.form: topk
OPENCLAW_TOPK_MAX_CAND | train.opd.candidates |
OPENCLAW_TOPK_HINT_SELECTION | train.opd.hint_per | sequence_optimal: row, token_optimal: token; shortest: train.opd.candidates of 1
OPENCLAW_TOPK_SUBSET_MODE | train.opd.top_k_of |
OPENCLAW_TOPK_ADV_DIFF_CLIP | train.opd.clip |
TRAIN_EPOCHS | train.epochs |
USE_WANDB | tracking.wandb | a project's name
WANDB_PROJECT | tracking.wandb |
WANDB_KEY | $WANDB_API_KEY | never on a command line
X-Session-Id | gateway.md | the same header
X-Turn-Type | gateway.md | the same header
X-Session-Done | gateway.md | the same header
loss/total | tracking.md | the same name
loss/binary | tracking.md | loss/policy
loss/opd | tracking.md | the same name
reward/mean | tracking.md | the same name
gradient/norm | tracking.md | the same meaning: grad_norm
deploy_to_tinker.sh | clawpipe deploy | --to tinker: a version that was trained there is kept and served there
deploy_to_fireworks.sh | clawpipe deploy | --to fireworks --gpus N --method lora or merged; the price and a question come first
run_qwen3_4b_openclaw_rl.sh | clawpipe up | the gateway, the nights and the served model, in place of a script that starts all of it
run_qwen3_4b_openclaw_opd.sh | clawpipe up | with train.method: opd
run_qwen3_4b_openclaw_combine.sh | clawpipe up | with train.method: combine
openclaw plugins enable rl-training-headers | clawpipe connect openclaw | it writes the provider, and says where the plugin lies
"""
