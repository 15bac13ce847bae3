"""The looped transformer, its ways of injecting, and its parameters as one buffer."""

from loopworth.model.layers import Layer, Norm
from loopworth.model.load import load
from loopworth.model.looped import LoopedTransformer, nats
from loopworth.model.weights import GROUPS, Weights, group_of

__all__ = ["GROUPS", "Layer", "LoopedTransformer", "Norm", "Weights", "group_of", "load", "nats"]
