"""What may be said about a parameter."""

from fleetx.static.building.param_attr import ParamAttr, WeightNormParamAttr
from paddle._coverage import missing

__all__ = ["ParamAttr", "WeightNormParamAttr"]

__getattr__ = missing(__name__)
