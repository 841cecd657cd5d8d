"""What may be said about a parameter."""

from fleetx.static.building.param_attr import ParamAttr, WeightNormParamAttr
