"""Programs as Paddle's ProgramDesc: bytes in both directions, and views with Paddle's methods.

`serialize` writes and reads whole programs, `attr_codec` single attributes; `gradient_links`
restores what the bytes do not say. `desc_view` and `op_proto` show programs and op types as
Paddle's own objects do. The messages themselves are described in `checkpoint/program_desc.py`.
"""
