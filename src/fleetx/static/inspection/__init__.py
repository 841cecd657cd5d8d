"""Looking at programs: how many ops, how much memory, where a variable comes from, a drawing."""
