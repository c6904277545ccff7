"""vLLM's V1 model runner, which serves on CPUs.  This package goes when vLLM drops that runner."""
