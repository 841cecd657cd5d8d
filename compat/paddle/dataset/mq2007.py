"""The data set `mq2007`, from unpacked local files."""

from fleetx.data.mq2007 import (
    Query,
    QueryList,
    fetch,
    gen_list,
    gen_pair,
    gen_plain_txt,
    gen_point,
    load_from_text,
    query_filter,
    test,
    train,
)
