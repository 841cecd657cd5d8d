"""Containers of layers (in sequence, as a list, by name) and of parameters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from fleetx.static.nn.layer import Layer

__all__ = ["LayerDict", "LayerList", "ParameterList", "Sequential"]


def _position(index: int, length: int) -> int:
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range for {length} elements.")
    return index % length


class _Container(Layer):
    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self._sub_layers)

    def _layers(self) -> list[Any]:
        return list(self._sub_layers.values())


class Sequential(_Container):
    """Chains layers; they are given in order, or as (name, layer) pairs."""

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        if layers and isinstance(layers[0], list | tuple):
            for name, layer in layers:
                self.add_sublayer(name, layer)
        else:
            for i, layer in enumerate(layers):
                self.add_sublayer(str(i), layer)

    def __getitem__(self, index: int | slice | str) -> Any:
        """Return a layer, or a Sequential of some of them."""
        if isinstance(index, slice):
            return type(self)(*self._layers()[index])
        if isinstance(index, str):
            return self._sub_layers[index]
        return self._layers()[_position(index, len(self))]

    def __setitem__(self, name: Any, layer: Layer) -> None:
        """Set the layer with this name or index."""
        self.add_sublayer(str(name), layer)

    def __delitem__(self, name: Any) -> None:
        """Remove the layer with this name or index."""
        del self._sub_layers[str(name)]

    def forward(self, input: Any) -> Any:
        """Call the layers in order."""
        for layer in self._sub_layers.values():
            input = layer(input)
        return input


class LayerList(_Container):
    """Holds layers in a list; the owner decides how to call them."""

    def __init__(self, sublayers: Iterable[Layer] | None = None) -> None:
        super().__init__()
        self.extend(sublayers or [])

    def __getitem__(self, index: int | slice) -> Any:
        """Return a layer, or a LayerList of some of them."""
        if isinstance(index, slice):
            return type(self)(self._layers()[index])
        return self._layers()[_position(index, len(self))]

    def __setitem__(self, index: int, layer: Layer) -> None:
        """Replace a layer."""
        self.add_sublayer(str(_position(index, len(self))), layer)

    def __delitem__(self, index: int | slice) -> None:
        """Remove layers and renumber the ones after them."""
        values = self._layers()
        del values[index]
        self._renumber(values)

    def __iter__(self) -> Iterator[Layer]:
        """Iterate over the layers."""
        return iter(self._sub_layers.values())

    def _renumber(self, values: list[Layer]) -> None:
        self._sub_layers = OrderedDict((str(i), v) for i, v in enumerate(values))

    def append(self, sublayer: Layer) -> LayerList:
        """Append a layer."""
        self.add_sublayer(str(len(self)), sublayer)
        return self

    def insert(self, index: int, sublayer: Layer) -> None:
        """Insert a layer before the given index."""
        values = self._layers()
        values.insert(index, sublayer)
        self._renumber(values)

    def extend(self, sublayers: Iterable[Layer]) -> LayerList:
        """Append layers."""
        for layer in sublayers:
            self.append(layer)
        return self


class LayerDict(_Container):
    """Holds layers by name; the owner decides how to call them."""

    def __init__(self, sublayers: Any = None) -> None:
        super().__init__()
        self.update(sublayers or {})

    def __getitem__(self, key: str) -> Any:
        """Return the layer of this name."""
        return self._sub_layers[key]

    def __setitem__(self, key: str, layer: Layer) -> None:
        """Set the layer of this name."""
        self.add_sublayer(key, layer)

    def __delitem__(self, key: str) -> None:
        """Remove the layer of this name."""
        del self._sub_layers[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._sub_layers)

    def __contains__(self, key: str) -> bool:
        """Return whether there is a layer of this name."""
        return key in self._sub_layers

    def keys(self) -> Iterable[str]:
        """Return the names."""
        return self._sub_layers.keys()

    def values(self) -> Iterable[Layer]:
        """Return the layers."""
        return self._sub_layers.values()

    def items(self) -> Iterable[tuple[str, Layer]]:
        """Return (name, layer) pairs."""
        return self._sub_layers.items()

    def pop(self, key: str) -> Any:
        """Remove the layer of this name and return it."""
        return self._sub_layers.pop(key)

    def clear(self) -> None:
        """Remove all layers."""
        self._sub_layers.clear()

    def update(self, sublayers: Any) -> None:
        """Add layers from a dict or (name, layer) pairs."""
        pairs = sublayers.items() if hasattr(sublayers, "items") else sublayers
        for name, layer in pairs:
            self.add_sublayer(name, layer)


class ParameterList(Layer):
    """Holds parameters in a list."""

    def __init__(self, parameters: Iterable[Any] | None = None) -> None:
        super().__init__()
        for parameter in parameters or []:
            self.append(parameter)

    def __getitem__(self, index: int) -> Any:
        """Return a parameter."""
        return self._parameters[str(_position(index, len(self)))]

    def __setitem__(self, index: int, parameter: Any) -> None:
        """Replace a parameter."""
        self.add_parameter(str(_position(index, len(self))), parameter)

    def __len__(self) -> int:
        """Return the number of parameters."""
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the parameters."""
        return iter(self._parameters.values())

    def append(self, parameter: Any) -> ParameterList:
        """Append a parameter."""
        self.add_parameter(str(len(self)), parameter)
        return self
