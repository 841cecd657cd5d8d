"""The data set `conll05`, from local files."""

from fleetx.data.conll05 import get_dict, get_embedding, test
