"""What a program is: `Program`, its blocks, ops and variables, and the registry of op types.

Nothing is computed. Arithmetic and methods of Variables (`variable_math`, `variable_index`,
`variable_methods`) append ops; `program_binding` is what a program is bound to in this process.
"""
