"""Variables that machines, hubs and launchers set, whoever reads them."""

TABLE = """
HF_TOKEN | $HF_TOKEN | the same variable, where a model or data set of the hub asks for it
HF_HOME | $HF_HOME | the same variable
CUDA_VISIBLE_DEVICES | $CUDA_VISIBLE_DEVICES | the same variable; of one night: runtime.device
WORLD_SIZE | runtime.train_processes | the trainer starts torchrun by itself
RANK | runtime.train_processes | the trainer starts torchrun by itself
LOCAL_RANK | runtime.train_processes | the trainer starts torchrun by itself
MASTER_ADDR | runtime.accelerate | of several machines: a config of accelerate
MASTER_PORT | runtime.accelerate | of several machines: a config of accelerate
torchrun | runtime.train_processes | started by the trainer, not by a person
accelerate launch | runtime.accelerate | started by the trainer with this config
OPENAI_API_KEY | $OPENAI_API_KEY | the same variable, of endpoints and judges
WANDB_API_KEY | $WANDB_API_KEY | the same variable
MLFLOW_TRACKING_URI | $MLFLOW_TRACKING_URI | the same variable
OMP_NUM_THREADS | runtime.train_threads |
OMP_WAIT_POLICY | $OMP_WAIT_POLICY | the same variable; threads spin briefly where it is not set
"""
