"""Names of Tinker and its cookbook: losses, optimizer, sampling, recipes."""

TABLE = """
TINKER_API_KEY | $TINKER_API_KEY | the same variable
TINKER_BASE_URL | train.backend.url, $TINKER_BASE_URL | the variable where the setting is absent
TINKER_PROJECT_ID | tracking.wandb | a project of the tracker
create_lora_training_client | train.backend.name | a night makes its own client of the service: tinker
base_model | model.base, train.backend.model | the second is its name at the service, where that trains
rank | train.lora.rank |
train_mlp | train.lora.target_modules | name the layers
train_attn | train.lora.target_modules | name the layers
train_unembed | train.lora.target_modules | name the layers
forward_backward | train.loss.objective | a loss of yours: path/to/file.py:NAME
optim_step | train.learning_rate | clipping: train.max_grad_norm
loss_fn | train.loss.objective |
cross_entropy | train.loss.objective | sft
importance_sampling | train.loss.objective | reinforce
cispo | train.loss.objective | the same name
dro | train.loss.objective | none of that name: a loss of yours
clip_low_threshold | train.loss.clip_low | the bound of the ratio is 1 - clip_low
clip_high_threshold | train.loss.clip_high | the bound of the ratio is 1 + clip_high
beta1 | train.adam_beta1 |
beta2 | train.adam_beta2 | there 0.95 by default
eps | - | Adam's epsilon is transformers' own
weight_decay | train.weight_decay |
grad_clip_norm | train.max_grad_norm |
save_state | train.checkpoint_steps | with the optimizer
load_state | clawpipe run | a killed night goes on
save_weights_for_sampler | clawpipe models export NAME@3 --output FOLDER |
sample | rollouts.temperature | an engine samples; asked from outside: clawpipe serve
compute_logprobs | curation.md | log-probs are recomputed inside a night
max_tokens | rollouts.max_new_tokens |
top_p | rollouts.engine.options | a cut of the distribution makes log-probs unusable for ratios
kl_penalty_coef | train.loss.kl_coef |
kl_discount_factor | - | the penalty has no discount
num_substeps | train.optimizer_steps |
remove_constant_reward_groups | curation.drop_zero_variance_groups |
eval_every | train.probe_steps | training items are asked; held-out ones are played once, at the night's end
save_every | train.checkpoint_steps |
learning_rate | train.learning_rate |
lora_rank | train.lora.rank |
max_steps | train.max_steps |
num_epochs | train.epochs |
ttl_seconds | clawpipe gc --keep-versions NUMBER | old versions are removed by command
groups_per_batch | rollouts.items | items a round
dpo_beta | train.dpo.beta |
tinker:// | - | a path of that service is no model here
"""
