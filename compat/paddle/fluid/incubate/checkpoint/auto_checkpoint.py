"""A loop over epochs that goes on where it was stopped."""

from fleetx.paddle_rules.epoch_range import TrainEpochRange, train_epoch_range
