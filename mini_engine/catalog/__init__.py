"""The catalogue: what a model and a GPU are in numbers, the tables in `data/`, and any Hugging Face `config.json`."""

from mini_engine.catalog.specs import GPUSpec, ModelSpec, gpu_spec, model_spec
from mini_engine.catalog.tables import get_gpu, get_model, list_gpus, list_models, model_row, read_table

__all__ = [
    "GPUSpec",
    "ModelSpec",
    "get_gpu",
    "get_model",
    "gpu_spec",
    "list_gpus",
    "list_models",
    "model_row",
    "model_spec",
    "read_table",
]
