"""Lets vLLM's Model Runner V2 run on a CPU, for tests: a Triton backend named "cpu" that only interprets.

vLLM runs V2 on a CPU if Triton has a backend of that name.  Put the folder above this package on PYTHONPATH, with
TRITON_INTERPRET=1 and VLLM_USE_V2_MODEL_RUNNER=1; never install it, or vLLM would believe in this backend always.
"""
