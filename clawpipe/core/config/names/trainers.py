"""Names of other trainers' commonest settings: TRL, axolotl, verl, slime."""

TRL = """
model_name_or_path | model.base |
dataset_name | clawpipe train FILE | hf:org/name names a data set of the hub
learning_rate | train.learning_rate |
num_train_epochs | train.epochs |
per_device_train_batch_size | train.batch_rows | rows per optimizer step, over all devices
gradient_accumulation_steps | train.batch_rows | the whole step
max_steps | train.max_steps |
warmup_ratio | train.warmup_ratio |
warmup_steps | train.warmup_steps |
lr_scheduler_type | train.lr_scheduler_type |
optim | - | AdamW
adam_beta1 | train.adam_beta1 |
adam_beta2 | train.adam_beta2 |
weight_decay | train.weight_decay |
max_grad_norm | train.max_grad_norm |
bf16 | model.dtype | bfloat16
fp16 | model.dtype | float32 or bfloat16
gradient_checkpointing | train.gradient_checkpointing |
use_peft | train.adapter | lora, or full
lora_r | train.lora.rank |
lora_alpha | train.lora.alpha |
lora_dropout | train.lora.dropout |
lora_target_modules | train.lora.target_modules |
use_rslora | train.lora.variant | rslora
use_dora | train.lora.variant | dora
load_in_4bit | model.quantization | nf4
load_in_8bit | model.quantization | int8
attn_implementation | - | PyTorch's own attention, with flash kernels where the GPU has them
max_length | curation.max_tokens | longer rows are filtered out, not cut
max_seq_length | curation.max_tokens | longer rows are filtered out, not cut
max_prompt_length | curation.max_tokens | of the whole row
max_completion_length | rollouts.max_new_tokens |
packing | train.pack_tokens | rows are packed without touching one another
assistant_only_loss | - | always: only what was sampled or imitated is trained
completion_only_loss | - | always
num_generations | rollouts.group_size |
temperature | rollouts.temperature |
beta | train.loss.kl_coef, train.dpo.beta | of grpo the penalty, of dpo its temperature
epsilon | train.loss.clip_low |
epsilon_high | train.loss.clip_high |
delta | train.loss.dual_clip |
num_iterations | train.epochs |
scale_rewards | curation.advantage | group, batch or none
loss_type | train.loss.normalise | grpo: sequence, bnpo and dapo: token, dr_grpo: constant
importance_sampling_level | train.loss.level | sequence is GSPO
reward_funcs | scorers | or the verifier of an environment
reward_weights | scorers | weight of each scorer
use_vllm | rollouts.engine.name | vllm
vllm_mode | rollouts.engine.url | colocated without a URL, else a server's
vllm_importance_sampling_correction | train.loss.tis_cap | recorded log-probs are always used
mask_truncated_completions | curation.filters.endings | others' cut answers are filtered out; own ones keep their reward
sync_ref_model | train.start_from | the reference is where the night starts
label_smoothing | train.dpo.label_smoothing | there without effect on the sigmoid loss, which here it has
rpo_alpha | train.dpo.nll_coef |
desirable_weight | train.kto.desirable_weight |
undesirable_weight | train.kto.undesirable_weight |
report_to | tracking.wandb | MLflow always
save_steps | train.checkpoint_steps |
eval_strategy | train.validation |
seed | seed |
output_dir | clawpipe models export NAME@3 --output FOLDER | versions are in the registry
push_to_hub | clawpipe models export NAME@3 --output FOLDER | the exported folder is what the hub takes
trust_remote_code | - | off: no code of a model is run
early_stopping_patience | train.patience |
value_coef | train.ppo.value_coef |
vf_coef | train.ppo.value_coef |
cliprange | train.loss.clip_low, train.loss.clip_high |
cliprange_value | train.ppo.value_clip |
lam | train.ppo.gae_lambda |
gamma | train.ppo.gamma |
kl_coef | train.loss.kl_coef |
entropy_coef | train.loss.entropy_coef |
vllm_gpu_memory_utilization | rollouts.engine.arguments | of vLLM: --gpu-memory-utilization
vllm_server_base_url | rollouts.engine.url |
top_p | - | sampling is from the policy itself, else its log-probs would be another distribution's
logging_steps | - | every step is logged
use_liger_kernel | - | PyTorch's own kernels
neftune_noise_alpha | - | no noise is added to embeddings
padding_free | train.pack_tokens |
dtype | model.dtype |
torch_dtype | model.dtype |
run_name | night |
resume_from_checkpoint | clawpipe run --config FILE | the same command goes on
ref_model | train.start_from | the reference is where the night starts
eval_steps | train.validation |
dataset_text_field | inspect.md | recognised by content; other fields: --map
"""
AXOLOTL = """
base_model | model.base |
datasets | trajectories | or clawpipe train FILE
datasets.path | clawpipe train FILE |
datasets.type | inspect.md | recognised by content; other fields: --map
field_messages | clawpipe ingest FILE --map messages=PATH |
message_property_mappings | clawpipe ingest FILE --map messages.role=NAME |
train_on_inputs | - | never: only what was sampled or imitated is trained
roles_to_train | inspect.md | main turns
sequence_len | curation.max_tokens | longer rows are filtered out, not cut
sample_packing | train.pack_tokens |
pad_to_sequence_len | - | packed rows need no padding
adapter | train.adapter | lora, or full; qlora is lora with model.quantization: nf4
lora_r | train.lora.rank |
lora_alpha | train.lora.alpha |
lora_dropout | train.lora.dropout |
lora_target_linear | train.lora.target_modules | all linear layers unless some are named
peft_use_dora | train.lora.variant | dora
load_in_4bit | model.quantization | nf4
micro_batch_size | train.batch_rows | rows per optimizer step, over all devices
gradient_accumulation_steps | train.batch_rows | the whole step
num_epochs | train.epochs |
lr_scheduler | train.lr_scheduler_type |
learning_rate | train.learning_rate |
warmup_ratio | train.warmup_ratio |
flash_attention | - | PyTorch's own attention, with flash kernels where the GPU has them
val_set_size | train.validation | and the gate's own held-out share, evaluation.heldout_share
chat_template | model.base | the model's own: what was sampled is never rendered anew
special_tokens | model.base | the model's own
rl | train.method | dpo, kto, grpo and so on
rl_beta | train.dpo.beta |
wandb_project | tracking.wandb |
deepspeed | runtime.accelerate | a config of accelerate
fsdp | runtime.accelerate | configs/accelerate/fsdp2.yaml
output_dir | clawpipe models export NAME@3 --output FOLDER |
saves_per_epoch | train.checkpoint_steps |
axolotl preprocess | clawpipe inspect FILE --tokens --model NAME | what is trained, in colours
axolotl merge-lora | clawpipe models export NAME@3 --output FOLDER | or serving.artifact: merged
lora_target_modules | train.lora.target_modules |
bf16 | model.dtype | bfloat16
load_in_8bit | model.quantization | int8
gradient_checkpointing | train.gradient_checkpointing |
optimizer | - | AdamW
weight_decay | train.weight_decay |
warmup_steps | train.warmup_steps |
max_steps | train.max_steps |
save_steps | train.checkpoint_steps |
logging_steps | - | every step is logged
seed | seed |
neftune_noise_alpha | - | no noise is added to embeddings
early_stopping_patience | train.patience |
resume_from_checkpoint | clawpipe run --config FILE | the same command goes on
dataset_prepared_path | - | every step's result is kept, and used again where its inputs are the same
liger_rope | - | PyTorch's own kernels
"""
VERL = """
actor_rollout_ref.model.path | model.base |
data.train_files | clawpipe train FILE |
data.train_batch_size | rollouts.items | prompts a round
data.max_prompt_length | curation.max_tokens |
data.max_response_length | rollouts.max_new_tokens |
actor_rollout_ref.actor.optim.lr | train.learning_rate |
actor_rollout_ref.actor.ppo_mini_batch_size | train.batch_rows |
actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu | - | pieces of a step are sized by the memory
actor_rollout_ref.actor.clip_ratio | train.loss.clip_low, train.loss.clip_high |
actor_rollout_ref.actor.clip_ratio_low | train.loss.clip_low |
actor_rollout_ref.actor.clip_ratio_high | train.loss.clip_high |
actor_rollout_ref.actor.clip_ratio_c | train.loss.dual_clip |
actor_rollout_ref.actor.use_kl_loss | train.loss.kl_coef | 0 is none
actor_rollout_ref.actor.kl_loss_coef | train.loss.kl_coef |
actor_rollout_ref.actor.kl_loss_type | train.loss.kl_coef | k3 (low_var_kl)
actor_rollout_ref.actor.entropy_coeff | train.loss.entropy_coef |
actor_rollout_ref.actor.ppo_epochs | train.epochs |
actor_rollout_ref.actor.loss_agg_mode | train.loss.normalise | token-mean: token, seq-mean-token-mean: sequence
actor_rollout_ref.actor.grad_clip | train.max_grad_norm |
actor_rollout_ref.rollout.name | rollouts.engine.name | vllm, sglang
actor_rollout_ref.rollout.n | rollouts.group_size |
actor_rollout_ref.rollout.temperature | rollouts.temperature |
actor_rollout_ref.rollout.gpu_memory_utilization | rollouts.engine.arguments | of vLLM: --gpu-memory-utilization
actor_rollout_ref.rollout.tensor_model_parallel_size | rollouts.engine.arguments | of vLLM: --tensor-parallel-size
actor_rollout_ref.rollout.multi_turn.max_assistant_turns | rollouts.max_turns |
algorithm.adv_estimator | train.method | grpo; gae: ppo; rloo: curation.baseline: leave-one-out
algorithm.norm_adv_by_std_in_grpo | curation.advantage | group, or none
algorithm.gamma | train.ppo.gamma |
algorithm.lam | train.ppo.gae_lambda |
algorithm.high_level_gamma | train.ppo.gamma, train.ppo.steps | of VAGEN, which builds on verl; with steps: turn
algorithm.kl_ctrl.kl_coef | train.loss.kl_coef | as a loss, not in the reward
algorithm.rollout_is_threshold | train.loss.tis_cap |
algorithm.filter_groups.enable | curation.drop_zero_variance_groups |
critic.cliprange_value | train.ppo.value_clip |
custom_reward_function.path | scorers | path/to/file.py:NAME
trainer.total_epochs | train.epochs | rounds of a night: rounds
trainer.save_freq | train.checkpoint_steps |
trainer.test_freq | train.probe_steps | training items are asked; held-out ones are played once, at the night's end
trainer.n_gpus_per_node | runtime.train_processes |
trainer.logger | tracking.wandb | MLflow always
trainer.project_name | tracking.wandb |
data.val_files | environment.heldout_items | or a share of the logs: evaluation.heldout_share
trainer.nnodes | machines.md |
trainer.total_training_steps | train.max_steps |
actor_rollout_ref.model.lora_rank | train.lora.rank |
actor_rollout_ref.model.lora_alpha | train.lora.alpha |
actor_rollout_ref.model.enable_gradient_checkpointing | train.gradient_checkpointing |
actor_rollout_ref.actor.strategy | runtime.accelerate |
actor_rollout_ref.actor.use_dynamic_bsz | train.pack_tokens | always
actor_rollout_ref.rollout.top_p | - | sampling is from the policy itself, else its log-probs would be another distribution's
actor_rollout_ref.rollout.mode | rollouts.engine.name |
algorithm.use_kl_in_reward | train.loss.kl_coef | as a loss, not in the reward
reward_model.enable | scorers |
critic.optim.lr | train.learning_rate | of policy and critic, which is a head on it
"""
SLIME = """
--hf-checkpoint | model.base |
--ref-load | train.start_from |
--save | clawpipe models export NAME@3 --output FOLDER |
--save-interval | train.checkpoint_steps |
--prompt-data | environment.options | the file of the environment prompts
--num-rollout | rounds |
--rollout-batch-size | rollouts.items | items a round
--n-samples-per-prompt | rollouts.group_size |
--rollout-max-response-len | rollouts.max_new_tokens |
--rollout-temperature | rollouts.temperature |
--global-batch-size | train.batch_rows |
--num-steps-per-rollout | train.optimizer_steps |
--advantage-estimator | train.method | grpo; gspo: train.loss.level: sequence; ppo
--disable-rewards-normalization | curation.advantage | none
--eps-clip | train.loss.clip_low |
--eps-clip-high | train.loss.clip_high |
--eps-clip-c | train.loss.dual_clip |
--use-kl-loss | train.loss.kl_coef |
--kl-loss-coef | train.loss.kl_coef |
--kl-loss-type | train.loss.kl_coef | k3 (low_var_kl)
--entropy-coef | train.loss.entropy_coef |
--use-rollout-logprobs | - | always: recorded log-probs are applied
--use-tis | train.loss.tis_cap |
--custom-rm-path | scorers | path/to/file.py:NAME
--custom-generate-function-path | environments.md | an environment of yours
--custom-loss-function-path | train.loss.objective | path/to/file.py:NAME
--rm-type | environment.options | the check of the environment prompts
--lr | train.learning_rate |
--lr-decay-style | train.lr_scheduler_type |
--weight-decay | train.weight_decay |
--adam-beta1 | train.adam_beta1 |
--adam-beta2 | train.adam_beta2 |
--clip-grad | train.max_grad_norm |
--distill-topk | train.opd.top_k |
--distill-subset-mode | train.opd.top_k_of |
--hint-m | train.opd.candidates |
--hint-selection | train.opd.hint_per | sequence_optimal: row, token_optimal: token; shortest: train.opd.candidates of 1
--prm-enable | scorers |
--prm-m | scorers | votes of a judge
--prm-step-coef | curation.step_weight |
--update-weights-interval | rounds | new weights generate from the next round on
--actor-num-gpus-per-node | runtime.train_processes |
--rollout-num-gpus | runtime.workers |
--tensor-model-parallel-size | runtime.accelerate |
--max-tokens-per-gpu | train.pack_tokens |
--sglang-mem-fraction-static | engines.md | a flag of the server, which rollouts.engine sglang asks
--sglang-tool-call-parser | model.tool_call_format |
--over-sampling-batch-size | rollouts.items | groups without signal are filtered out, and not played anew
--dynamic-sampling-filter-path | curation.drop_zero_variance_groups |
--colocate | rollouts.engine.python | the night starts a server for sampling, and stops it before it trains
--load | train.start_from |
--rollout-function-path | environments.md | an environment of yours
--eval-prompt-data | environment.heldout_items |
--num-epoch | rounds |
--input-key | environments.md | prompt, in the file of the environment prompts
--label-key | environments.md | answer, in the file of the environment prompts
--apply-chat-template | - | always
--rollout-top-p | - | sampling is from the policy itself, else its log-probs would be another distribution's
--sglang-server-concurrency | rollouts.engine.concurrency |
--use-wandb | tracking.wandb |
--wandb-project | tracking.wandb |
--seed | seed |
--normalize-advantages | curation.advantage | batch
"""
