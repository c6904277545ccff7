"""Files on disk, read strictly: configurations in JSON, weights in safetensors, sizes of a target."""
