"""Writers of MultiSlot text."""

from fleetx.data.data_generator import (
    DataGenerator,
    MultiSlotDataGenerator,
    MultiSlotStringDataGenerator,
)
from paddle._coverage import missing

__all__ = ["DataGenerator", "MultiSlotDataGenerator", "MultiSlotStringDataGenerator"]

__getattr__ = missing(__name__)
