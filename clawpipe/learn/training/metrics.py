"""Metrics of an optimizer step, by name. A metric that cannot be computed is absent, never 0.

Means are over the step's trained tokens unless said otherwise; log-probs and divergences are in nats.
"""

METRICS: dict[str, str] = {
    # the optimizer step
    "step": "number of the optimizer step, from 1",
    "of": "number of planned optimizer steps",
    "epoch": "share of the plan that is done, over all epochs",
    "loss": "the loss that was minimised, normalised as train.loss.normalise says; per pair for dpo",
    "policy_loss": "the part of the loss that comes from advantages, per token: without divergence, entropy bonus and value loss",
    "grad_norm": "norm of the gradient before clipping",
    "learning_rate": "learning rate of the step",
    "validation_loss": "the same loss on the groups kept out of training, after the step",
    "nonfinite": "packs that contributed nothing, and steps that were skipped, because a value was not finite",
    # the policy
    "ratio_mean": "importance ratio between the policy and the one the ratio is anchored at (proximal, else behaviour)",
    "ratio_min": "smallest importance ratio",
    "ratio_max": "largest importance ratio",
    "clip_frac": "share of tokens whose ratio is beyond the clip on the side where it counts",
    "approx_kl": "k3 estimate of the divergence between the behaviour policy and the policy; train.max_kl stops on it",
    "kl": "estimate of the divergence from the reference policy: k3, unless the method's page says another",
    "entropy": "entropy of the policy where it predicts a trained token",
    "lp": "log-prob of the trained tokens under the policy",
    "behav_lp": "their log-prob as recorded when they were sampled",
    "adv_mean": "advantage, weights of the method included",
    "adv_std": "standard deviation of the advantage over the trained tokens",
    "tis_frac": "share of tokens whose mismatch weight was truncated",
    "icepop_frac": "share of tokens masked because their mismatch weight lies outside the band",
    "opsm_drop": "share of tokens masked because their row drifted too far",
    # the hinted teacher: opd, combine
    "hinted": "share of tokens with a hint for their row or their turn",
    "distil_kl": "divergence from the hinted teacher over K + 1 bins; 0 counts for a token without a hint",
    # the critic: ppo
    "value_loss": "half the squared error of the critic, clipped as train.ppo.value_clip says",
    "return_mean": "return that the critic is trained to predict",
    "explained_variance": "share of the returns' variance that the critic explains before the step; 1 is perfect",
    # good and bad rows: the sides of pairs for dpo, else rows labelled desirable and undesirable; means over them
    "rewards_chosen": "beta times the log-ratio between policy and reference, summed over a chosen row",
    "rewards_rejected": "the same of a rejected row",
    "margin": "rewards_chosen less rewards_rejected",
    "accuracy": "share of pairs whose chosen side has the larger reward",
    "nll": "negative log-likelihood per token of a chosen row",
    "lp_chosen": "log-prob of a chosen row, summed",
    "lp_rejected": "log-prob of a rejected row, summed",
    # work done
    "trained_tokens": "tokens that carried loss, shared ones counted for each row",
    "tree_tokens": "tokens that were computed, shared ones once",
    "seconds": "wall time of the step, without its validation",
    "tokens_per_second": "trained_tokens over seconds",
}
