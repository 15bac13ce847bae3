"""The model as `transformers` loads it; `export` copies this file and those it needs beside the weights."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel  # pyright: ignore[reportMissingImports]
from transformers.generation import GenerationMixin  # pyright: ignore
from transformers.modeling_outputs import CausalLMOutput  # pyright: ignore[reportMissingImports]

from loopworth.model.looped import LoopedTransformer, nats
from loopworth.shape import Shape


class LoopedConfig(PretrainedConfig):
    """`shape` holds the fields of a Shape."""

    model_type = "loopworth"

    def __init__(self, shape: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.shape = shape or {"width": 32, "depth": 8, "context": 32, "vocabulary": 256}
        self.vocab_size = self.shape["vocabulary"]
        self.hidden_size = self.shape["width"]
        self.num_hidden_layers = self.shape.get("depth", 20)
        super().__init__(**kwargs)


class LoopedForCausalLM(PreTrainedModel, GenerationMixin):
    """Without a cache: every step runs the whole row. `passes` other than r runs the loop that often."""

    config_class = LoopedConfig

    def __init__(self, config: LoopedConfig) -> None:
        super().__init__(config)
        self.model = LoopedTransformer(Shape(**config.shape))
        self.post_init()

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.model.embedding

    def set_input_embeddings(self, value: torch.nn.Module) -> None:
        self.model.embedding = value  # pyright: ignore[reportAttributeAccessIssue]

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.model.head

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Weights come from the run."""

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        passes: int | None = None,
        **_: Any,
    ) -> CausalLMOutput:
        if attention_mask is not None and not attention_mask.all():
            raise ValueError(
                "padding is not supported: attention is causal over the whole row; give rows of one length"
            )
        logits = self.model(input_ids, passes)
        loss = None
        if labels is not None:
            # Labels of -100 are not to be predicted: `nats` gives them 0.
            targets = labels[:, 1:]
            loss = nats(logits[:, :-1], targets).sum() / (targets != -100).sum()
        return CausalLMOutput(loss=loss, logits=logits)

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, *_: Any, **kwargs: Any) -> dict[str, Any]:  # pyright: ignore
        return {"input_ids": input_ids, "passes": kwargs.get("passes")}
