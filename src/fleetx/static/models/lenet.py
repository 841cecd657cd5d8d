"""LeNet: LeCun et al., "Gradient-based learning applied to document recognition", 1998."""

from __future__ import annotations

from fleetx.static import nn
from fleetx.static.graph.variable import Variable
from fleetx.static.models.head import Classifier

__all__ = ["LeNet"]


class LeNet(Classifier):
    """Two convolutions and three linear maps, for images [N, 1, 28, 28]."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__(num_classes, with_pool=False)
        self.features = nn.Sequential(
            nn.Conv2D(1, 6, 3, stride=1, padding=1),
            nn.ReLU(),
            nn.MaxPool2D(2, 2),
            nn.Conv2D(6, 16, 5, stride=1, padding=0),
            nn.ReLU(),
            nn.MaxPool2D(2, 2),
        )
        self.fc = None
        if num_classes > 0:
            self.fc = nn.Sequential(
                nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, num_classes)
            )

    def extract(self, x: Variable) -> Variable:
        """Return the last feature map."""
        return self.features(x)

    def forward(self, inputs: Variable) -> Variable:
        """Return scores of images."""
        return self._end(self.extract(inputs), None, self.fc)
