"""Process settings that must stand before torch or verl is imported. Importing this module applies them as defaults."""

import os

DEFAULTS = {
    # verl would take the accelerator of whatever `nvidia-smi` it finds, also with a torch that was built without it.
    "VERL_PLATFORM": "cpu",
    # A second OpenMP thread beside one other busy process waits at every barrier: jobs use cores, not threads.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # No network at run time: a missing file is an error here, not a download.
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A Ray of this run's own, reached by nobody else: no token file in the user's home.
    "RAY_AUTH_MODE": "disabled",
    # Ray would start one idle Python per logical CPU, and those are many more than the real ones.
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    # A process of Ray that gives itself a title would wipe its environment, by which a killed run's are found.
    "SPT_NOENV": "1",
    # The GPU slots are logical: leave CUDA_VISIBLE_DEVICES alone.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "TQ_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    # Its warnings on a CPU are of speed-ups that one thread has no use for.
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VERL_LOGGING_LEVEL": "WARN",
    "TQ_LOGGING_LEVEL": "WARNING",
}

for _name, _value in DEFAULTS.items():
    os.environ.setdefault(_name, _value)
