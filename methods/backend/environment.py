"""Process settings that must stand before torch or verl is imported. Importing this module applies them as defaults."""

import os

DEFAULTS = {
    # A second OpenMP thread beside one other busy process was measured 60 times slower: jobs use cores, not threads.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # No network at run time: a missing file is an error here, not a download.
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
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
