"""RankSVM: hinge losses of preferences and their minimisation."""
