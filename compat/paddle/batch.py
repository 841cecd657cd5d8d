"""paddle.batch: a reader of samples becomes a reader of lists of samples."""

from fleetx.static.readers.batch import batch
