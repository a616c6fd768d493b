"""The in-process engine: the loop, local steps, sampling, history, checkpoints and tuning."""
