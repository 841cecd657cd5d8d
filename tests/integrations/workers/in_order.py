"""Trainers of any version of transformers that take the samples in their order."""

from torch.utils.data import SequentialSampler


def in_order(kind):
    """Return a class of Trainer that does not shuffle; the setting for it has changed its name."""

    class InOrder(kind):
        def _get_train_sampler(self, *_):
            return SequentialSampler(self.train_dataset)

    return InOrder
