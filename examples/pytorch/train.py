"""Train a small network on handwritten digits with PyTorch."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(1)
digits = load_digits()
pictures = torch.tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
samples = list(zip(pictures, torch.tensor(digits.target), strict=True))
data, test = train_test_split(samples, train_size=1440, random_state=1)
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10)
)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

for epoch in range(10):
    for picture, label in loader:
        loss = nn.functional.cross_entropy(model(picture), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")

with torch.no_grad():
    picture, label = next(iter(DataLoader(test, batch_size=len(test))))
    accuracy = (model(picture).argmax(1) == label).float().mean()
print(f"accuracy on {len(test)} pictures it never saw: {accuracy:.1%}")
