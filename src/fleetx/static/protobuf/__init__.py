"""Programs as Paddle's ProgramDesc: bytes in both directions, and views with Paddle's methods.

`serialize` writes and reads whole programs, `attr_codec` single attributes; `gradient_links`
restores what the bytes do not contain. `desc_view` and `op_proto` present programs and op types
with the API of Paddle's objects. The messages are described in `checkpoint/program_desc.py`.
"""
